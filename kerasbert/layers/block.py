"""One transformer layer, and the one function that maps a Spec to it."""

from collections.abc import Callable
from typing import Any

import keras

from kerasbert.adaptation import Adapters
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.adapter import Adapter
from kerasbert.layers.attention import Attention
from kerasbert.layers.context import Context
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.pals import ProjectedAttention
from kerasbert.layers.random import Dropout
from kerasbert.spec import Spec, get
from kerasbert.storage.json_view import Json


class Block(keras.layers.Layer):
    """Post-norm transformer encoder layer (Vaswani et al., 2017, section 3.1).

    A paper's block names other parts, which take the arguments of those here, or overrides `call`, which hands what
    each sublayer gives to `adapted` before the residual sum.

    Args:
        heads: int N.
        head_size: int D.
        width: int F.
        activation: as in Spec.
        dropout: as in Spec.
        attention_dropout: as in Spec.
        epsilon: as in Spec.
        initializer: as in Spec.
        output_initializer: float, of the two kernels in front of the residual sums; by default `initializer`.
        use_bias: bool, whether the linear maps of attention and feed-forward add a bias.
        adapters: spec.Adapters, small networks behind the sublayers; None for none.
        layer: int, its place in the stack from 0 on: what differs by layer reads `self.layer`.
    A sublayer that is set before `build` is used as it is: another layer's, shared.

    Call: x [B, S, H], context -> (y [B, Q, H], probabilities [B, N, Q, K]).
    """

    attention_class: type = Attention
    feedforward_class: Callable = FeedForward
    norm_class: type = LayerNorm

    def __init__(
        self,
        *,
        heads: int,
        head_size: int,
        width: int,
        activation: str,
        dropout: float,
        attention_dropout: float,
        epsilon: float,
        initializer: float,
        output_initializer: float | None = None,
        use_bias: bool = True,
        adapters: Adapters | None = None,
        layer: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.layer = layer
        self.adapters: dict[str, Adapter] = {}  # by the name of the sublayer
        self.pal: ProjectedAttention | None = None
        self.settings = {
            "heads": heads,
            "head_size": head_size,
            "width": width,
            "activation": activation,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "epsilon": epsilon,
            "initializer": initializer,
            "output_initializer": output_initializer or initializer,
            "use_bias": use_bias,
            "adapters": adapters or Adapters(),
            "layer": layer,
        }

    def build(self, shape: Shape) -> None:
        at, kwargs = self.settings, {"dtype": self.dtype_policy}
        settings = at["initializer"], at["output_initializer"]
        # by its own default a part may do without
        without = {} if at["use_bias"] else {"use_bias": False}
        if not hasattr(self, "attention"):
            sizes = at["heads"], at["head_size"], at["attention_dropout"]
            self.attention = self.attention_class(*sizes, *settings, name="attention", **without, **kwargs)
            self.attention_norm = self.norm_class(at["epsilon"], name="attention_norm", **kwargs)
        if not hasattr(self, "feedforward"):
            sizes = at["width"], at["activation"]
            self.feedforward = self.feedforward_class(*sizes, *settings, name="feedforward", **without, **kwargs)
            self.feedforward_norm = self.norm_class(at["epsilon"], name="feedforward_norm", **kwargs)
        self.attention_dropout = Dropout(at["dropout"], name="attention_dropout", **kwargs)
        self.feedforward_dropout = Dropout(at["dropout"], name="feedforward_dropout", **kwargs)
        sublayers = (self.attention, self.feedforward, self.attention_norm, self.feedforward_norm)
        for layer in (*sublayers, self.attention_dropout, self.feedforward_dropout):
            if not layer.built:
                layer.build(shape)
        self.build_adapters(shape, "attention", "feedforward")

    def build_adapters(self, shape: Shape, *sublayers: str) -> None:
        """One behind each sublayer, where there are any; `shape` is that of their results."""
        parts = self.settings["adapters"]
        for sublayer in sublayers if parts.width else ():
            names = {"name": f"{sublayer}_adapter", "dtype": self.dtype_policy}
            self.adapters[sublayer] = Adapter(parts.width, parts.activation, **names)
            self.adapters[sublayer].build(shape)

    def adapted(self, sublayer: str, y: Tensor, x: Tensor, context: Context, training: bool = False) -> Tensor:
        """What a sublayer gives, on its way to the residual sum: the one place where a trained model is adapted.

        The identity where nothing adapts. Every block calls it for each of its sublayers.

        Args:
            sublayer: its name, as `attention`.
            y: [B, Q, H], what the sublayer gives, before dropout.
            x: [B, S, H], what the block was called with: of all tokens, which `context.rows` cuts to the queries.
            context: what the block was called with; its bias is of the queries.
        """
        y = self.adapters[sublayer](y) if sublayer in self.adapters else y
        if self.pal is None or sublayer != "feedforward":  # the last one, whatever a block has before it
            return y
        return y + self.pal(x, context=context, training=training)

    def call(self, x: Tensor, context: Context | None = None, training: bool = False) -> tuple[Tensor, Tensor]:
        context, told = context or Context(), x
        source, x = context.keys(x), context.rows(x)
        y, probabilities = self.attention(x, context.bias, source, training=training, **context.at)
        y = self.adapted("attention", y, told, context, training)
        x = self.attention_norm(x, y, dropout=self.attention_dropout, training=training)
        y = self.adapted("feedforward", self.feedforward(x), told, context, training)
        return self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training), probabilities

    def get_config(self) -> Json:
        return {**super().get_config(), **self.settings}


class PreNormBlock(Block):
    """Transformer encoder layer with the norms in front of its sublayers (Xiong et al., 2020, table 1).

    The sum of the sublayers is never normalised: whoever stacks such layers does it once, at the end.
    """

    def call(self, x: Tensor, context: Context | None = None, training: bool = False) -> tuple[Tensor, Tensor]:
        context, told = context or Context(), x
        y = self.attention_norm(x)
        source = y if context.memory is None else self.attention_norm(context.keys(x))
        x, y = context.rows(x), context.rows(y)
        y, probabilities = self.attention(y, context.bias, source, training=training, **context.at)
        x = x + self.attention_dropout(self.adapted("attention", y, told, context, training), training=training)
        y = self.adapted("feedforward", self.feedforward(self.feedforward_norm(x)), told, context, training)
        return x + self.feedforward_dropout(y, training=training), probabilities


def stack(spec: Spec, kind: Callable | None = None, **kwargs: Any) -> list[Block]:
    """The built blocks of a Spec; shared weights are the first one's (ALBERT: Lan et al., 2020, section 3.1).

    Args:
        spec: Spec.
        kind: a family's own class of blocks; by default the one of `blocks.norm`.
    """
    blocks: list[Block] = []
    for layer in range(spec.blocks.layers):
        if blocks and spec.blocks.share == "all":
            blocks.append(blocks[0])
            continue
        new = block(spec, layer, kind or (PreNormBlock if spec.blocks.norm == "pre" else Block), **kwargs)
        if blocks and spec.blocks.share != "none":
            sublayer = {"attention": "attention", "ffn": "feedforward"}[spec.blocks.share]
            for name in (sublayer, f"{sublayer}_norm"):
                setattr(new, name, getattr(blocks[0], name))
        if spec.pals.width:
            new.pal = pal(spec, blocks[0].pal if blocks else None, **kwargs)
        new.build((None, None, spec.hidden))
        if new.pal is not None:
            with keras.name_scope(new.name):
                new.pal.build()
        blocks.append(new)
    return blocks


def block(spec: Spec, layer: int, kind: Callable = Block, **kwargs: Any) -> Block:
    """The block of one layer of a Spec; a family's own class is passed as `kind`."""
    attention = spec.attention
    return kind(
        heads=spec.per_layer(attention.heads, layer),
        head_size=spec.head_size,
        width=spec.per_layer(spec.feedforward.width, layer),
        activation=spec.feedforward.activation,
        dropout=spec.dropout,
        attention_dropout=spec.dropout if attention.dropout is None else attention.dropout,
        epsilon=spec.epsilon,
        initializer=spec.initializer,
        use_bias=spec.blocks.bias,
        adapters=spec.adapters,
        layer=layer,
        name=f"block_{layer}",
        **kwargs,
    )


def pal(spec: Spec, first: ProjectedAttention | None = None, **kwargs: Any) -> ProjectedAttention:
    """The projected attention layer beside a block of a Spec; its projections are the first one's."""
    dropout = spec.dropout if spec.attention.dropout is None else spec.attention.dropout
    size = spec.pals.width // spec.pals.heads
    new = ProjectedAttention(
        spec.pals.heads,
        size,
        spec.hidden,
        get(spec, spec.attended),
        dropout,
        spec.initializer,
        name="pal",
        **kwargs,
    )
    if first is not None:
        new.down, new.up = first.down, first.up
    return new
