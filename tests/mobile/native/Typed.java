import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.kerasbert.Chooser;
import org.kerasbert.Classifier;
import org.kerasbert.CoreException;
import org.kerasbert.Embedder;
import org.kerasbert.Index;
import org.kerasbert.Label;
import org.kerasbert.MaskFiller;
import org.kerasbert.Options;
import org.kerasbert.QuestionAnswerer;
import org.kerasbert.Regressor;
import org.kerasbert.Runner;
import org.kerasbert.Span;
import org.kerasbert.Tagger;

/** typed.cpp in Java: Typed CLASS FILE LIBRARY; of a Writer the lines of Written. Beside it `cancel`, a line that asks for a long text and is ended by another thread. */
final class Typed {
    static String text(String word) {
        byte[] made = new byte[word.equals("-") ? 0 : word.length() / 2];
        for (int i = 0; i < made.length; i++) made[i] = (byte) Integer.parseInt(word.substring(2 * i, 2 * i + 2), 16);
        return new String(made, StandardCharsets.UTF_8);
    }

    static String hex(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (byte each : text.getBytes(StandardCharsets.UTF_8)) made.append(String.format("%02x", each));
        return made.append("\"").toString();
    }

    static <T> String list(List<T> items, Function<T, Object> show) {
        List<Object> made = new ArrayList<>();
        for (T item : items) made.add(show.apply(item));
        return made.toString();
    }

    private static String label(Label each) {
        return List.of(hex(each.name), each.score, each.id, each.chosen).toString();
    }

    private static Function<Span, Object> in(String source) {
        return each -> {
            if (!source.substring(each.start, each.end).equals(each.text)) throw new AssertionError("offsets of another text");
            return List.of(hex(each.text), hex(each.label), each.score, each.start, each.end).toString();
        };
    }

    private static List<Object> answer(Runner runner, String[] texts, boolean words) {
        if (runner instanceof Classifier) {
            Classifier.Answer found = ((Classifier) runner).answer(texts[0]);
            for (Label each : found.chosen) if (!each.chosen) throw new AssertionError(each);
            return List.of(hex(found.label), found.score, list(found.labels, Typed::label), found.truncated);
        }
        if (runner instanceof Tagger) {
            Tagger tagger = (Tagger) runner;
            String source = String.join(" ", texts);
            Tagger.Answer found = words ? tagger.answer(Arrays.asList(texts)) : tagger.answer(source);
            return List.of(list(found.words, in(source)), list(found.entities, in(source)), false);
        }
        if (runner instanceof QuestionAnswerer) {
            QuestionAnswerer.Answer found = ((QuestionAnswerer) runner).answer(texts[0], texts[1]);
            if (!texts[1].substring(found.start, found.end).equals(found.text)) throw new AssertionError("offsets of another text");
            List<Object> best = List.of(hex(found.text), hex(""), found.score, found.start, found.end);
            return List.of(best, list(found.alternatives, in(texts[1])), found.truncated);
        }
        if (runner instanceof Embedder) {
            Embedder embedder = (Embedder) runner;
            Embedder.Answer found = texts.length > 1 ? embedder.prompted(texts[0], texts[1]) : embedder.answer(texts[0]);
            if (index != null) return nearest(found);
            return List.of(Arrays.toString(found.values), found.cosine(found), found.truncated);
        }
        if (runner instanceof Regressor) {
            Regressor.Answer found = ((Regressor) runner).answer(texts[0]);
            return List.of(found.value, found.truncated);
        }
        if (runner instanceof Chooser) {
            Chooser.Answer found = ((Chooser) runner).answer(texts[0], Arrays.asList(texts).subList(1, texts.length));
            if (!texts[1 + found.index].equals(found.text)) throw new AssertionError("another choice");
            return List.of(found.index, found.score, list(found.choices, Typed::label), found.truncated);
        }
        MaskFiller.Answer found = ((MaskFiller) runner).answer(texts[0]);
        return List.of(hex(found.text), list(found.tokens, mask -> list(mask, Typed::label)), found.truncated);
    }

    private static Index index; // of FILE.kbindex

    private static List<Object> nearest(Embedder.Answer vector) {
        List<Object> found = new ArrayList<>();
        for (Index.Hit hit : index.nearest(vector, 3)) found.add(List.of(hit.number, hit.score, hex(hit.id), hex(hit.text)));
        return found;
    }

    private static Runner open(String name, String path, Options options) throws IOException {
        switch (name) {
            case "Index":
                Embedder embedder = Embedder.open(path, options);
                index = Index.open(path + ".kbindex", embedder);
                try (Index bytes = Index.open(ByteBuffer.wrap(Files.readAllBytes(Path.of(path + ".kbindex"))), embedder)) {
                    if (bytes.size() != index.size()) throw new AssertionError("two sizes of one index");
                }
                return embedder;
            case "Classifier":
                return Classifier.open(path, options);
            case "Tagger":
                return Tagger.open(path, options);
            case "QuestionAnswerer":
                return QuestionAnswerer.open(path, options);
            case "Embedder":
                try (FileChannel file = FileChannel.open(Path.of(path))) { // as an app opens an asset
                    return Embedder.open(file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()), options);
                }
            case "Regressor":
                return Regressor.open(ByteBuffer.wrap(Files.readAllBytes(Path.of(path))), options);
            case "Chooser":
                return Chooser.open(path, options);
            default:
                return MaskFiller.open(path, options);
        }
    }

    private static Object cancelled(Runner runner) throws InterruptedException {
        boolean[] done = new boolean[1];
        Thread other =
                new Thread(
                        () -> {
                            for (boolean stop = false; !stop; ) {
                                runner.cancel();
                                synchronized (done) {
                                    stop = done[0];
                                }
                            }
                        });
        other.start();
        try {
            return runner.json("the film ".repeat(5000));
        } catch (CoreException error) {
            return "cancelled " + error.cancelled + ": " + error.getMessage();
        } finally {
            synchronized (done) {
                done[0] = true;
            }
            other.join();
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        Options options = new Options().library(arguments[2]).threads(2);
        if (arguments[0].equals("Writer")) {
            Written.follow(arguments[1], options, lines, out);
            return;
        }
        Runner closed = null;
        try (Runner runner = open(arguments[0], arguments[1], options)) {
            closed = runner;
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                String[] texts = new String[words.length - 1];
                for (int i = 0; i < texts.length; i++) texts[i] = text(words[i + 1]);
                out.print((words[0].equals("cancel") ? cancelled(runner) : answer(runner, texts, words[0].equals("1"))) + "\n");
            }
        } catch (CoreException error) {
            out.print("error " + error.getMessage() + "\n");
        }
        if (closed != null) {
            closed.cancel(); // does nothing
            closed.close();
            try {
                closed.json("x");
            } catch (IllegalStateException error) {
                out.flush();
                return;
            }
            throw new AssertionError("it answers though it is closed");
        }
        out.flush();
    }
}
