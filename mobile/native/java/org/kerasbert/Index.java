package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Texts that `kerasbert-mobile index` keeps with vectors of an embedder's file. Threads may share it. */
public final class Index implements AutoCloseable {
    /** A text that was found. */
    public static final class Hit {
        /** Its number, from 0. */
        public final int number;

        /** The cosine of the int8 vectors. */
        public final double score;

        public final String id;
        public final String text;

        Hit(int number, double score, String id, String text) {
            this.number = number;
            this.score = score;
            this.id = id;
            this.text = text;
        }
    }

    private final ByteBuffer file; // which the core reads until it is closed
    private long handle;

    private Index(String path, ByteBuffer bytes, Embedder embedder) {
        file = path == null ? Core.direct(bytes) : null;
        handle = embedder.openIndex(path == null ? null : Core.bytes(path), file);
    }

    /** A file that was made by the embedder's. */
    public static Index open(String path, Embedder embedder) {
        return new Index(path, null, embedder);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Index open(ByteBuffer file, Embedder embedder) {
        return new Index(null, file, embedder);
    }

    /** How many texts. */
    public synchronized int size() {
        return Core.indexSize(Core.open(handle));
    }

    /** The texts of the largest cosines with a vector, largest first: `top` of them, or all there are. */
    public synchronized List<Hit> nearest(Embedder.Answer vector, int top) {
        Object[] found = Core.nearest(Core.open(handle), vector.values, top);
        int[] numbers = (int[]) found[0];
        double[] scores = (double[]) found[1];
        byte[][] texts = (byte[][]) found[2];
        List<Hit> hits = new ArrayList<>(numbers.length);
        for (int i = 0; i < numbers.length; i++) {
            hits.add(new Hit(numbers[i], scores[i], Core.text(texts[2 * i]), Core.text(texts[2 * i + 1])));
        }
        return Collections.unmodifiableList(hits);
    }

    @Override
    public synchronized void close() {
        Core.closeIndex(handle);
        handle = 0;
    }
}
