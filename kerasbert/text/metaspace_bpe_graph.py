"""SentencePiece's BPE in the graph, ids and character offsets equal to `metaspace_bpe.MetaspacePairEncoding`.

A text is cut between two characters that stand side by side in no piece that merges make: nothing is merged across. What lies
between is merged as words are, each different one of the batch once.
"""

import itertools

import numpy as np
import tensorflow as tf

from kerasbert.text.bpe_graph import MergeGraph, byte_columns, utf8_widths
from kerasbert.text.graph import lookup
from kerasbert.text.metaspace_bpe import SPACE, MetaspacePairEncoding
from kerasbert.text.words_graph import decode

BITS = 21  # of a code point


class MetaspacePairGraph(MergeGraph):
    """A tokenizer of kind metaspace_bpe as TensorFlow operations; see `GraphTokenizer`."""

    form_is_text = True

    def __init__(self, tokenizer: MetaspacePairEncoding) -> None:
        super().__init__(tokenizer)
        known = {ord(piece): i for piece, i in tokenizer._known.items()}
        made = {left + right for left, right in tokenizer.merges}
        beside = {pair for piece in made for pair in itertools.pairwise(piece)}
        joined = np.array([(ord(a) << BITS) + ord(b) for a, b in beside] or [-1], np.int64)
        with tf.init_scope():
            self._characters = lookup(np.array([*known] or [-1], np.int64), [*known.values()] or [-1], -1)
            self._joined = lookup(joined, np.ones(len(joined), np.int32), 0)
            self._bytes = tf.constant(tokenizer._bytes, tf.int32)
            self._widths = tf.constant([tokenizer.width(i) for i in range(tokenizer.size)], tf.int64)

    @tf.autograph.experimental.do_not_convert
    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts without added tokens."""
        return self._ids(self.form(decode(strings))[0])

    @tf.autograph.experimental.do_not_convert
    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize` of texts without added tokens."""
        return self.tokenize_form(self.form(decode(strings))[0], first)

    def form(self, pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """The text with its blanks as pieces have them."""
        flat = pieces.flat_values
        places = tf.range(tf.size(flat, tf.int64)) - tf.gather(pieces.row_splits, pieces.value_rowids())
        return pieces.with_flat_values(tf.where(flat == 0x20, ord(SPACE), flat)), places, places + 1

    @tf.autograph.experimental.do_not_convert
    def tokenize_form(
        self, texts: tf.RaggedTensor, first: tf.Tensor | None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokens of code points [T, (n)]."""
        ids = self._ids(texts)
        # the pieces tile the batch's bytes: byte -> character of the row
        character = tf.repeat(tf.range(tf.size(texts.flat_values, tf.int64)), utf8_widths(texts.flat_values))
        begins = tf.gather(texts.row_splits, ids.value_rowids())
        ends = tf.cumsum(tf.gather(self._widths, ids.flat_values))
        starts = ends - tf.gather(self._widths, ids.flat_values)
        places = tf.gather(character, starts) - begins, tf.gather(character, ends - 1) + 1 - begins
        return ids, *(ids.with_flat_values(tf.cast(values, tf.int32)) for values in places)

    def symbols(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        codes = words.flat_values
        known = self._characters.lookup(tf.cast(codes, tf.int64))[:, None]
        columns = byte_columns(codes)
        whole = tf.concat([known, tf.fill([tf.size(codes), 3], -1)], 1)
        bytes_ = tf.where(columns >= 0, tf.gather(self._bytes, tf.maximum(columns, 0)), -1)
        flat = tf.where(known >= 0, whole, bytes_)
        rows = tf.repeat(words.value_rowids(), tf.reduce_sum(tf.cast(flat >= 0, tf.int64), 1))
        flat = tf.reshape(flat, [-1])
        return tf.boolean_mask(flat, flat >= 0), rows

    def _ids(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        flat, row = tf.cast(codes.flat_values, tf.int64), codes.value_rowids()
        pairs = tf.bitwise.left_shift(flat[:-1], tf.constant(BITS, tf.int64)) + flat[1:]
        apart = (row[1:] != row[:-1]) | (self._joined.lookup(pairs) == 0)
        begins = tf.concat([[True], apart], 0)[: tf.size(flat)]
        words = tf.RaggedTensor.from_row_starts(codes.flat_values, tf.where(begins)[:, 0], validate=False)
        return self._of_words(words, begins, codes.row_splits)
