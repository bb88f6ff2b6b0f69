package org.kerasbert;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.function.Predicate;

/** The functions of jni.c. Handles are addresses; texts are UTF-8. */
final class Core {
    /** KB_VERSION. */
    static final int VERSION = 2;

    /** Calls of {@link #tokens}. */
    static final int ENCODE = 0, TOKENIZE = 1, PACK = 2;

    static {
        System.loadLibrary("kerasbert");
        if (version() != VERSION) throw new CoreException("the library has version " + version() + ", expected " + VERSION);
    }

    private Core() {}

    static native int version();

    static native long openTokenizer(byte[][] namesAndContents);

    static native void closeTokenizer(long tokenizer);

    static native long newTokens();

    static native void freeTokens(long tokens);

    /** ids; ids, starts, ends; or ids, segments, {truncated}. `second` may be null. */
    static native int[][] tokens(long tokenizer, long tokens, int call, byte[] first, byte[] second, int length);

    static native long openModel(ByteBuffer direct, int size);

    static native void closeModel(long model);

    static native long tokenizer(long model);

    /** Kind and bundle.json. */
    static native byte[][] names(long model);

    static native int longest(long model);

    static native long makeRows(long model, byte[][] texts, boolean words);

    static native int count(long rows);

    /** ids, segments, {position, truncated}. */
    static native int[][] row(long rows, int number);

    static native byte[] answer(long model, long rows, float[][] outputs);

    static native void freeRows(long rows);

    /** Of a file's path, or where it is null of its bytes, which must stay. `library` and `delegate` may be null. */
    static native long openRunner(byte[] path, ByteBuffer direct, byte[] library, int threads, int rows, byte[] delegate);

    static native byte[] kind(long runner);

    /** Answers; {@link #result} gives the answer typed until the next call. Gives the json. */
    static native byte[] ask(long runner, byte[][] texts, boolean words);

    /** The same of a text after a prompt; `texts`: the prompt's name and the text. */
    static native byte[] prompted(long runner, byte[][] texts);

    /** Generates a text; {@link #result} gives it until the next call. `listener` may be null: it gets pieces, and false ends the text. */
    static native void generate(long runner, byte[] text, byte[] settings, Predicate<byte[]> listener);

    /** Scores a text; {@link #result} gives its tokens until the next call. */
    static native void score(long runner, byte[] text);

    /** The places of {@link #result}: LABELS byte[][] and SCORES, IDS (id and 1 where it is chosen); each SPANS and ENTITIES: their
     * labels, their scores, starts and ends; VALUES; TEXT; ABOUT: labels of a mask, and 1 where the texts were truncated. */
    static final int LABELS = 0, SCORES = 1, IDS = 2, SPANS = 3, ENTITIES = 6, VALUES = 9, TEXT = 10, ABOUT = 11;

    static native Object[] result(long runner);

    static native void cancel(long runner);

    static native void closeRunner(long runner);

    /** Of a file's path, or where it is null of its bytes, which must stay; of the vectors of a runner's file. */
    static native long openIndex(byte[] path, ByteBuffer direct, long runner);

    static native int indexSize(long index);

    /** int[] numbers, double[] scores, byte[][] of each an id and a text. */
    static native Object[] nearest(long index, float[] vector, int top);

    static native void closeIndex(long index);

    /** UTF-8 of a text; a lone surrogate counts as U+FFFD. */
    static byte[] bytes(String text) {
        try {
            ByteBuffer made =
                    StandardCharsets.UTF_8
                            .newEncoder()
                            .onMalformedInput(CodingErrorAction.REPLACE)
                            .replaceWith(new byte[] {(byte) 0xEF, (byte) 0xBF, (byte) 0xBD})
                            .encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[made.remaining()];
            made.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw new AssertionError(error); // what is malformed is replaced
        }
    }

    static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }

    static byte[][] bytes(String... texts) {
        byte[][] made = new byte[texts.length][];
        for (int i = 0; i < texts.length; i++) made[i] = bytes(texts[i]);
        return made;
    }

    /** The bytes of a file in memory of their own, or those of a direct buffer themselves. */
    static ByteBuffer direct(ByteBuffer file) {
        return file.isDirect() ? file.slice() : ByteBuffer.allocateDirect(file.remaining()).put(file.duplicate());
    }

    /** A handle that is in use. */
    static long open(long handle) {
        if (handle == 0) throw new IllegalStateException("it is closed");
        return handle;
    }
}
