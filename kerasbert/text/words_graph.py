"""`words.split_words` in the graph: one gather per code point, then comparisons of neighbours."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.text.normalize import TABLES
from kerasbert.text.words import BLANK, LETTER, MARK, OTHER

LIMIT = 0x110000


def class_table() -> tuple[np.ndarray, np.ndarray]:
    """Code point -> class, in two levels: blocks [LIMIT / 256] int32 (where a block begins), entries [n] uint8."""

    def member(bounds: list[int]) -> np.ndarray:
        steps = np.zeros(LIMIT + 1, np.int8)
        steps[bounds[::2]], steps[bounds[1::2]] = 1, -1
        return np.cumsum(steps[:LIMIT]) > 0

    blank, marks = member(TABLES.blanks), member(TABLES.marks)
    letter = (member(TABLES.letters) | member(TABLES.numbers) | marks) != member(TABLES.words)
    table = np.full(LIMIT, OTHER, np.uint8)
    table[letter & ~member(TABLES.cjk)] = LETTER
    table[marks | member(TABLES.drop)] = MARK
    table[blank] = BLANK
    entries, blocks = np.unique(table.reshape(-1, 256), axis=0, return_inverse=True)
    return blocks.reshape(-1).astype(np.int32) * 256, entries.reshape(-1)


class Words(NamedTuple):
    """The words of some texts: strings, starts and ends, ragged [B, (W)]; offsets are int32 characters."""

    strings: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def split_words(codes: tf.RaggedTensor) -> Words:
    """The words of texts.

    Args:
        codes: code points [B, (characters)] int32, as `unicode_decode` gives them.
    """
    blocks, entries = (tf.constant(each) for each in class_table())
    flat, splits = codes.flat_values, codes.row_splits
    classes = tf.gather(entries, tf.gather(blocks, tf.bitwise.right_shift(flat, 8)) + (flat & 255))
    size = tf.size(flat, tf.int64)
    places = tf.range(size)
    row_first = tf.gather(splits, codes.value_rowids())
    blank, letter = (tf.constant(each, tf.uint8) for each in (BLANK, LETTER))
    before = tf.concat([[blank], classes], 0)[:size]
    # after marks it is what they stay with; marks that begin a word count as letters
    bases = tf.concat([[tf.constant(-1, tf.int64)], tf.where(classes != MARK)[:, 0]], 0)
    base = tf.gather(bases, tf.searchsorted(bases, places) - 1)
    held = tf.where(base >= row_first, tf.gather(classes, tf.maximum(base, 0)), blank)
    before = tf.where(before == MARK, tf.where(held == BLANK, letter, held), before)
    before = tf.where(places == row_first, blank, before)
    inside = classes != BLANK
    begins = inside & ((before == BLANK) | (classes == OTHER) | ((classes == LETTER) & (before == OTHER)))
    word = tf.cumsum(tf.cast(begins, tf.int64)) - 1  # number of the last word that has begun
    first = tf.where(begins)[:, 0]
    lengths = tf.math.unsorted_segment_sum(
        tf.cast(inside, tf.int64), tf.where(inside, word, tf.constant(-1, tf.int64)), tf.size(first, tf.int64)
    )
    letters = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(flat, inside), lengths, validate=False)
    strings = tf.strings.unicode_encode(letters, "UTF-8")
    word_splits = tf.searchsorted(first, splits, out_type=tf.int64)
    starts = tf.cast(first - tf.gather(row_first, first), tf.int32)
    ragged = [
        tf.RaggedTensor.from_row_splits(values, word_splits, validate=False)
        for values in (strings, starts, starts + tf.cast(lengths, tf.int32))
    ]
    return Words(*ragged)


def decode(strings: Tensor) -> tf.RaggedTensor:
    """Strings [B] of UTF-8 -> code points [B, (characters)]; what is invalid is U+FFFD."""
    return tf.strings.unicode_decode(
        tf.convert_to_tensor(strings, tf.string), "UTF-8", errors="replace", replacement_char=0xFFFD
    )


def cut(codes: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Parts of texts' characters as strings [N]: `tf.strings.substr` would return invalid bytes as they are.

    Args:
        codes: code points [B, (characters)]. starts, ends: [N], among the characters of all texts.
    """
    places = tf.ragged.range(starts, ends)
    return tf.strings.unicode_encode(places.with_values(tf.gather(codes.flat_values, places.flat_values)), "UTF-8")
