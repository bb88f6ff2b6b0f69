"""One transformer layer, and the one function that maps a Spec to it."""

import keras

from kerasbert.layers.attention import Attention
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout
from kerasbert.spec import Spec


class Block(keras.layers.Layer):
    """Post-norm transformer encoder layer (Vaswani et al., 2017, section 3.1).

    Args:
        heads, head_size, width: int N, D, F. activation, dropout, attention_dropout, epsilon, initializer: as in Spec.
        output_initializer: float, of the two kernels in front of the residual sums; by default `initializer`.
    A sublayer that is set before `build` is used as it is: another layer's, shared.

    Call: x [B, S, H], bias [B, 1, Q or 1, S], read="first" computes the first token alone
        -> (y [B, S or 1, H], probabilities [B, N, Q, S]).
    """

    def __init__(
        self,
        *,
        heads,
        head_size,
        width,
        activation,
        dropout,
        attention_dropout,
        epsilon,
        initializer,
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
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
        }

    def build(self, shape):
        at, kwargs = self.settings, {"dtype": self.dtype_policy}
        stddevs = at["initializer"], at["output_initializer"]
        if not hasattr(self, "attention"):
            self.attention = Attention(
                at["heads"], at["head_size"], at["attention_dropout"], *stddevs, name="attention", **kwargs
            )
            self.attention_norm = LayerNorm(at["epsilon"], name="attention_norm", **kwargs)
        if not hasattr(self, "feedforward"):
            self.feedforward = FeedForward(at["width"], at["activation"], *stddevs, name="feedforward", **kwargs)
            self.feedforward_norm = LayerNorm(at["epsilon"], name="feedforward_norm", **kwargs)
        self.attention_dropout = Dropout(at["dropout"], name="attention_dropout", **kwargs)
        self.feedforward_dropout = Dropout(at["dropout"], name="feedforward_dropout", **kwargs)
        parts = (self.attention, self.feedforward, self.attention_norm, self.feedforward_norm)
        for part in (*parts, self.attention_dropout, self.feedforward_dropout):
            if not part.built:
                part.build(shape)

    def call(self, x, bias=None, read=None, training=False):
        source = x
        if read == "first":
            x = x[:, :1]
        y, probabilities = self.attention(x, bias, source, training=training)
        x = self.attention_norm(x, y, dropout=self.attention_dropout, training=training)
        y = self.feedforward(x)
        return self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training), probabilities

    def get_config(self):
        return {**super().get_config(), **self.settings}


class PreNormBlock(Block):
    """Transformer encoder layer with the norms in front of its sublayers (Xiong et al., 2020, table 1).

    The sum of the sublayers is never normalised: whoever stacks such layers does it once, at the end.
    """

    def call(self, x, bias=None, read=None, training=False):
        source = y = self.attention_norm(x)
        if read == "first":
            x, y = x[:, :1], y[:, :1]
        y, probabilities = self.attention(y, bias, source, training=training)
        x = x + self.attention_dropout(y, training=training)
        y = self.feedforward(self.feedforward_norm(x))
        return x + self.feedforward_dropout(y, training=training), probabilities


def stack(spec: Spec, kind: type | None = None, **kwargs) -> list[Block]:
    """The built blocks of a Spec; shared weights are the first one's (ALBERT: Lan et al., 2020, section 3.1).

    Args:
        kind: a family's own class of blocks; by default the one of `blocks.norm`.
    """
    blocks: list[Block] = []
    for layer in range(spec.blocks.layers):
        if blocks and spec.blocks.share == "all":
            blocks.append(blocks[0])
            continue
        made = block(spec, layer, kind or (PreNormBlock if spec.blocks.norm == "pre" else Block), **kwargs)
        if blocks and spec.blocks.share != "none":
            part = {"attention": "attention", "ffn": "feedforward"}[spec.blocks.share]
            for name in (part, f"{part}_norm"):
                setattr(made, name, getattr(blocks[0], name))
        made.build((None, None, spec.hidden))
        blocks.append(made)
    return blocks


def block(spec: Spec, layer: int, kind: type = Block, **kwargs) -> Block:
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
        name=f"block_{layer}",
        **kwargs,
    )
