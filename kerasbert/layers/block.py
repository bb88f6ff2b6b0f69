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
    Call: x [B, S, H], bias [B, 1, Q or 1, S], read="first" computes the first token alone
        -> (y [B, S or 1, H], probabilities [B, N, Q, S]).
    """

    def __init__(
        self, *, heads, head_size, width, activation, dropout, attention_dropout, epsilon, initializer, **kwargs
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
        }

    def build(self, shape):
        at, kwargs = self.settings, {"dtype": self.dtype_policy}
        self.attention = Attention(
            at["heads"], at["head_size"], at["attention_dropout"], at["initializer"], name="attention", **kwargs
        )
        self.feedforward = FeedForward(at["width"], at["activation"], at["initializer"], name="feedforward", **kwargs)
        self.attention_norm = LayerNorm(at["epsilon"], name="attention_norm", **kwargs)
        self.feedforward_norm = LayerNorm(at["epsilon"], name="feedforward_norm", **kwargs)
        self.attention_dropout = Dropout(at["dropout"], name="attention_dropout", **kwargs)
        self.feedforward_dropout = Dropout(at["dropout"], name="feedforward_dropout", **kwargs)
        parts = (self.attention, self.feedforward, self.attention_norm, self.feedforward_norm)
        for part in (*parts, self.attention_dropout, self.feedforward_dropout):
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
