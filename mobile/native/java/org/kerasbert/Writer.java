package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Predicate;

/** Text to the text that is generated from it. */
public final class Writer extends Runner {
    /** A text and its log-probability, by the length penalty that ranked it. */
    public static final class Text {
        public final String text;

        public final double score;

        Text(Label label) {
            text = label.name;
            score = label.score;
        }
    }

    /** What was generated. */
    public static final class Answer {
        /** The best text. */
        public final String text;

        public final double score;

        /** All that were asked for, best first. */
        public final List<Text> sequences;

        /** Whether the text was longer than the model reads. */
        public final boolean truncated;

        Answer(Object[] values) {
            List<Text> texts = new ArrayList<>();
            for (Label each : labels(values)) texts.add(new Text(each));
            sequences = Collections.unmodifiableList(texts);
            text = texts.get(0).text;
            score = texts.get(0).score;
            truncated = truncated(values);
        }
    }

    /** How probable a text is. */
    public static final class Score {
        /** Its tokens but the first, with their log-probabilities as scores. */
        public final List<Label> tokens;

        /** The sum of them. */
        public final double score;

        public final double perplexity;

        /** Whether the text was longer than the model reads. */
        public final boolean truncated;

        Score(Object[] values) {
            double sum = 0;
            tokens = labels(values);
            for (Label each : tokens) sum += each.score;
            score = sum;
            perplexity = Math.exp(-sum / tokens.size());
            truncated = truncated(values);
        }
    }

    private Writer(String path, ByteBuffer file, Options options) {
        super(path, file, options, "generation");
    }

    /** A file. */
    public static Writer open(String path) {
        return new Writer(path, null, new Options());
    }

    /** A file with options. */
    public static Writer open(String path, Options options) {
        return new Writer(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Writer open(ByteBuffer file, Options options) {
        return new Writer(null, file, options);
    }

    /** With the file's own settings. */
    public Answer generate(String text) {
        return generate(text, new Settings());
    }

    /** With settings of this call. */
    public Answer generate(String text, Settings settings) {
        return new Answer(written(text, settings, null));
    }

    /**
     * The same, told while it comes.
     *
     * @param listener gets each piece of the text as its tokens come, whole characters, in this thread; joined they are the text.
     *     False ends the text with a CoreException that is `cancelled`, as {@link #cancel} of any thread does; what it throws
     *     comes out of this call. Not with beams, or several texts: none is known before the end.
     */
    public Answer generate(String text, Settings settings, Predicate<String> listener) {
        return new Answer(written(text, settings, utf8 -> listener.test(Core.text(utf8))));
    }

    /** How probable a text of at least two tokens is, by a file of a decoder alone (GPT-2). */
    public Score score(String text) {
        return new Score(scored(text));
    }
}
