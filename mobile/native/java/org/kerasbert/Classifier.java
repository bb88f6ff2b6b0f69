package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Text, or a pair of texts, to labels. */
public final class Classifier extends Runner {
    /** What a text is. */
    public static final class Answer {
        /** The best label and its probability. */
        public final String label;

        public final double score;

        /** Every label, in the file's order. */
        public final List<Label> labels;

        /** The labels that the text has: of several at a time (multi_label) those above their thresholds, else the best alone. */
        public final List<Label> chosen;

        /** Whether the text was longer than the model reads. */
        public final boolean truncated;

        Answer(Object[] values) {
            labels = labels(values);
            Label best = best(labels);
            label = best.name;
            score = best.score;
            List<Label> some = new ArrayList<>();
            for (Label each : labels) {
                if (each.chosen) some.add(each);
            }
            chosen = Collections.unmodifiableList(some);
            truncated = truncated(values);
        }
    }

    private Classifier(String path, ByteBuffer file, Options options) {
        super(path, file, options, "classification", "multi_label");
    }

    /** A file. */
    public static Classifier open(String path) {
        return new Classifier(path, null, new Options());
    }

    /** A file with options. */
    public static Classifier open(String path, Options options) {
        return new Classifier(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Classifier open(ByteBuffer file, Options options) {
        return new Classifier(null, file, options);
    }

    /** The labels of a text. */
    public Answer answer(String text) {
        return new Answer(values(false, text));
    }

    /** The labels of a pair of texts. */
    public Answer answer(String first, String second) {
        return new Answer(values(false, first, second));
    }
}
