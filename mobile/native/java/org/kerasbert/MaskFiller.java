package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A text with [MASK] in it to the tokens that may stand there. */
public final class MaskFiller extends Runner {
    /** What stands behind the masks. */
    public static final class Answer {
        /** The text with the best tokens in the place of its masks. */
        public final String text;

        /** Of each mask the tokens, best first. */
        public final List<List<Label>> tokens;

        /** Whether the model did not read the whole text. */
        public final boolean truncated;

        Answer(Object[] values) {
            List<Label> all = labels(values);
            List<List<Label>> masks = new ArrayList<>();
            int each = ((int[]) values[Core.ABOUT])[0];
            for (int i = 0; i < all.size(); i += each) masks.add(all.subList(i, i + each));
            text = Core.text((byte[]) values[Core.TEXT]);
            tokens = Collections.unmodifiableList(masks);
            truncated = truncated(values);
        }
    }

    private MaskFiller(String path, ByteBuffer file, Options options) {
        super(path, file, options, "tokens");
    }

    /** A file. */
    public static MaskFiller open(String path) {
        return new MaskFiller(path, null, new Options());
    }

    /** A file with options. */
    public static MaskFiller open(String path, Options options) {
        return new MaskFiller(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static MaskFiller open(ByteBuffer file, Options options) {
        return new MaskFiller(null, file, options);
    }

    /** The tokens of every mask of a text. */
    public Answer answer(String text) {
        return new Answer(values(false, text));
    }
}
