import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.kerasbert.CoreException;
import org.kerasbert.Model;
import org.kerasbert.Rows;
import org.kerasbert.Tokenizer;

/** Follows a script (script.py) from stdin, a line at a time; the answers go to stdout as lines of json. */
final class Driver {
    private Tokenizer tokenizer;
    private Model model;
    private Rows rows;

    private static byte[] bytes(String word) {
        byte[] made = new byte[word.equals("-") ? 0 : word.length() / 2];
        for (int i = 0; i < made.length; i++) made[i] = (byte) Integer.parseInt(word.substring(2 * i, 2 * i + 2), 16);
        return made;
    }

    private static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }

    private static boolean valid(byte[] utf8) {
        try {
            StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8));
            return true;
        } catch (CharacterCodingException error) {
            return false;
        }
    }

    private static String json(int[][] found, int[] encoded) {
        return "[" + Arrays.toString(found[0]) + "," + Arrays.toString(found[1]) + "," + Arrays.toString(found[2]) + ","
                + Arrays.toString(encoded) + "]";
    }

    private String input(String[] words) {
        String[] texts = new String[words.length - 2];
        for (int i = 0; i < texts.length; i++) texts[i] = text(words[i + 2]);
        if (rows != null) rows.close();
        rows = words[1].equals("1") ? model.rowsOfWords(texts) : model.rows(texts);
        StringBuilder made = new StringBuilder("[");
        for (int i = 0; i < rows.size(); i++) {
            made.append(i > 0 ? ",[" : "[").append(Arrays.toString(rows.ids(i))).append(",");
            made.append(Arrays.toString(rows.segments(i))).append(",").append(rows.position(i)).append(",");
            made.append(rows.truncated(i)).append("]");
        }
        return made.append("]").toString();
    }

    private String answer(String[] words) {
        float[][] outputs = new float[words.length - 1][];
        for (int i = 0; i < outputs.length; i++) {
            byte[] data = bytes(words[i + 1]);
            outputs[i] = new float[data.length / 4];
            ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(outputs[i]);
        }
        return rows.answer(outputs);
    }

    private String follow(String[] words) {
        switch (words[0]) {
            case "tokenizer":
                Map<String, byte[]> files = new HashMap<>();
                for (int i = 1; i < words.length; i += 2) files.put(text(words[i]), bytes(words[i + 1]));
                if (tokenizer != null) tokenizer.close();
                tokenizer = new Tokenizer(files);
                return null;
            case "text":
                byte[] utf8 = bytes(words[1]);
                if (!valid(utf8)) return json(tokenizer.tokenize(utf8), tokenizer.encode(utf8));
                return json(tokenizer.tokenize(text(words[1])), tokenizer.encode(text(words[1])));
            case "units":
                char[] characters = new char[words[1].length() / 4]; // a decoder would replace the lone ones
                for (int i = 0; i < characters.length; i++) {
                    characters[i] = (char) Integer.parseInt(words[1].substring(4 * i, 4 * i + 4), 16);
                }
                String units = new String(characters);
                return json(tokenizer.tokenize(units), tokenizer.encode(units));
            case "pack":
                byte[] first = bytes(words[2]);
                byte[] second = words.length > 3 ? bytes(words[3]) : null;
                int length = Integer.parseInt(words[1]);
                int[][] packed =
                        valid(first) && (second == null || valid(second))
                                ? tokenizer.pack(text(words[2]), second == null ? null : text(words[3]), length)
                                : tokenizer.pack(first, second, length); // Java's decoder has rules of its own for what is invalid
                return "[" + Arrays.toString(packed[0]) + "," + Arrays.toString(packed[1]) + "," + (packed[2][0] != 0) + "]";
            case "model":
                if (rows != null) rows.close();
                if (model != null) model.close();
                rows = null;
                model = null;
                model = new Model(ByteBuffer.wrap(bytes(words[1])));
                return "[\"" + model.kind + "\"," + model.longest + "]";
            case "input":
                return input(words);
            case "answer":
                return answer(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws IOException {
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = driver.follow(line.split(" "));
            } catch (CoreException error) {
                answer = "error " + error.getMessage();
            }
            if (answer != null) out.print(answer + "\n");
        }
        out.flush();
    }
}
