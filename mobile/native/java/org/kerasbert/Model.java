package org.kerasbert;

import java.nio.ByteBuffer;

/** What a .tflite of `kerasbert-mobile compress` carries beside the network: its tokenizer, its kind of answer, its settings. */
public final class Model implements AutoCloseable {
    /** Such as "classification". */
    public final String kind;

    /** bundle.json: names and lengths of the signatures, their inputs and outputs. */
    public final String settings;

    /** Tokens of the longest row. */
    public final int longest;

    /** Its tokenizer, which is closed with it. */
    public final Tokenizer tokenizer;

    private long handle;

    /**
     * The model of a file.
     *
     * @param file its bytes, such as FileChannel.map gives them to the interpreter too; not needed afterwards
     */
    public Model(ByteBuffer file) {
        handle = Core.openModel(Core.direct(file), file.remaining());
        byte[][] names = Core.names(handle);
        kind = Core.text(names[0]);
        settings = Core.text(names[1]);
        longest = Core.longest(handle);
        tokenizer = new Tokenizer(Core.tokenizer(handle));
    }

    /** The rows of one input: a text, a pair, a question and its context, a text and its choices. */
    public Rows rows(String... texts) {
        return made(texts, false);
    }

    /** The rows of the words of a text (tags). */
    public Rows rowsOfWords(String... words) {
        return made(words, true);
    }

    private Rows made(String[] texts, boolean words) {
        return new Rows(this, Core.makeRows(handle(), Core.bytes(texts), words));
    }

    long handle() {
        return Core.open(handle);
    }

    /** Rows of it must be closed before. */
    @Override
    public void close() {
        tokenizer.close();
        Core.closeModel(handle);
        handle = 0;
    }
}
