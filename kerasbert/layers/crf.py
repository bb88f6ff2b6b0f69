"""Scores between the labels of neighbours: a linear-chain conditional random field."""

from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import fused


class CRF(keras.layers.Layer):
    """Negative log-likelihood of label sequences (Lafferty et al., 2001; Lample et al., 2016, section 2.2).

    p(y) is proportional to exp(start[y_1] + sum of emissions[t, y_t] + sum of transitions[y_t-1, y_t] + end[y_n]). Tokens of
    weight 0 take no part: the labels before and after them are neighbours. All three weights start at 0, where labels are
    independent of each other. Differs: Lample et al. hold start and end as two more labels of the table.

    Args:
        labels: int L.
    Call: emissions [B, S, L], labels int [B, S], weights [B, S] -> nats [B] float32, 0 for a row without weight.
        Trainable weights: `transitions` [L, L] (from, to), `start` and `end` [L].
    """

    of_labels = True  # it reads no vectors: a student takes its teacher's as it is

    def __init__(self, labels: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.labels = labels

    def build(self, shape: Shape | None = None) -> None:
        self.transitions = self.add_weight(shape=(self.labels, self.labels), initializer="zeros", name="transitions")
        self.start = self.add_weight(shape=(self.labels,), initializer="zeros", name="start")
        self.end = self.add_weight(shape=(self.labels,), initializer="zeros", name="end")

    def call(self, emissions: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        transitions, start, end = (ops.convert_to_tensor(each) for each in (self.transitions, self.start, self.end))
        return nats(ops.cast(emissions, "float32"), transitions, start, end, labels, ops.cast(weights, "float32"))


@fused(constant=(5,))
def nats(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """As `CRF`'s call, of its weights.

    The forward recursion (Lafferty et al., section 4) over the tokens, of all paths' scores less that of the right path: the
    numbers stay small, and nothing large is subtracted at the end. The carry holds them and the last right label, [B, 2L].
    """
    count, length = transitions.shape[0], emissions.shape[1]
    scored = weights > 0
    first = ops.logical_and(scored, ops.equal(ops.cumsum(ops.cast(scored, "int32"), axis=1), 1))
    right = ops.one_hot(labels, count, dtype="float32")
    emissions, right, scored, first = (
        ops.swapaxes(each, 0, 1) for each in (emissions, right, scored[:, :, None], first[:, :, None])
    )

    def step(t: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        paths, last = carry[:, :count], carry[:, count:]
        before = ops.where(first[t], start, ops.logsumexp(paths[:, :, None] + transitions, axis=1))
        own = ops.where(first[t], start, ops.matmul(last, transitions))
        path = ops.sum((own + emissions[t]) * right[t], axis=-1, keepdims=True)
        new = ops.concatenate([before + emissions[t] - path, right[t]], axis=-1)
        return t + 1, ops.where(scored[t], new, carry)

    # not `ops.scan`: without a largest number of steps XLA has no gradient of a loop (Keras 3.15 on TensorFlow)
    begin = ops.zeros_like(ops.concatenate([emissions[0], right[0]], axis=-1))
    _, carry = ops.while_loop(lambda t, _: t < length, step, (ops.zeros((), "int32"), begin), maximum_iterations=length)
    paths, last = carry[:, :count], carry[:, count:]
    ends = ops.logsumexp(paths + end, axis=-1) - ops.sum(last * end, axis=-1)
    return ops.where(ops.any(scored, axis=(0, 2)), ends, 0.0)
