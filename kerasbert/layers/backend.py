"""The few operations that keras.ops would compile badly; each has a plain `keras.ops` form with the same result."""

from typing import Any

import keras
from keras import ops

TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow as tf


def on_tpu() -> bool:
    """Whether the program being traced is for a TPU."""
    return TENSORFLOW and isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def gather(table: Any, ids: Any) -> Any:
    """Rows of a table: [V, E], int [...] -> [..., E].

    Plain tf.gather: `ops.take` adds the SELECT_V2 of its negative indices, which XNNPACK refuses.
    """
    if TENSORFLOW:
        return tf.gather(ops.convert_to_tensor(table), ids)
    return ops.take(table, ids, axis=0)


def pick(x: Any, positions: Any) -> Any:
    """Vectors at positions: [B, S, H], int [B, P] -> [B, P, H].

    On TPU a one-hot contraction (a gather's gradient is a scatter there), elsewhere a gather.
    """
    if on_tpu():
        return pick_by_contraction(x, positions)
    if TENSORFLOW:
        return tf.gather(x, positions, batch_dims=1)
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


def pick_by_contraction(x: Any, positions: Any) -> Any:
    """`pick` as a product with one-hot rows; exact, for each row has a single 1."""
    return ops.matmul(ops.one_hot(positions, x.shape[1], dtype=x.dtype), x)


def project(x: Any, kernel: Any) -> Any:
    """[..., H] x [H, D] -> [..., D] as one flat product.

    A batched product sums its kernel gradient over B afterwards: twice the time on CPU (bf16 einsum: 27 times).
    """
    if len(x.shape) == 2:
        return ops.matmul(x, kernel)
    shape = ops.shape(x)
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    return ops.reshape(flat, (*shape[:-1], kernel.shape[-1]))
