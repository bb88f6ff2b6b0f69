package org.kerasbert;

/** A label, a choice, or a token for a mask. */
public final class Label {
    public final String name;
    public final double score;

    /** Of a token its id; else its place. */
    public final int id;

    /** Whether it is the answer: the best, or of several labels one above its threshold. */
    public final boolean chosen;

    Label(String name, double score, int id, boolean chosen) {
        this.name = name;
        this.score = score;
        this.id = id;
        this.chosen = chosen;
    }

    @Override
    public String toString() {
        return name + " " + score;
    }
}
