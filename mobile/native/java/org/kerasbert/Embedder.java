package org.kerasbert;

import java.nio.ByteBuffer;

/** Text to a vector. */
public final class Embedder extends Runner {
    /** A vector. */
    public static final class Answer {
        public final float[] values;

        /** Whether the text was longer than the model reads. */
        public final boolean truncated;

        Answer(Object[] values) {
            this.values = (float[]) values[Core.VALUES];
            truncated = truncated(values);
        }

        /** Cosine of the angle between two vectors: 1 of the same direction; 0 where one is 0. */
        public double cosine(Answer other) {
            double product = 0;
            double own = 0;
            double others = 0;
            for (int i = 0; i < values.length; i++) {
                product += (double) values[i] * other.values[i];
                own += (double) values[i] * values[i];
                others += (double) other.values[i] * other.values[i];
            }
            return own * others == 0 ? 0 : product / Math.sqrt(own * others);
        }
    }

    private Embedder(String path, ByteBuffer file, Options options) {
        super(path, file, options, "vector");
    }

    /** A file. */
    public static Embedder open(String path) {
        return new Embedder(path, null, new Options());
    }

    /** A file with options. */
    public static Embedder open(String path, Options options) {
        return new Embedder(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Embedder open(ByteBuffer file, Options options) {
        return new Embedder(null, file, options);
    }

    /** The vector of a text. */
    public Answer answer(String text) {
        return new Answer(values(false, text));
    }

    /** The vector of a text after another prompt of the file than its default, such as "query"; "" for none. */
    public Answer prompted(String prompt, String text) {
        return new Answer(valuesAfter(prompt, text));
    }

    /** The vector of a pair of texts. */
    public Answer answer(String first, String second) {
        return new Answer(values(false, first, second));
    }
}
