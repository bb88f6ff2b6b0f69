"""The unigram tokenizer in the graph: tensorflow-text's SentencepieceTokenizer on the same model, offsets in characters."""

from typing import Any

import tensorflow as tf

from kerasbert.text.graph import GraphTokenizer, characters_before
from kerasbert.text.sentencepiece import BYTE, NORMAL, UNKNOWN, Model, write_model
from kerasbert.text.unigram import Unigram

FIRST_BYTE = 2  # id of the piece of byte 0 in `_bytes_of`


class UnigramGraph(GraphTokenizer):
    """A unigram tokenizer as TensorFlow operations; see `GraphTokenizer`."""

    def __init__(self, tokenizer: Unigram) -> None:
        import tensorflow_text

        super().__init__(tokenizer)
        model = tokenizer.model
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(write_model(model), out_type=tf.int32)
        if self.normal is not None:
            # a model that knows bytes alone gives the normalised text, byte by byte
            # names of their own: in a SavedModel that is loaded, resources of one name are one
            self._charsmap = tensorflow_text.SentencepieceTokenizer(
                _bytes_of(model), out_type=tf.int32, name="charsmap"
            )
            plain = write_model(model._replace(charsmap=b""))
            self._plain = tensorflow_text.SentencepieceTokenizer(plain, out_type=tf.int32, name="plain")

    @tf.autograph.experimental.do_not_convert
    def text_of(self, parts: tf.RaggedTensor) -> tf.Tensor:
        return tf.strings.regex_replace(super().text_of(parts), r"\A ", "", replace_global=False)

    def encode_plain(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """`encode` of texts without added tokens."""
        return self._sentencepiece.tokenize(_valid(strings))

    @tf.autograph.experimental.do_not_convert
    def tokenize_plain(
        self, strings: tf.Tensor, first: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize` of texts without added tokens."""
        return _in_characters(self._sentencepiece, _valid(strings))

    def form(self, pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Code points [T, (characters)] -> those by the character map, and where each of them begins and ends."""
        ids, starts, _ = _in_characters(self._charsmap, tf.strings.unicode_encode(pieces, "UTF-8"))
        values = tf.gather(tf.constant([bytes([byte]) for byte in range(256)]), ids.flat_values - FIRST_BYTE)
        form = tf.strings.unicode_decode(
            tf.strings.reduce_join(ids.with_flat_values(values), axis=-1), "UTF-8", replacement_char=0xFFFD
        )
        widths = sum(tf.cast(form.flat_values >= bound, tf.int64) for bound in (0x0, 0x80, 0x800, 0x10000))
        begins = tf.cast(tf.gather(starts.flat_values, tf.cumsum(widths, exclusive=True)), tf.int64)
        # a character ends where the next one begins, the last one with its piece
        rows = form.value_rowids()
        last = tf.concat([rows[1:] != rows[:-1], [True]], 0)[: tf.size(rows)]
        ends = tf.where(last, tf.gather(pieces.row_lengths(), rows), tf.concat([begins[1:], [0]], 0)[: tf.size(rows)])
        return form, begins, ends

    def tokenize_form(
        self, texts: tf.RaggedTensor, first: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokens of code points [T, (n)] by the character map."""
        return _in_characters(self._plain, tf.strings.unicode_encode(texts, "UTF-8"))


def _bytes_of(model: Model) -> bytes:
    """A model with the same character map whose only pieces are bytes; nothing is trimmed."""
    pieces = ("<unk>", "\ufdd0\ufdd1", *(f"<0x{byte:02X}>" for byte in range(256)))
    types = (UNKNOWN, NORMAL, *[BYTE] * 256)
    return write_model(Model(pieces, (0.0,) * len(pieces), types, model.charsmap, False, False, False, True))


def _in_characters(sentencepiece: Any, strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Ids and offsets of valid strings, offsets in characters."""
    ids, starts, ends = sentencepiece.tokenize_with_offsets(strings)
    codes, bytes_before = characters_before(strings)
    first = tf.gather(codes.row_splits, ids.value_rowids())

    def characters(row_bytes: tf.RaggedTensor) -> tf.RaggedTensor:
        at = tf.cast(row_bytes.flat_values, tf.int64) + tf.gather(bytes_before, first)
        return row_bytes.with_flat_values(
            tf.cast(tf.searchsorted(bytes_before, at, out_type=tf.int64) - first, tf.int32)
        )

    return ids, characters(starts), characters(ends)


def _valid(strings: tf.Tensor) -> tf.Tensor:
    """What is invalid UTF-8 becomes U+FFFD: sentencepiece would give one for each byte."""
    strings = tf.convert_to_tensor(strings, tf.string)
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
