"""Projected attention layers: what a task has of its own in every layer of an encoder that several tasks share."""

from typing import Any

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.context import Context
from kerasbert.layers.feedforward import ACTIVATIONS, Linear
from kerasbert.storage.json_view import Json


class ProjectedAttention(Attention):
    """PAL (Stickland and Murray, 2019, section 3.2, figure 1): gelu(up(attention(down(x)))), beside a whole block.

    It reads what the block read and is added where the block's last residual sum is, inside of the norm. `down` and `up`
    (the paper's V^E and V^D) are shared by all layers; the attention is the layer's own and has no output map.

    The GELU behind `up` is the released code's; the paper's equation has none.
    Differs: `up` starts at zero, so that a new model answers as the one that it is made from; there it is drawn as the
    others. Differs: dropout acts on the sum of what the block's last sublayer gives and this; there on the first alone.

    Args:
        heads: int N.
        head_size: int D; N*D is the paper's d_s.
        hidden: int H, of what is read.
        units: int U, of what it is added to (H, but for blocks with a bottleneck).
        dropout: float, on the attention probabilities.
        initializer: float.
    `down` and `up` that are set before `build` are used as they are: another layer's, shared.

    Call: x [B, S, H], context of the block -> [B, Q, U].
    Trainable weights: 3*(N*D)^2 + 3*N*D, and those of down and up once: (H + U)*N*D + N*D + U.
    """

    def __init__(
        self,
        heads: int,
        head_size: int,
        hidden: int,
        units: int,
        dropout: float = 0.0,
        initializer: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(heads, head_size, dropout, initializer, **kwargs)
        self.hidden, self.units = hidden, units

    def build(self, shape: Shape | None = None) -> None:
        width, kwargs = self.heads * self.head_size, {"dtype": self.dtype_policy}
        if not hasattr(self, "down"):
            self.down = Linear(width, self.initializer, name="down", **kwargs)
            self.down.build((None, None, self.hidden))
            self.up = Linear(self.units, 0.0, name="up", **kwargs)
            self.up.build((None, None, width))
        self.output_projection = self.up
        super().build((None, None, width))

    def call(self, x: Tensor, context: Context, training: bool = False) -> Tensor:
        """What is added to the block's last residual sum."""
        small = self.down(x)
        source = small if context.memory is None else self.down(context.keys(x))
        y, _ = super().call(context.rows(small), context.bias, source, training=training)
        return ACTIVATIONS["gelu"](y)

    def get_config(self) -> Json:
        config = super().get_config()
        del config["use_bias"], config["output_initializer"]
        return config | {"hidden": self.hidden, "units": self.units}
