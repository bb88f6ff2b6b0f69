"""`regex.RegexWords` in the graph: one gather per code point, then the words by a table."""

import string

import numpy as np
import tensorflow as tf

from kerasbert.text.whole_words_graph import WholeWordsGraph
from kerasbert.text.words_graph import decode

LETTERS = np.zeros(129, bool)  # the last stands for what is beyond ASCII
LETTERS[[ord(character) for character in f"{string.ascii_letters}{string.digits}_'"]] = True


class RegexGraph(WholeWordsGraph):
    """A tokenizer of kind regex as TensorFlow operations; see `GraphTokenizer`.

    >>> from kerasbert.text.regex import RegexWords
    >>> tokenizer = RegexGraph(RegexWords(["<PAD>", "<START>", "<UNKNOWN>", "a", "b'c"]))
    >>> tokenizer.encode(["a-b'c A", "éa", ""]).to_list()
    [[3, 4, 2], [3], []]
    """

    @tf.autograph.experimental.do_not_convert
    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Ids and character offsets of texts [B], ragged int32."""
        codes = decode(strings)
        flat, splits = codes.flat_values, codes.row_splits
        inside = tf.gather(tf.constant(LETTERS), tf.minimum(flat, 128))
        row = codes.value_rowids()
        beside = row[1:] == row[:-1]
        joined = beside & inside[1:] & inside[:-1]  # each with the one before it
        size = tf.size(flat)
        begins = inside & ~tf.concat([[False], joined], 0)[:size]
        ends = inside & ~tf.concat([joined, [False]], 0)[:size]
        start, end = tf.where(begins)[:, 0], tf.where(ends)[:, 0] + 1
        places = tf.ragged.range(start, end)
        words = tf.strings.unicode_encode(places.with_values(tf.gather(flat, places.flat_values)), "UTF-8")
        origin = tf.gather(splits, tf.gather(row, start))
        rows = tf.searchsorted(start, splits)
        parts = self._words.lookup(words), tf.cast(start - origin, tf.int32), tf.cast(end - origin, tf.int32)
        ids, starts, stops = (
            tf.RaggedTensor.from_row_splits(part, tf.cast(rows, tf.int64), validate=False) for part in parts
        )
        return ids, starts, stops
