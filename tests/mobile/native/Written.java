import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.kerasbert.CoreException;
import org.kerasbert.Options;
import org.kerasbert.Settings;
import org.kerasbert.Writer;

/** The lines of a Writer, as typed.cpp has them; beside them "close" and "again": what a listener may not do. */
final class Written {
    private static int[] ids(String value) {
        return Arrays.stream(value.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static Settings set(Settings settings, String name, String value) {
        switch (name) {
            case "max_tokens":
                return settings.maxTokens(Integer.parseInt(value));
            case "min_new_tokens":
                return settings.minNewTokens(Integer.parseInt(value));
            case "beams":
                return settings.beams(Integer.parseInt(value));
            case "num_return_sequences":
                return settings.numReturnSequences(Integer.parseInt(value));
            case "top_k":
                return settings.topK(Integer.parseInt(value));
            case "seed":
                return settings.seed(Integer.parseInt(value));
            case "no_repeat_ngram_size":
                return settings.noRepeatNgramSize(Integer.parseInt(value));
            case "forced_bos_token_id":
                return settings.forcedBosTokenId(Integer.parseInt(value));
            case "forced_eos_token_id":
                return settings.forcedEosTokenId(Integer.parseInt(value));
            case "temperature":
                return settings.temperature(number(value));
            case "top_p":
                return settings.topP(number(value));
            case "repetition_penalty":
                return settings.repetitionPenalty(number(value));
            case "length_penalty":
                return settings.lengthPenalty(number(value));
            case "suppress_tokens":
                return settings.suppressTokens(ids(value));
            case "begin_suppress_tokens":
                return settings.beginSuppressTokens(ids(value));
            case "bad_words_ids":
                return settings.badWordsIds(Arrays.stream(value.split(";")).map(Written::ids).toArray(int[][]::new));
            case "early_stopping":
                return settings.earlyStopping(value);
            case "prefix":
                return settings.prefix(Typed.text(value));
            case "separator":
                return settings.separator(Typed.text(value));
            default:
                throw new AssertionError(name);
        }
    }

    private static double number(String value) {
        return value.equals("nan") ? Double.NaN : value.equals("inf") ? Double.POSITIVE_INFINITY : Double.parseDouble(value);
    }

    private static boolean heard(Writer writer, String listens, int count) {
        if (count == 2 && listens.equals("cancel")) writer.cancel();
        if (count == 2 && listens.equals("throw")) throw new IllegalArgumentException("of the listener");
        if (count == 2 && listens.equals("close")) writer.close();
        if (count == 2 && listens.equals("again")) writer.generate("x");
        return !listens.equals(Integer.toString(count));
    }

    private static String written(Writer writer, String listens, String text, Settings settings) {
        List<String> pieces = new ArrayList<>();
        try {
            if (listens.equals("score")) {
                Writer.Score found = writer.score(text);
                String names = Typed.list(found.tokens, each -> Typed.hex(each.name));
                String scores = Typed.list(found.tokens, each -> each.score);
                return List.of(names, scores, found.score, found.perplexity, found.truncated).toString();
            }
            Writer.Answer answer =
                    listens.equals("-")
                            ? writer.generate(text, settings)
                            : writer.generate(
                                    text,
                                    settings,
                                    piece -> {
                                        pieces.add(piece);
                                        return heard(writer, listens, pieces.size());
                                    });
            String sequences = Typed.list(answer.sequences, each -> List.of(Typed.hex(each.text), each.score).toString());
            String all = Typed.list(pieces, Typed::hex);
            return List.of(Typed.hex(answer.text), answer.score, sequences, all, answer.truncated).toString();
        } catch (CoreException error) {
            int status = error.cancelled ? 5 : error.unsupported ? 3 : 4;
            return "error " + status + " " + pieces.size() + " " + error.getMessage();
        } catch (IllegalArgumentException | IllegalStateException error) {
            return "thrown " + pieces.size() + " " + error.getMessage();
        }
    }

    /** A text that another thread cancels, which may come too late for a short one. */
    private static String cancelled(Writer writer, String text, Settings settings) throws InterruptedException {
        Thread other =
                new Thread(
                        () -> {
                            while (!Thread.interrupted()) writer.cancel();
                        });
        other.start();
        String said = "";
        for (int i = 0; i < 200 && !said.startsWith("error"); i++) said = written(writer, "0", text, settings);
        other.interrupt();
        other.join();
        return said;
    }

    static void follow(String path, Options options, BufferedReader lines, PrintStream out) throws IOException {
        try (Writer writer = Writer.open(path, options)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                Settings settings = new Settings();
                for (int i = 2; i < words.length; i += 2) set(settings, words[i], words[i + 1]);
                boolean other = words[0].equals("other");
                String text = Typed.text(words[1]);
                out.print((other ? cancelled(writer, text, settings) : written(writer, words[0], text, settings)) + "\n");
            }
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        } catch (CoreException error) {
            out.print("error " + error.getMessage() + "\n");
        }
        out.flush();
    }
}
