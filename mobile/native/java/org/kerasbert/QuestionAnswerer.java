package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.List;

/** A question and a text to the part of the text that answers it. */
public final class QuestionAnswerer extends Runner {
    /** An answer. */
    public static final class Answer {
        /** The answer's text; empty where the text has none. */
        public final String text;

        /** `context.substring(start, end)` is the text. */
        public final int start;

        public final int end;

        public final double score;

        /** Others, best first. */
        public final List<Span> alternatives;

        /** Whether the question was longer than the model reads. */
        public final boolean truncated;

        Answer(Object[] values, String context) {
            List<Span> all = spans(values, Core.SPANS, context);
            text = all.get(0).text;
            start = all.get(0).start;
            end = all.get(0).end;
            score = all.get(0).score;
            alternatives = all.subList(1, all.size());
            truncated = truncated(values);
        }
    }

    private QuestionAnswerer(String path, ByteBuffer file, Options options) {
        super(path, file, options, "span");
    }

    /** A file. */
    public static QuestionAnswerer open(String path) {
        return new QuestionAnswerer(path, null, new Options());
    }

    /** A file with options. */
    public static QuestionAnswerer open(String path, Options options) {
        return new QuestionAnswerer(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static QuestionAnswerer open(ByteBuffer file, Options options) {
        return new QuestionAnswerer(null, file, options);
    }

    /** The answer to a question about a text of any length. */
    public Answer answer(String question, String context) {
        return new Answer(values(false, question, context), context);
    }
}
