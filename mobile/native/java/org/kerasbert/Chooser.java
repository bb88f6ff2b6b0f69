package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** A text and choices to the one that fits. */
public final class Chooser extends Runner {
    /** A choice. */
    public static final class Answer {
        /** The place of the choice that fits best, its text and its probability. */
        public final int index;

        public final String text;
        public final double score;

        /** Every choice, in the order that was given. */
        public final List<Label> choices;

        /** Whether a text was longer than the model reads. */
        public final boolean truncated;

        Answer(Object[] values) {
            choices = labels(values);
            Label best = best(choices);
            index = best.id;
            text = best.name;
            score = best.score;
            truncated = truncated(values);
        }
    }

    private Chooser(String path, ByteBuffer file, Options options) {
        super(path, file, options, "choice");
    }

    /** A file. */
    public static Chooser open(String path) {
        return new Chooser(path, null, new Options());
    }

    /** A file with options. */
    public static Chooser open(String path, Options options) {
        return new Chooser(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Chooser open(ByteBuffer file, Options options) {
        return new Chooser(null, file, options);
    }

    /** The best of at least two choices. */
    public Answer answer(String text, List<String> choices) {
        List<String> all = new ArrayList<>(choices);
        all.add(0, text);
        return new Answer(values(false, all.toArray(new String[0])));
    }
}
