package org.kerasbert;

/** A part of a text: a word, an entity, an answer. */
public final class Span {
    /** `text.substring(start, end)` of the text that was asked about. */
    public final String text;

    /** Of tags; else empty. */
    public final String label;

    public final double score;
    public final int start;
    public final int end;

    Span(String source, String label, double score, int start, int end) {
        text = source.substring(start, end);
        this.label = label;
        this.score = score;
        this.start = start;
        this.end = end;
    }

    @Override
    public String toString() {
        return label.isEmpty() ? text : text + " " + label;
    }
}
