"""The unigram tokenizer in the graph: tensorflow-text's SentencepieceTokenizer on the same model, offsets in characters."""

from typing import Any

import tensorflow as tf

from kerasbert.text.graph import GraphTokenizer, characters_before
from kerasbert.text.sentencepiece import write_model
from kerasbert.text.unigram import Unigram


class UnigramGraph(GraphTokenizer):
    """A unigram tokenizer as TensorFlow operations; see `GraphTokenizer`."""

    def __init__(self, tokenizer: Unigram):
        import tensorflow_text

        super().__init__(tokenizer)
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(write_model(tokenizer.model), out_type=tf.int32)

    @tf.autograph.experimental.do_not_convert
    def encode(self, strings: Any) -> tf.RaggedTensor:
        """Strings [B] -> ids [B, (tokens)] int32, without special tokens."""
        return self._sentencepiece.tokenize(_valid(strings))

    @tf.autograph.experimental.do_not_convert
    def tokenize(self, strings: Any) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Strings [B] -> ids, starts, ends [B, (tokens)] int32; offsets are characters of the original text."""
        strings = _valid(strings)
        ids, starts, ends = self._sentencepiece.tokenize_with_offsets(strings)
        codes, bytes_before = characters_before(strings)
        first = tf.gather(codes.row_splits, ids.value_rowids())

        def characters(row_bytes: tf.RaggedTensor) -> tf.RaggedTensor:
            at = tf.cast(row_bytes.flat_values, tf.int64) + tf.gather(bytes_before, first)
            return row_bytes.with_flat_values(
                tf.cast(tf.searchsorted(bytes_before, at, out_type=tf.int64) - first, tf.int32)
            )

        return ids, characters(starts), characters(ends)


def _valid(strings: Any) -> tf.Tensor:
    """What is invalid UTF-8 becomes U+FFFD: sentencepiece would give one for each byte."""
    strings = tf.convert_to_tensor(strings, tf.string)
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
