"""Cross-entropy over a large vocabulary in pieces: no logits [B, S, V] are kept.

GPT-2 small has 1.6 GB of float32 logits for 8 x 1,024 tokens. What is asked for is a sum, whose gradient is the same up to one
factor whatever follows it: it is computed where the logits of a piece are there, which are then dropped. So nothing is
computed twice.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import differentiated, fused
from kerasbert.layers.backend_fused import ByHand, column_sums, row_sums
from kerasbert.objectives.base import correct, cross_entropy, label_sums, log_gradient, log_sums

PIECE = 2**26  # logits at once, 256 MB
TILE = 128  # positions of a piece are a multiple of it


def lm_sums(
    x: Tensor, table: Tensor, labels: Tensor, weights: Tensor, piece: int = PIECE, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
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
    table, weights = tf.convert_to_tensor(table), tf.reshape(weights, [-1])
    x, labels = tf.reshape(x, [-1, table.shape[1]]), tf.reshape(labels, [-1])
    nats, hits = lm_hits(x, table, labels, weights, piece, smoothing)
    return nats, tf.reduce_sum(hits * weights)


def lm_hits(
    x: Tensor,
    table: Tensor,
    labels: Tensor,
    weights: Tensor,
    piece: int = PIECE,
    smoothing: float = 0.0,
    count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `lm_sums` of x [P, H], with the right answers place by place: (nats, float32 [P] of 0 or 1).

    Args:
        count: int32 scalar: places from this one on have weight 0, and whole pieces of them are not computed (their
            answers are 0); None for all.
    """
    early = differentiated(x) or differentiated(table)

    @tf.custom_gradient
    def call(x: Tensor, table: Tensor) -> tuple:
        nats, hits, *gradients = _sums(x, table, labels, weights, piece, early, smoothing, count)

        def gradient(upstream: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            of_x, of_table = gradients or _sums(x, table, labels, weights, piece, True, smoothing, count)[2:]
            return of_x * tf.cast(upstream, of_x.dtype), of_table * upstream

        return (nats, hits), gradient

    return call(x, tf.convert_to_tensor(table))


def biased_sums(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """As `lm_sums` of x @ table^T + bias, for a training step on a CPU: at most one piece of the logits is float32.

    The gradient by the logits is kept in the type of x, so that the table's is one product.

    Args:
        x: [..., E]. table: float32 [V, E]. bias: float32 [V]. labels: int32 [...]. weights: float32 [...].
    """
    x, labels, weights = tf.reshape(x, [-1, x.shape[-1]]), tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    count = x.shape[0] or 1
    pieces = max(n for n in range(1, 6) if count % n == 0) if count * table.shape[0] > PIECE // 8 else 1

    @tf.custom_gradient
    def call(x: Tensor, table: Tensor, bias: Tensor) -> tuple:
        rows = tf.cast(table, x.dtype)
        parts = zip(*(tf.split(a, pieces) for a in (x, labels, weights)), strict=True)
        found: list[tuple] = []
        for part, *rest in parts:  # one after the other: the logits of one are there
            with tf.control_dependencies([one[0] for one in found[-1:]]):
                products = tf.matmul(part, rows, transpose_b=True)
            found.append(_with_bias(products, bias, *rest))
        nats, right, of_logits, of_bias = zip(*found, strict=True)

        def gradient(upstream: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            whole = tf.concat(of_logits, 0)
            of_x, scaled = (tf.cast(tf.cast(a, "float32") * upstream, x.dtype) for a in (tf.matmul(whole, rows), x))
            of_table = tf.matmul(whole, scaled, transpose_a=True)
            return of_x, tf.cast(of_table, table.dtype), tf.add_n(of_bias) * upstream

        return (tf.add_n(nats), tf.add_n(right)), gradient

    return call(x, tf.convert_to_tensor(table), tf.convert_to_tensor(bias))


def cluster_sums(
    clusters: Sequence[tuple[Tensor, Tensor]], labels: Tensor, weights: Tensor, piece: int = PIECE
) -> tuple[Tensor, Tensor]:
    """As `lm_sums` of an adaptive softmax (Grave et al., 2017, section 3): the head of all places, of a tail those in it.

    All shapes are fixed: the places of a tail are brought to the front and the pieces behind them are left out. A token is
    right where its cluster is the head's best answer and the token the best one in its cluster.

    Args:
        clusters: of each (x [..., E], table [n, E]) as in `lm_sums`: the head, whose last rows stand for the tails, and the
            tails, whose tokens follow one another.
        labels: int32 [...], of the whole vocabulary.
        weights: float32 [...], 0 where nothing is predicted.
        piece: int, most logits that are there at once.
    """
    (x, table), *tails = clusters
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    shortlist = table.shape[0] - len(tails)
    begins = shortlist + np.cumsum([0, *(rows.shape[0] for _, rows in tails)])[:-1].astype("int32")
    cluster = tf.reduce_sum(tf.cast(labels[:, None] >= begins[None], tf.int32), axis=1)  # 0: of the head itself
    of_head = tf.where(cluster == 0, labels, shortlist + cluster - 1)
    nats, hits = lm_hits(tf.reshape(x, [-1, table.shape[1]]), table, of_head, weights, piece)
    right = tf.reduce_sum(hits * tf.where(cluster == 0, weights, 0.0))
    for i, (x, table) in enumerate(tails):
        mine = tf.where(cluster == i + 1, weights, 0.0)
        count = tf.math.count_nonzero(mine, dtype=tf.int32)
        order = tf.argsort(tf.cast(tf.equal(mine, 0.0), tf.int32), stable=True)
        own, weight = (
            tf.gather(each, order) for each in (tf.clip_by_value(labels - begins[i], 0, table.shape[0] - 1), mine)
        )
        x = tf.gather(tf.reshape(x, [-1, table.shape[1]]), order)
        more, found = lm_hits(x, table, own, weight, piece, count=count)
        nats, right = nats + more, right + tf.reduce_sum(found * weight * tf.gather(hits, order))
    return nats, right


def writes(body: keras.Model) -> bool:
    """Whether a model itself says which token comes next, so that `token_sums` takes it."""
    return hasattr(body, "output_clusters") or hasattr(body, "output_rows")


def token_sums(
    body: keras.layers.Layer, x: Tensor, labels: Tensor, weights: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`lm_sums`, or `cluster_sums`, of what a model's `sequence` [B, T, H] says of the tokens that follow.

    Args:
        body: a model that writes: with `scaled` and `output_rows`, and with `output_clusters(x)` where its softmax is
            adaptive (None there: it has no clusters).

    Raises:
        InputError: labels are to be smoothed over clusters.
    """
    clusters = body.output_clusters(x) if hasattr(body, "output_clusters") else None
    if clusters is None:
        return lm_sums(body.scaled(x), body.output_rows, labels, weights, smoothing=smoothing)
    if smoothing:
        raise InputError(
            f"smoothing {smoothing} needs the probabilities of all tokens, which an adaptive softmax saves: set smoothing to 0"
        )
    return cluster_sums(clusters, labels, weights)


def logit_sums(logits: Tensor, labels: Tensor, weights: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """As `lm_sums`, of logits [..., V] that a head of its own gives."""
    nats, right = label_sums(logits, labels, weights)
    return _smoothed(nats, logits, weights, smoothing), right


def _sums(
    x: Tensor,
    table: Tensor,
    labels: Tensor,
    weights: Tensor,
    piece: int,
    gradients: bool,
    smoothing: float,
    most: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Nats, right answers by place and, where asked for, the gradients of the nats by x and table."""
    size = max(TILE, piece // table.shape[0] // TILE * TILE)
    count = x.shape[0]
    if count is not None and count <= size:
        return _piece(x, table, labels, weights, gradients, smoothing)
    count = tf.shape(x)[0] if count is None else count
    pieces = -(-count // size)
    filling = pieces * size - count
    done = pieces if most is None else tf.minimum(pieces, -(-most // size))
    x, labels, weights = (
        tf.reshape(tf.pad(a, [[0, filling], *[[0, 0]] * (len(a.shape) - 1)]), [pieces, size, *a.shape[1:]])
        for a in (x, labels, weights)
    )

    def body(i: Tensor, of_x: tf.TensorArray, hits: tf.TensorArray, *total: Tensor) -> tuple:
        nats, right, *found = _piece(x[i], table, labels[i], weights[i], gradients, smoothing)
        of_x = of_x.write(i, found.pop(0)) if gradients else of_x
        return i + 1, of_x, hits.write(i, right), *(a + b for a, b in zip(total, (nats, *found), strict=True))

    zeros = tf.zeros([]), *([tf.zeros_like(table)] if gradients else [])
    arrays = [
        tf.TensorArray(kind, pieces, element_shape=x.shape[1:-1] + width)
        for kind, width in ((x.dtype, x.shape[-1:]), (tf.float32, []))
    ]
    _, of_x, hits, nats, *of_table = tf.while_loop(
        lambda i, *_: i < done, body, (0, *arrays, *zeros), parallel_iterations=1
    )
    hits = tf.reshape(hits.stack(), [-1])[:count]
    if not gradients:
        return nats, hits
    return nats, hits, tf.reshape(of_x.stack(), [-1, x.shape[-1]])[:count], *of_table


def _piece(
    x: Tensor, table: Tensor, labels: Tensor, weights: Tensor, gradients: bool, smoothing: float
) -> tuple[Tensor, ...]:
    """`_sums` of a piece that is small enough."""
    rows = tf.cast(table, x.dtype)
    logits = tf.matmul(x, rows, transpose_b=True)
    if not gradients:
        nats, right = _nats(logits, labels, weights)
        return _smoothed(nats, logits, weights, smoothing), right
    nats, right, of_logits = _with_gradient(logits, labels, weights, smoothing=smoothing)
    of_table = tf.matmul(of_logits, x, transpose_a=True)
    return nats, right, tf.matmul(of_logits, rows), tf.cast(of_table, table.dtype)


@fused(constant=(0, 2))
def _nats(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """[P, V], [P], [P] -> the sum of nats, and 1.0 where an answer is right [P]."""
    return ops.sum(cross_entropy(logits, labels) * weights), correct(logits, labels)


def _compiled_with_gradient(
    logits: Tensor, labels: Tensor, weights: Tensor, *, smoothing: float
) -> tuple[tuple[Tensor, ...], tuple]:
    dtype, logits = logits.dtype, ops.cast(logits, "float32")
    total, of_label, right = log_sums(logits, labels)
    nats, weights = total - of_label, ops.expand_dims(weights, -1)
    if smoothing:
        nats = (1 - smoothing) * nats + smoothing * (total - row_sums(logits) / logits.shape[-1])
    of_logits = ops.cast(log_gradient(logits, labels, total, smoothing) * weights, dtype)
    return (ops.sum(nats * weights), ops.squeeze(right, -1), of_logits), ()


@fused(constant=(0, 2), by_hand=ByHand(_compiled_with_gradient))
def _with_gradient(
    logits: Tensor, labels: Tensor, weights: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """[P, V], [P], [P] -> as `_nats`, and the gradient of the nats by the logits, in their type."""
    dtype, logits = logits.dtype, ops.cast(logits, "float32")
    nats, right = ops.sum(cross_entropy(logits, labels) * weights), correct(logits, labels)
    of_logits = log_gradient(logits, labels, ops.logsumexp(logits, axis=-1, keepdims=True), smoothing)
    nats = _smoothed(nats, logits, weights, smoothing)
    return nats, right, ops.cast(of_logits * ops.expand_dims(weights, -1), dtype)


def _compiled_with_bias(
    products: Tensor, bias: Tensor, labels: Tensor, weights: Tensor
) -> tuple[tuple[Tensor, ...], tuple]:
    logits = ops.cast(products, "float32") + bias
    total, of_label, right = log_sums(logits, labels)
    weights = ops.expand_dims(weights, -1)
    of_logits = log_gradient(logits, labels, total) * weights
    sums = ops.sum((total - of_label) * weights), ops.sum(right * weights)
    return (*sums, ops.cast(of_logits, products.dtype), column_sums(of_logits)), ()


@fused(constant=(0, 1, 3), by_hand=ByHand(_compiled_with_bias))
def _with_bias(products: Tensor, bias: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
    """[P, V], [V], [P], [P] -> sums of nats and of right answers, the gradients of the nats by the products and the bias."""
    logits = ops.cast(products, "float32") + bias
    nats, right, of_logits = _with_gradient(logits, labels, weights, smoothing=0.0)
    return nats, ops.sum(right * weights), ops.cast(of_logits, products.dtype), ops.sum(of_logits, axis=0)


def _smoothed(nats: Tensor, logits: Tensor, weights: Tensor, smoothing: float) -> Tensor:
    """The nats of smoothed labels, of those of the labels."""
    if not smoothing:
        return nats
    logits = ops.cast(logits, "float32")
    even = ops.sum((ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)) * weights)
    return (1 - smoothing) * nats + smoothing * even
