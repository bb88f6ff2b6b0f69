"""One layer of a decoder: a block with a second attention, which reads what an encoder gives."""

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.random import Dropout


class DecoderBlock(Block):
    """Post-norm transformer decoder layer (Vaswani et al., 2017, section 3.1): self-attention, cross-attention, feed-forward.

    Who sees whom in the self-attention stands in `context.bias` (causal); `context.source` [B, S, H] and
    `context.source_bias` are the encoder's.

    Args: as Block.
    Call: x [B, T, H], context -> (y [B, Q, H], probabilities [B, N, Q, T], of the cross-attention [B, N, Q, S]).
    """

    cross_attention_class: type = Attention

    def build(self, shape: Shape) -> None:
        super().build(shape)
        at, kwargs = self.settings, {"dtype": self.dtype_policy}
        sizes = at["heads"], at["head_size"], at["attention_dropout"], at["initializer"], at["output_initializer"]
        self.cross_attention = self.cross_attention_class(
            *sizes, use_bias=at["use_bias"], name="cross_attention", **kwargs
        )
        self.cross_attention_norm = self.norm_class(at["epsilon"], name="cross_attention_norm", **kwargs)
        self.cross_attention_dropout = Dropout(at["dropout"], name="cross_attention_dropout", **kwargs)
        for layer in (self.cross_attention, self.cross_attention_norm, self.cross_attention_dropout):
            layer.build(shape)
        self.build_adapters(shape, "cross_attention")

    def call(self, x: Tensor, context: Context, training: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        told, source, x = x, context.keys(x), context.rows(x)
        y, probabilities = self.attention(x, context.bias, source, training=training, **context.at)
        y = self.adapted("attention", y, told, context, training)
        x = self.attention_norm(x, y, dropout=self.attention_dropout, training=training)
        y, crossed = self.cross_attention(
            x, context.source_bias, context.source, training=training, **context.source_at
        )
        y = self.adapted("cross_attention", y, told, context, training)
        x = self.cross_attention_norm(x, y, dropout=self.cross_attention_dropout, training=training)
        y = self.adapted("feedforward", self.feedforward(x), told, context, training)
        x = self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training)
        return x, probabilities, crossed


class PreNormDecoderBlock(DecoderBlock):
    """Transformer decoder layer with the norms in front of its sublayers, as `PreNormBlock`."""

    def call(self, x: Tensor, context: Context, training: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        told, y = x, self.attention_norm(x)
        source = y if context.memory is None else self.attention_norm(context.keys(x))
        x, y = context.rows(x), context.rows(y)
        y, probabilities = self.attention(y, context.bias, source, training=training, **context.at)
        x = x + self.attention_dropout(self.adapted("attention", y, told, context, training), training=training)
        y = self.cross_attention_norm(x)
        y, crossed = self.cross_attention(
            y, context.source_bias, context.source, training=training, **context.source_at
        )
        y = self.adapted("cross_attention", y, told, context, training)
        x = x + self.cross_attention_dropout(y, training=training)
        y = self.adapted("feedforward", self.feedforward(self.feedforward_norm(x)), told, context, training)
        return x + self.feedforward_dropout(y, training=training), probabilities, crossed
