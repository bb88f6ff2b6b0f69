package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.List;

/** Text to a label of every word, and entities. */
public final class Tagger extends Runner {
    /** The words of a text and what they name. */
    public static final class Answer {
        public final List<Span> words;
        public final List<Span> entities;

        Answer(Object[] values, String text) {
            words = spans(values, Core.SPANS, text);
            entities = spans(values, Core.ENTITIES, text);
        }
    }

    private Tagger(String path, ByteBuffer file, Options options) {
        super(path, file, options, "tags");
    }

    /** A file. */
    public static Tagger open(String path) {
        return new Tagger(path, null, new Options());
    }

    /** A file with options. */
    public static Tagger open(String path, Options options) {
        return new Tagger(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Tagger open(ByteBuffer file, Options options) {
        return new Tagger(null, file, options);
    }

    /** Words and entities of a text; `text.substring(span.start, span.end)` is each. */
    public Answer answer(String text) {
        return new Answer(values(false, text), text);
    }

    /** The same of words; offsets are those of the words joined by blanks. */
    public Answer answer(List<String> words) {
        return new Answer(values(true, words.toArray(new String[0])), String.join(" ", words));
    }
}
