package org.kerasbert;

import java.util.Map;

/** Text to token ids, as the Python tokenizer gives them. Offsets are code points. Threads may share one; they take turns. */
public final class Tokenizer implements AutoCloseable {
    private final boolean own;
    private long handle;
    private long tokens;

    /**
     * A tokenizer of the files that its Python form's `save` writes.
     *
     * @param files name to content
     */
    public Tokenizer(Map<String, byte[]> files) {
        byte[][] parts = new byte[2 * files.size()][];
        int at = 0;
        for (Map.Entry<String, byte[]> file : files.entrySet()) {
            parts[at++] = Core.bytes(file.getKey());
            parts[at++] = file.getValue();
        }
        own = true;
        handle = Core.openTokenizer(parts);
        tokens = Core.newTokens();
    }

    Tokenizer(long handle) {
        own = false;
        this.handle = handle;
        tokens = Core.newTokens();
    }

    /** Ids of a text, without special tokens. */
    public int[] encode(String text) {
        return call(Core.ENCODE, Core.bytes(text), null, 0)[0];
    }

    /** Ids of UTF-8; what is invalid counts as U+FFFD. */
    public int[] encode(byte[] utf8) {
        return call(Core.ENCODE, utf8, null, 0)[0];
    }

    /** {ids, starts, ends} of a text, without special tokens. */
    public int[][] tokenize(String text) {
        return call(Core.TOKENIZE, Core.bytes(text), null, 0);
    }

    /** {ids, starts, ends} of UTF-8; what is invalid counts as U+FFFD. */
    public int[][] tokenize(byte[] utf8) {
        return call(Core.TOKENIZE, utf8, null, 0);
    }

    /**
     * {ids, segments, {1 where tokens are missing}} of a text or a pair, with special tokens.
     *
     * @param second null without
     * @param length the most tokens; 0 for any
     */
    public int[][] pack(String first, String second, int length) {
        return pack(Core.bytes(first), second == null ? null : Core.bytes(second), length);
    }

    /** The same of UTF-8; what is invalid counts as U+FFFD. */
    public int[][] pack(byte[] first, byte[] second, int length) {
        return call(Core.PACK, first, second, length);
    }

    private synchronized int[][] call(int call, byte[] first, byte[] second, int length) {
        return Core.tokens(Core.open(handle), tokens, call, first, second, length);
    }

    @Override
    public synchronized void close() {
        Core.freeTokens(tokens);
        if (own) Core.closeTokenizer(handle);
        handle = tokens = 0;
    }
}
