"""Cross-entropy over a large vocabulary in pieces: no logits [B, S, V] are kept.

GPT-2 small has 1.6 GB of float32 logits for 8 x 1,024 tokens. What is asked for is a sum, whose gradient is the same up to one
factor whatever follows it: it is computed where the logits of a piece are there, which are then dropped. So nothing is
computed twice.
"""

from typing import Any

import tensorflow as tf
from keras import ops

from kerasbert.layers.backend import differentiated, fused
from kerasbert.objectives.base import correct, cross_entropy, label_sums

PIECE = 2**26  # logits at once, 256 MB
TILE = 128  # positions of a piece are a multiple of it


def lm_sums(
    x: Any, table: Any, labels: Any, weights: Any, piece: int = PIECE, smoothing: float = 0.0
) -> tuple[Any, Any]:
    """Sums over the predicted tokens: nats, and right answers.

    Args:
        x: [..., H], what is compared with the rows of the table.
        table: float32 [V, H].
        labels: int32 [...].
        weights: float32 [...], 0 where nothing is predicted.
        piece: int, most logits that are there at once.
        smoothing: float, the share of a label that all tokens have evenly (Szegedy et al., 2016, section 7).

    Returns:
        two float32 scalars; the first has a gradient, by x and table.
    """
    table = tf.convert_to_tensor(table)
    x, labels, weights = tf.reshape(x, [-1, table.shape[1]]), tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    early = differentiated(x) or differentiated(table)

    @tf.custom_gradient
    def call(x, table):
        nats, right, *gradients = _sums(x, table, labels, weights, piece, early, smoothing)

        def gradient(upstream, _):
            of_x, of_table = gradients or _sums(x, table, labels, weights, piece, True, smoothing)[2:]
            return of_x * tf.cast(upstream, of_x.dtype), of_table * upstream

        return (nats, right), gradient

    return call(x, table)


def _sums(
    x: Any, table: Any, labels: Any, weights: Any, piece: int, gradients: bool, smoothing: float
) -> tuple[Any, ...]:
    """Nats, right answers and, where asked for, the gradients of the nats by x and table."""
    size = max(TILE, piece // table.shape[0] // TILE * TILE)
    count = x.shape[0]
    if count is not None and count <= size:
        return _piece(x, table, labels, weights, gradients, smoothing)
    pieces = -(-(tf.shape(x)[0] if count is None else count) // size)
    filling = pieces * size - (tf.shape(x)[0] if count is None else count)
    x, labels, weights = (
        tf.reshape(tf.pad(a, [[0, filling], *[[0, 0]] * (len(a.shape) - 1)]), [pieces, size, *a.shape[1:]])
        for a in (x, labels, weights)
    )

    def body(i, of_x, *total):
        nats, right, *found = _piece(x[i], table, labels[i], weights[i], gradients, smoothing)
        of_x = of_x.write(i, found.pop(0)) if gradients else of_x
        return i + 1, of_x, *(a + b for a, b in zip(total, (nats, right, *found), strict=True))

    zeros = tf.zeros([]), tf.zeros([]), *([tf.zeros_like(table)] if gradients else [])
    array = tf.TensorArray(x.dtype, pieces, element_shape=x.shape[1:])
    _, of_x, nats, right, *of_table = tf.while_loop(
        lambda i, *_: i < pieces, body, (0, array, *zeros), parallel_iterations=1
    )
    if not gradients:
        return nats, right
    return nats, right, tf.reshape(of_x.stack(), [-1, x.shape[-1]])[: tf.size(labels) - filling], *of_table


def _piece(x: Any, table: Any, labels: Any, weights: Any, gradients: bool, smoothing: float) -> tuple[Any, ...]:
    """`_sums` of a piece that is small enough."""
    rows = tf.cast(table, x.dtype)
    logits = tf.cast(tf.matmul(x, rows, transpose_b=True), tf.float32)
    if not gradients:
        nats, right = label_sums(logits, labels, weights)
        return _smoothed(nats, logits, weights, smoothing), right
    nats, right, of_logits = _with_gradient(logits, labels, weights, smoothing=smoothing)
    of_logits = tf.cast(of_logits, x.dtype)
    of_table = tf.matmul(of_logits, x, transpose_a=True)
    return nats, right, tf.matmul(of_logits, rows), tf.cast(of_table, table.dtype)


@fused(constant=(0, 2))
def _with_gradient(logits: Any, labels: Any, weights: Any, *, smoothing: float) -> tuple[Any, Any, Any]:
    """[P, V], [P], [P] -> the sums of `label_sums`, and the gradient of the first by the logits."""
    nats, right = ops.sum(cross_entropy(logits, labels) * weights), ops.sum(correct(logits, labels) * weights)
    chosen = ops.cast(ops.equal(ops.arange(logits.shape[-1], dtype="int32"), ops.expand_dims(labels, -1)), "float32")
    nats = _smoothed(nats, logits, weights, smoothing)
    wanted = (1 - smoothing) * chosen + smoothing / logits.shape[-1] if smoothing else chosen
    return nats, right, (ops.softmax(logits, axis=-1) - wanted) * ops.expand_dims(weights, -1)


def _smoothed(nats: Any, logits: Any, weights: Any, smoothing: float) -> Any:
    """The nats of smoothed labels, of those of the labels."""
    if not smoothing:
        return nats
    even = ops.sum((ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)) * weights)
    return (1 - smoothing) * nats + smoothing * even
