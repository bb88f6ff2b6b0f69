package org.kerasbert;

import java.util.LinkedHashMap;
import java.util.Map;

/** How a text is generated: the options of Python's `kb.predict`, over those of the file. What is not set is the file's. */
public final class Settings {
    private final Map<String, String> values = new LinkedHashMap<>(); // as json

    /** Tokens that are generated at most; 0 for the file's target_length, of which there are never more. */
    public Settings maxTokens(int count) {
        return put("max_tokens", count);
    }

    /** Tokens before which no text ends. */
    public Settings minNewTokens(int count) {
        return put("min_new_tokens", count);
    }

    /** Beams of a beam search, 1 to 256; not together with drawn tokens. */
    public Settings beams(int count) {
        return put("beams", count);
    }

    /** Texts of an answer: the best of the beams, or as many that are drawn. */
    public Settings numReturnSequences(int count) {
        return put("num_return_sequences", count);
    }

    /** Draws tokens, of logits that are divided by it. */
    public Settings temperature(double value) {
        return put("temperature", value);
    }

    /** Draws one of so many tokens. */
    public Settings topK(int count) {
        return put("top_k", count);
    }

    /** Draws one of the fewest tokens that have this probability together. */
    public Settings topP(double probability) {
        return put("top_p", probability);
    }

    /** Of drawn tokens: the same seed gives the same text, in Python too. */
    public Settings seed(int value) {
        return put("seed", value);
    }

    /** What the length of a beam's text is raised to before its score is divided by it. */
    public Settings lengthPenalty(double value) {
        return put("length_penalty", value);
    }

    /** What the logits of tokens that stand there already are divided by. */
    public Settings repetitionPenalty(double value) {
        return put("repetition_penalty", value);
    }

    /** No so many tokens in a row occur twice. */
    public Settings noRepeatNgramSize(int count) {
        return put("no_repeat_ngram_size", count);
    }

    /** When beams end: "true", "false" or "never". */
    public Settings earlyStopping(String when) {
        boolean word = when.equals("true") || when.equals("false");
        return put("early_stopping", (Object) (word ? when : quoted(when)));
    }

    /** The first token. */
    public Settings forcedBosTokenId(int id) {
        return put("forced_bos_token_id", id);
    }

    /** The last token, where the text has as many as it may. */
    public Settings forcedEosTokenId(int id) {
        return put("forced_eos_token_id", id);
    }

    /** Tokens that do not occur. */
    public Settings suppressTokens(int... ids) {
        return put("suppress_tokens", (Object) list(ids));
    }

    /** Tokens that are not the first. */
    public Settings beginSuppressTokens(int... ids) {
        return put("begin_suppress_tokens", (Object) list(ids));
    }

    /** Words, as the ids of their tokens, that do not occur. */
    public Settings badWordsIds(int[]... words) {
        StringBuilder made = new StringBuilder();
        for (int[] word : words) made.append(made.length() == 0 ? "" : ", ").append(list(word));
        return put("bad_words_ids", (Object) ("[" + made + "]"));
    }

    /** In front of the text. */
    public Settings prefix(String text) {
        return put("prefix", (Object) quoted(text));
    }

    /** Between the text and what is generated; empty where it is gone on from. */
    public Settings separator(String text) {
        return put("separator", (Object) quoted(text));
    }

    private Settings put(String name, Object json) {
        values.put(quoted(name), json.toString());
        return this;
    }

    private Settings put(String name, double value) { // what is no number is refused as a text
        boolean finite = !Double.isNaN(value) && !Double.isInfinite(value);
        return put(name, (Object) (finite ? Double.toString(value) : quoted(Double.toString(value))));
    }

    private Settings put(String name, int value) {
        return put(name, (Object) value);
    }

    private static String list(int[] ids) {
        return java.util.Arrays.toString(ids);
    }

    private static String quoted(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each < ' ' || each == '"' || each == '\\') made.append(String.format("\\u%04x", (int) each));
            else made.append(each);
        }
        return made.append('"').toString();
    }

    /** As the core reads them. */
    String json() {
        StringBuilder made = new StringBuilder();
        values.forEach((name, value) -> made.append(made.length() == 0 ? "" : ", ").append(name).append(": ").append(value));
        return "{" + made + "}";
    }
}
