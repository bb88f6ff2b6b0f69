package org.kerasbert;

import java.nio.ByteBuffer;

/** Text, or a pair of texts, to a number. */
public final class Regressor extends Runner {
    /** A number. */
    public static final class Answer {
        public final double value;

        /** Whether the text was longer than the model reads. */
        public final boolean truncated;

        Answer(Object[] values) {
            value = ((float[]) values[Core.VALUES])[0];
            truncated = truncated(values);
        }
    }

    private Regressor(String path, ByteBuffer file, Options options) {
        super(path, file, options, "regression");
    }

    /** A file. */
    public static Regressor open(String path) {
        return new Regressor(path, null, new Options());
    }

    /** A file with options. */
    public static Regressor open(String path, Options options) {
        return new Regressor(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Regressor open(ByteBuffer file, Options options) {
        return new Regressor(null, file, options);
    }

    /** The number of a text. */
    public Answer answer(String text) {
        return new Answer(values(false, text));
    }

    /** The number of a pair of texts. */
    public Answer answer(String first, String second) {
        return new Answer(values(false, first, second));
    }
}
