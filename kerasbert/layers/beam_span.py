"""The end of an answer given its start, for the likeliest starts: XLNet's and XLM's heads of questions."""

from typing import Any

import keras
from keras import ops

from kerasbert.answers.span import IMPOSSIBLE
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import pick
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.norms import LayerNorm


class BeamSpan(keras.layers.Layer):
    """p(start) and p(end | start), and whether there is an answer (Yang et al., 2019, the released code of run_squad).

    A start is a linear map of its token, x_i. An end is one of norm(tanh(x_j W + x_i U + b)), no answer one of tanh(x_null V +
    e T + c) where e is the vector of the start: the right one in training, else what is expected of all by p(start). As
    PoolerStartLogits, PoolerEndLogits and PoolerAnswerClass of transformers.

    A span's logit is log p(start) + log p(end | start). Differs: no answer is one where its logit is so much above the best
    span's; the released code compares its logit alone with a threshold.

    Args:
        starts: int K, of the likeliest ones whose ends are looked for.
        epsilon: float, of the norm.
        initializer: float, standard deviation.
    Call: x [B, S, H], allowed bool [B, S]: where an answer may begin and end, and the token of no answer, null bool [B, S]:
        that token; start int [B] or None, the right one. -> float32 [B, S, 2K]: logits as first and last token of each pair,
        one pair after the other, `IMPOSSIBLE` as a start of all others; at `null` the logit of no answer, and zeros. With
        `start` [B, S, 3]: logits of the start, of the end given that start, and that there is no answer.
    Trainable weights: 4*H*H + 7*H + 2.
    """

    def __init__(self, starts: int, epsilon: float = 1e-12, initializer: float = 0.02, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.starts, self.epsilon, self.initializer = starts, epsilon, initializer

    def build(self, shape: Shape) -> None:
        hidden = shape[-1]

        def linear(name: str, width: int, use_bias: bool = True) -> Linear:
            layer = Linear(width, self.initializer, use_bias, name=name, dtype=self.dtype_policy)
            layer.build(shape)
            return layer

        self.start = linear("start", 1)
        self.end_token, self.end_start = linear("end_token", hidden, False), linear("end_start", hidden)
        self.end_norm = LayerNorm(self.epsilon, name="end_norm", dtype=self.dtype_policy)
        self.end_norm.build(shape)
        self.end = linear("end", 1)
        self.none_start, self.none_token = linear("none_start", hidden, False), linear("none_token", hidden)
        self.none = linear("none", 1, False)

    def call(self, x: Tensor, allowed: Tensor, null: Tensor, start: Tensor = None) -> Tensor:
        begins = ops.where(allowed, ops.cast(self.start(x)[..., 0], "float32"), IMPOSSIBLE)
        if start is not None:
            state = pick(x, ops.expand_dims(start, 1))  # [B, 1, H]
            ends, none = self._ends(x, state, allowed)[..., 0], self._none(x, state, null)
            return ops.stack([begins, ends, ops.broadcast_to(none, ops.shape(begins))], axis=-1)
        log = ops.log_softmax(begins, axis=-1)
        chosen = self._likeliest(log)
        ends = ops.log_softmax(self._ends(x, ops.matmul(ops.cast(chosen, x.dtype), x), allowed), axis=1)
        none = self._none(x, ops.matmul(ops.expand_dims(ops.cast(ops.exp(log), x.dtype), 1), x), null)
        starts = ops.where(ops.transpose(chosen, (0, 2, 1)), ops.expand_dims(log, 2), IMPOSSIBLE)
        pairs = ops.concatenate(
            [ops.stack([starts[..., k], ends[..., k]], axis=-1) for k in range(self.starts)], axis=-1
        )
        of_none = ops.one_hot(0, 2 * self.starts, dtype="float32") * ops.expand_dims(none, 2)
        return ops.where(ops.expand_dims(null, 2), of_none, pairs)

    def _likeliest(self, log: Tensor) -> Tensor:
        """Which tokens are the K largest of a row, of equal ones the first: [B, S] -> bool [B, K, S].

        One after the other: of a row of any length a phone must know all sizes before it computes, and its TOPK_V2 says its own
        afterwards.
        """
        found = []
        for _ in range(self.starts):
            largest = ops.cast(ops.equal(log, ops.max(log, axis=1, keepdims=True)), "int32")
            found.append(ops.equal(ops.cumsum(largest, axis=1) * largest, 1))
            log = ops.where(found[-1], 2 * IMPOSSIBLE, log)
        return ops.stack(found, axis=1)

    def _ends(self, x: Tensor, states: Tensor, allowed: Tensor) -> Tensor:
        """Logits of last tokens given starts: states [B, K, H] -> float32 [B, S, K]."""
        inner = ops.expand_dims(self.end_token(x), 2) + ops.expand_dims(self.end_start(states), 1)
        logits = ops.cast(self.end(self.end_norm(ops.tanh(inner)))[..., 0], "float32")
        return ops.where(ops.expand_dims(allowed, 2), logits, IMPOSSIBLE)

    def _none(self, x: Tensor, state: Tensor, null: Tensor) -> Tensor:
        """The logit of no answer given a start's vector [B, 1, H]: float32 [B, 1]."""
        token = ops.matmul(ops.expand_dims(ops.cast(null, x.dtype), 1), x)
        return ops.cast(self.none(ops.tanh(self.none_start(state) + self.none_token(token)))[..., 0], "float32")
