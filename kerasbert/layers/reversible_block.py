"""One layer of the Reformer, and its untied head (Kitaev et al., 2020, section 3)."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import project
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.feedforward import ACTIVATIONS, FeedForward
from kerasbert.layers.initial import Normal
from kerasbert.layers.lsh import LocalAttention, LSHAttention, Visible
from kerasbert.layers.reversible import Half, in_pieces

if TYPE_CHECKING:
    from kerasbert.models.reformer import ReformerSpec


class ReformerFeedForward(FeedForward):
    """Position-wise feed-forward network with dropout in front of the activation: [B, S, H] -> [B, S, H]."""

    def call(self, x: Tensor, training: bool = False, first: int = 0) -> Tensor:
        y = self.dropout(self.inner(x), training=training, first=first)
        return self.outer(ACTIVATIONS[self.activation](y))


@dataclasses.dataclass(frozen=True)
class Told(Context):
    """What the blocks are told: who may look at whom as far as chunks do not decide, and whether probabilities are asked for."""

    visible: Visible | None = None
    attention: bool = False


class ReformerBlock(Block):
    """One layer: y1 = x1 + attention(norm(x2)), y2 = x2 + feedforward(norm(y1)) (equation 9).

    Args:
        spec: ReformerSpec.
    Call: x [B, S, 2 H], x1 and x2 side by side -> (y [B, Q, 2 H], probabilities or None). The streams are float32.
    """

    def __init__(self, *, spec: "ReformerSpec", **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.spec = spec

    def build(self, shape: Shape) -> None:
        super().build((*shape[:-1], shape[-1] // 2))

    def attention_class(
        self, heads: int, head_size: int, dropout: float, *initializers: float, **kwargs: Any
    ) -> Callable:
        """Of the layer's kind."""
        kind, lsh = self.spec.layer_kinds[self.layer], self.spec.lsh
        kwargs |= {"use_bias": False, "chunks": self.spec.chunks(kind)}
        if kind == "local":
            return LocalAttention(heads, head_size, dropout, *initializers, **kwargs)
        own = {"rounds": lsh.rounds, "across": lsh.across, "seed": lsh.seed, "layer": self.layer}
        sizes = heads, head_size, self.spec.lsh_dropout
        return LSHAttention(*sizes, *initializers, buckets=self.spec.buckets, **own, **kwargs)

    def feedforward_class(self, *sizes: Any, **kwargs: Any) -> Callable:  # its dropout is the block's
        return ReformerFeedForward(*sizes, dropout=self.settings["dropout"], **kwargs)

    def attended(self, x: Tensor, told: Tensor, context: Told, training: bool) -> tuple[Tensor, Tensor]:
        """What is added to the first stream [B, S, H], of the second, and the probabilities."""
        y, seen = self.attention(
            self.attention_norm(x), visible=context.visible, training=training, probabilities=context.attention
        )
        y = self.adapted("attention", context.rows(y), told, context, training)
        return self.attention_dropout(y, training=training), seen

    def fed(self, x: Tensor, told: Tensor, context: Told, training: bool, first: int = 0) -> Tensor:
        """What is added to the second stream, of the first [B, P, H], which begins at token `first`."""
        y = self.feedforward(self.feedforward_norm(x), training=training, first=first)
        y = self.adapted("feedforward", y, told, context, training)
        return self.feedforward_dropout(y, training=training, first=first)

    def halves(self, context: Told, training: bool) -> list[Half]:
        """Its sublayers for a reversible stack."""
        own = [
            [part for name, part in self.adapters.items() if name == sublayer]
            for sublayer in ("attention", "feedforward")
        ]
        attend = lambda x, first: self.attended(x, x, context, training)[0]  # noqa: E731
        feed = lambda x, first: self.fed(x, x, context, training, first)  # noqa: E731
        return [
            Half(attend, [self.attention_norm, self.attention, *own[0]]),
            Half(feed, [self.feedforward_norm, self.feedforward, *own[1]], self.spec.reversible.chunk),
        ]

    def call(self, x: Tensor, context: Context | None = None, training: bool = False) -> tuple[Tensor, Tensor]:
        context = context if isinstance(context, Told) else Told()
        one, two = ops.split(ops.cast(x, "float32"), 2, axis=-1)
        y, seen = self.attended(two, x, context, training)
        one = context.rows(one) + ops.cast(y, "float32")
        feed = lambda part, first: self.fed(part, x, context, training, first)  # noqa: E731
        y = in_pieces(feed, one, self.spec.reversible.chunk)
        return ops.concatenate([one, context.rows(two) + ops.cast(y, "float32")], axis=-1), seen


class TokenHead(keras.layers.Layer):
    """Predict tokens by a table of its own: x [B, P, 2 H] -> logits [B, P, V] float32. Trainable weights: 2*H*V + V."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        activation: str = "relu",
        epsilon: float = 1e-12,
        initializer: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary, self.initializer = vocabulary, initializer

    def build(self, shape: Shape) -> None:
        normal = Normal(stddev=self.initializer)
        self.table = self.add_weight(shape=(self.vocabulary, shape[-1]), initializer=normal, name="table")
        self.bias = self.add_weight(shape=(self.vocabulary,), initializer="zeros", name="bias")

    def call(self, x: Tensor, table: Tensor = None) -> Tensor:
        logits = ops.cast(project(x, ops.transpose(ops.cast(self.table, x.dtype))), "float32")
        return logits + ops.cast(self.bias, "float32")

    def scaled(self, x: Tensor) -> Tensor:
        """What the rows of `output_rows` are multiplied with: the bias is one column more."""
        return ops.concatenate([x, ops.ones_like(x[..., :1])], axis=-1)

    @property
    def output_rows(self) -> Tensor:
        """[V, 2 H + 1]."""
        return ops.concatenate([self.table, ops.expand_dims(self.bias, 1)], axis=1)
