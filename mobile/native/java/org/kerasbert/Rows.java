package org.kerasbert;

/** The rows of one input, as a network reads them, and the answer of its outputs. They belong to one thread. */
public final class Rows implements AutoCloseable {
    private final Model model;
    private final int count;
    private long handle;

    Rows(Model model, long handle) {
        this.model = model;
        this.handle = handle;
        count = Core.count(handle);
    }

    /** Number of rows; more than one for a choice, and for a document that is read in windows. */
    public int size() {
        return count;
    }

    /** Token ids of a row, not padded. */
    public int[] ids(int number) {
        return row(number)[0];
    }

    /** Its segment ids. */
    public int[] segments(int number) {
        return row(number)[1];
    }

    /** Its place of a mask (fill-mask), else -1. */
    public int position(int number) {
        return row(number)[2][0];
    }

    /** Whether tokens of the texts are missing. */
    public boolean truncated(int number) {
        return row(number)[2][1] != 0;
    }

    private int[][] row(int number) {
        if (number < 0 || number >= count) throw new IndexOutOfBoundsException("row " + number + " of " + count);
        return Core.row(Core.open(handle), number);
    }

    /**
     * The answer as json: what `to_json` of the Python object gives.
     *
     * @param outputs of each row C numbers, or the row's length times C where tokens are answered (tags, span)
     */
    public String answer(float[]... outputs) {
        if (outputs.length != count) {
            throw new CoreException(outputs.length + " outputs of " + count + " rows, expected one each");
        }
        return Core.text(Core.answer(model.handle(), Core.open(handle), outputs));
    }

    @Override
    public void close() {
        Core.freeRows(handle);
        handle = 0;
    }
}
