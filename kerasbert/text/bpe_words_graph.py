"""`bpe_words` in the graph: where words begin, by comparisons of neighbours in place of an expression."""

import numpy as np
import tensorflow as tf

from kerasbert.text.normalize import TABLES

OTHER, LETTER, NUMBER, SPACE = range(4)
LIMIT = 0x110000
QUOTE, BLANK, LONG_S = 0x27, 0x20, 0x17F  # the last is an s where case does not count


def class_table() -> tuple[np.ndarray, np.ndarray]:
    """Code point -> class, in two levels: blocks [LIMIT / 256] int32 (where a block begins), entries [n] int32."""
    table = np.full(LIMIT, OTHER, np.int32)
    for number, bounds in ((LETTER, TABLES.letters), (NUMBER, TABLES.numbers), (SPACE, TABLES.blanks)):
        for first, end in zip(bounds[::2], bounds[1::2]):
            table[first:end] = number
    entries, blocks = np.unique(table.reshape(-1, 256), axis=0, return_inverse=True)
    return blocks.reshape(-1).astype(np.int32) * 256, entries.reshape(-1)


def word_starts(digits: int, codes: tf.Tensor, kinds: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Whether [n] a word begins at each code point.

    Args:
        digits: int, of `bpe_words.Split`.
        codes, kinds: [n] int32, code points and their classes. splits: where rows begin.
    """
    row = tf.cast(tf.ragged.row_splits_to_segment_ids(splits), tf.int32)
    near = _Near(codes, kinds, row)
    begins = near.gpt2() if digits == 0 else near.tiktoken(digits)
    # 's 't 're 've 'm 'll 'd: only where the apostrophe begins a word
    quote = (codes == QUOTE) & begins
    one, two = (tf.where(near.at(row, by, -1) == row, near.at(codes, by, 0), 0) for by in (1, 2))
    if digits:  # of any case
        one, two = (tf.where((each >= 0x41) & (each <= 0x5A), each + 0x20, each) for each in (one, two))
        one = tf.where(one == LONG_S, ord("s"), one)
    short = quote & tf.reduce_any(one[:, None] == [ord(c) for c in "stmd"], 1)
    pair = one * 256 + two
    long = quote & tf.reduce_any(pair[:, None] == [ord(a) * 256 + ord(b) for a, b in ("re", "ve", "ll")], 1)
    inside = near.at(short | long, -1, False) | near.at(long, -2, False)
    ended = near.at(short, -2, False) | near.at(long, -3, False)
    return (begins & ~inside) | ended | near.new_row


class _Near:
    """Code points beside their neighbours."""

    def __init__(self, codes: tf.Tensor, kinds: tf.Tensor, row: tf.Tensor) -> None:
        self.codes, self.kinds, self.row = codes, kinds, row
        self.new_row = row != self.at(row, -1, -1)
        self.last = row != self.at(row, 1, -1)
        self.before = tf.where(self.new_row, -1, self.at(kinds, -1, -1))
        self.after = tf.where(self.last, -1, self.at(kinds, 1, -1))
        self.after_blank = (self.before == SPACE) & (self.at(codes, -1, 0) == BLANK)

    def at(self, values: tf.Tensor, by: int, fill: int) -> tf.Tensor:
        """values[i + by], `fill` outside."""
        ends, count = tf.fill([abs(by)], tf.constant(fill, values.dtype)), tf.size(values)
        return tf.concat([ends, values], 0)[:count] if by < 0 else tf.concat([values, ends], 0)[by:]

    def gpt2(self) -> tf.Tensor:
        """Where a run of one class begins; its last blank belongs to what follows."""
        return tf.where(
            self.kinds == SPACE,
            # a run of blanks gives its last one to the next word, if there is one
            (self.before != SPACE) | (~self.last & (self.after != SPACE)),
            (self.before != self.kinds) & ~self.after_blank,
        )

    def tiktoken(self, digits: int) -> tf.Tensor:
        """Letters take in one character before them, other characters the ends of lines behind them."""
        kinds, before = self.kinds, self.before
        line = (self.codes == 0x0A) | (self.codes == 0x0D)
        before_line = self.at(line, -1, False) & ~self.new_row
        space = kinds == SPACE
        place = tf.range(tf.size(kinds))
        others = (kinds == OTHER) & (before != OTHER) & ~self.after_blank
        takes = (space & ~line) | others
        letters = (kinds == LETTER) & (before != LETTER) & ~(self.at(takes, -1, False) & ~self.new_row)
        run = _runs((before != kinds) | self.new_row)
        numbers = (kinds == NUMBER) & ((place - _first(run, place)) % digits == 0)
        # ends of lines right behind other characters are theirs
        lines = _runs((line != before_line) | self.new_row)
        behind = tf.gather(before, _first(lines, place)) == OTHER
        theirs = line & behind
        blanks = space & (~line | ~behind) & ((before != SPACE) | (self.at(theirs, -1, False) & ~self.new_row))
        # a run of blanks up to its last end of a line is a word
        ends = tf.gather(tf.math.segment_max(tf.where(line & ~theirs, place, -1), run), run)
        rest = space & ~line & (before == SPACE) & (place == ends + 1)
        return letters | numbers | others | blanks | rest | (space & ~line & ~self.last & (self.after != SPACE))


def _runs(begins: tf.Tensor) -> tf.Tensor:
    """The number [n] of each element's run."""
    return tf.cumsum(tf.cast(begins, tf.int32)) - 1


def _first(run: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Where [n] each element's run begins."""
    return tf.gather(tf.math.segment_min(place, run), run)
