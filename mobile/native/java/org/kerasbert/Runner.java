package org.kerasbert;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.function.Predicate;

/**
 * A .tflite of `kerasbert-mobile compress` of any kind, run by LiteRT: text to an answer as json. Its subclasses give answers typed.
 *
 * <p>Threads take turns; {@link #cancel} alone does not wait. Errors are {@link CoreException}s.
 */
public class Runner implements AutoCloseable {
    private final Object cancelling = new Object();
    private final ByteBuffer file; // which the core reads until it is closed
    private long handle;
    private boolean telling; // a listener, in whose call it must not be closed

    Runner(String path, ByteBuffer bytes, Options options, String... kinds) {
        file = path == null ? Core.direct(bytes) : null;
        byte[] library = options.library == null ? null : Core.bytes(options.library);
        byte[] delegate = options.delegate == null ? null : Core.bytes(options.delegate);
        handle = Core.openRunner(path == null ? null : Core.bytes(path), file, library, options.threads, options.rows, delegate);
        if (kinds.length > 0 && !Arrays.asList(kinds).contains(kind())) {
            String kind = kind();
            close();
            throw new CoreException("the file answers with " + kind + ", expected " + String.join(" or ", kinds));
        }
    }

    /** A file. */
    public static Runner open(String path) {
        return open(path, new Options());
    }

    /** A file with options. */
    public static Runner open(String path, Options options) {
        return new Runner(path, null, options);
    }

    /** A file in memory, such as an asset that FileChannel.map gives. */
    public static Runner open(ByteBuffer file, Options options) {
        return new Runner(null, file, options);
    }

    /** Such as "classification". */
    public final synchronized String kind() {
        return Core.text(Core.kind(Core.open(handle)));
    }

    /** The answer as json, as Python's `to_json` gives it: of a text, a pair, a question and its context, a text and its choices. */
    public final synchronized String json(String... texts) {
        return Core.text(Core.ask(Core.open(handle), Core.bytes(texts), false));
    }

    /** Ends the answer that another thread waits for: it throws a CoreException that is `cancelled`. */
    public final void cancel() {
        synchronized (cancelling) {
            if (handle != 0) Core.cancel(handle);
        }
    }

    /** Waits for an answer that is under way. */
    @Override
    public final synchronized void close() {
        if (telling) throw new IllegalStateException("its listener closes it: end the text first");
        synchronized (cancelling) {
            Core.closeRunner(handle);
            handle = 0;
        }
    }

    /** The parts of an answer, at the places of Core. */
    final synchronized Object[] values(boolean words, String... texts) {
        Core.ask(Core.open(handle), Core.bytes(texts), words);
        return Core.result(handle);
    }

    /** The same of a text of a file of vectors, after a prompt. */
    final synchronized Object[] valuesAfter(String prompt, String text) {
        Core.prompted(Core.open(handle), Core.bytes(new String[] {prompt, text}));
        return Core.result(handle);
    }

    /** The parts of a text that is generated, at the places of Core. `listener` may be null. */
    final synchronized Object[] written(String text, Settings settings, Predicate<byte[]> listener) {
        boolean before = telling;
        telling = true;
        try {
            Core.generate(Core.open(handle), Core.bytes(text), Core.bytes(settings.json()), listener);
        } finally {
            telling = before;
        }
        return Core.result(handle);
    }

    /** The parts of a text that is scored. */
    final synchronized Object[] scored(String text) {
        Core.score(Core.open(handle), Core.bytes(text));
        return Core.result(handle);
    }

    /** Opens an index of this file's vectors: of a path, or where it is null of bytes that stay. */
    final synchronized long openIndex(byte[] path, ByteBuffer direct) {
        return Core.openIndex(path, direct, Core.open(handle));
    }

    static List<Label> labels(Object[] values) {
        byte[][] names = (byte[][]) values[Core.LABELS];
        double[] scores = (double[]) values[Core.SCORES];
        int[] ids = (int[]) values[Core.IDS];
        List<Label> made = new ArrayList<>(names.length);
        for (int i = 0; i < names.length; i++) {
            made.add(new Label(Core.text(names[i]), scores[i], ids[2 * i], ids[2 * i + 1] != 0));
        }
        return Collections.unmodifiableList(made);
    }

    /** The label of the highest score, the first of equal ones. */
    static Label best(List<Label> labels) {
        Label best = labels.get(0);
        for (Label label : labels) {
            if (label.score > best.score) best = label;
        }
        return best;
    }

    /** Spans at a place of Core. */
    static List<Span> spans(Object[] values, int place, String source) {
        byte[][] labels = (byte[][]) values[place];
        double[] scores = (double[]) values[place + 1];
        int[] offsets = (int[]) values[place + 2];
        List<Span> made = new ArrayList<>(labels.length);
        for (int i = 0; i < labels.length; i++) {
            made.add(new Span(source, Core.text(labels[i]), scores[i], offsets[2 * i], offsets[2 * i + 1]));
        }
        return Collections.unmodifiableList(made);
    }

    static boolean truncated(Object[] values) {
        return ((int[]) values[Core.ABOUT])[1] != 0;
    }
}
