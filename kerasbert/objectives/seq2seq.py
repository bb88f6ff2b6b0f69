"""What the objectives of encoder-decoders share: rows put together of stretches, and what the decoder reads and says."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.objectives.causal import LanguageModeling


class TextToText(LanguageModeling):
    """An encoder reads a text, a decoder writes another: the loss is that of the written tokens.

    Attributes:
        start: what the decoder reads first, a part of the tokenizer ("pad" as T5's, "sep" as BART's).
    """

    start: str = "pad"
    targets = "tokens of the text"

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "decode"):
            raise InputError(
                f"{type(encoder).__name__} is no encoder-decoder, and this objective is for those: choose another (--objective)"
            )
        return super().heads(encoder)

    def decoded(self, written: Tensor, total: Tensor) -> dict[str, Tensor]:
        """What the decoder reads and what it is to say.

        Args:
            written: int32 [B, T], the rows that the decoder writes.
            total: int32 [B, 1], how many of their tokens count.

        Returns:
            decoder_token_ids int32 [B, T], labels int32 [B, T], weights float32 [B, T]. Nothing real sees the padding behind
            it: there is no mask.
        """
        first = tf.fill([tf.shape(written)[0], 1], getattr(self.tokenizer, f"{self.start}_id"))
        real = tf.range(written.shape[1])[None] < total
        return {
            "decoder_token_ids": tf.concat([first, written[:, :-1]], axis=1),
            "labels": written,
            "weights": tf.cast(real, tf.float32),
        }


def put_together(rows: Tensor, starts: Tensor, sizes: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Rows made of stretches of rows.

    Args:
        rows: [B, R]; the last column is what fills up.
        starts, sizes: int32 [B, M], in the order in which they are to stand.
        width: int, W; the sizes of a row are at most that in all.

    Returns:
        [B, W], and how many of each row's places the stretches take: int32 [B, 1].

    >>> rows = tf.constant([[5, 6, 7, 8, 0]])
    >>> put_together(rows, tf.constant([[2, 0]]), tf.constant([[2, 1]]), 4)[0].numpy().tolist()
    [[7, 8, 5, 0]]
    """
    count, size = tf.shape(rows)[0], rows.shape[1]
    taken = tf.reduce_sum(sizes, axis=1, keepdims=True)
    starts = tf.concat([starts, tf.fill([count, 1], size - 1)], axis=1)
    ends = starts + tf.concat([sizes, width - taken], axis=1)
    # ragged.range is one kernel; numbering by cumsum or repeat costs several times as much
    places = tf.ragged.range(tf.reshape(starts, [-1]), tf.reshape(ends, [-1])).flat_values
    places = tf.minimum(tf.reshape(places, [-1, width]), size - 1) + tf.range(count)[:, None] * size
    return tf.gather(tf.reshape(rows, [-1]), places), taken


def left_out(
    rows: Tensor, begins: Tensor, ends: Tensor, total: Tensor, symbols: Tensor, opens: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Rows in which a symbol stands in place of each span.

    Args:
        rows: [B, R], the symbols among its columns; the last column is what fills up.
        begins, ends: int32 [B, K], columns of the spans, ascending; they may be empty.
        total: int32 [B, 1], columns up to which a row goes.
        symbols: int32 [B, K], the column of each span's symbol.
        opens: int32 [B, K], 1 where the symbol stands, 0 where the span leaves nothing behind.
        width: int.

    Returns:
        as `put_together`.
    """
    before = tf.pad(ends[:, :-1], [[0, 0], [1, 0]])
    starts = tf.concat([beside(before, symbols), ends[:, -1:]], axis=1)
    sizes = tf.concat([beside(begins - before, opens), total - ends[:, -1:]], axis=1)
    return put_together(rows, starts, sizes, width)


def beside(*columns: Tensor) -> Tensor:
    """[B, M] each -> [B, M * n], the first of each, then the second of each."""
    return tf.reshape(tf.stack(columns, axis=2), [-1, len(columns) * columns[0].shape[1]])


def extended(token_ids: Tensor, *special: Sequence[int]) -> Tensor:
    """Rows [B, S] with the same tokens behind each."""
    more = tf.constant([token for group in special for token in group], tf.int32)
    return tf.concat([token_ids, tf.tile(more[None], [tf.shape(token_ids)[0], 1])], axis=1)
