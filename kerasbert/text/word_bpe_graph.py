"""BPE within words in the graph, ids and character offsets equal to `word_bpe.WordPairEncoding`.

WordPiece's normaliser, then each different word of the batch once: its characters as pieces, then their merges.
"""

import numpy as np
import tensorflow as tf

from kerasbert.text.added_graph import CODE
from kerasbert.text.bpe_graph import MergeGraph
from kerasbert.text.graph import lookup
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.wordpiece_graph import BREAK, BertWordsGraph


class WordPairGraph(BertWordsGraph, MergeGraph):
    """A tokenizer of kind word_bpe as TensorFlow operations; see `GraphTokenizer`.

    >>> tok = WordPairGraph(WordPairEncoding(["<pad>", "<unk>", "</s>", "a", "b</w>", "ab</w>"], [("a", "b</w>")]))
    >>> tok.encode(["Ab aab", ""]).to_list()
    [[5, 3, 5], []]
    """

    def __init__(self, tokenizer: WordPairEncoding) -> None:
        super().__init__(tokenizer)
        keys, ids = [-1], [0]  # twice the code point, one more at the end of a word
        for piece, i in tokenizer._known.items():
            character = piece.removesuffix(END)
            if len(character) == 1:
                keys.append(2 * ord(character) + piece.endswith(END))
                ids.append(i)
        widths = [tokenizer.width(piece) for piece in tokenizer.vocabulary]
        with tf.init_scope():
            self._characters = lookup(np.array(keys, np.int64), ids, tokenizer.unk_id)
            self._widths = tf.constant(widths, tf.int64)

    @tf.autograph.experimental.do_not_convert
    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts without added tokens."""
        return self.tokenize_plain(strings)[0]

    def text_of(self, parts: tf.RaggedTensor) -> tf.Tensor:
        """The spellings of tokens [B, (tokens)] -> strings [B]."""
        return tf.strings.regex_replace(tf.strings.reduce_join(parts, axis=1), r" \z", "")

    def symbols(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = words.value_rowids()
        last = tf.cast(rows != tf.concat([rows[1:], [-1]], 0)[: tf.size(rows)], tf.int64)
        return self._characters.lookup(2 * tf.cast(words.flat_values, tf.int64) + last), rows

    def _words(self, items: tf.Tensor, splits: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        alone = items & BREAK > 0
        kept = tf.where((items & CODE) != 0x20)[:, 0]  # blanks are no words
        row = tf.gather(tf.ragged.row_splits_to_segment_ids(splits), kept)
        alone = tf.gather(alone, kept)
        follows = tf.concat(
            [[False], (kept[1:] == kept[:-1] + 1) & (row[1:] == row[:-1]) & ~alone[1:] & ~alone[:-1]], 0
        )
        begins = tf.where(~follows[: tf.size(kept)])[:, 0]
        codes = self.readable(tf.RaggedTensor.from_row_starts(tf.gather(items, kept), begins, validate=False))
        ids, index = self._encode_words(tf.strings.unicode_encode(codes, "UTF-8"))
        ids = tf.gather(ids, index)
        # the pieces of all words tile the items that are kept
        ends = tf.cumsum(tf.gather(self._widths, ids.flat_values))
        first = tf.gather(kept, ends - tf.gather(self._widths, ids.flat_values))
        words_before = tf.searchsorted(tf.gather(kept, begins), splits, out_type=tf.int64)
        found = tf.RaggedTensor.from_row_splits(
            ids.flat_values, tf.gather(ids.row_splits, words_before), validate=False
        )
        return found, first, tf.gather(kept, ends - 1)
