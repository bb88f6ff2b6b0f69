"""What is put into a trained model to adapt it, in the place of training all of it."""

from typing import Any

import keras

from kerasbert.errors import unknown
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.feedforward import ACTIVATIONS, Linear
from kerasbert.storage.json_view import Json


class Adapter(keras.layers.Layer):
    """Bottleneck adapter (Houlsby et al., 2019, section 2.1, figure 2).

    x + up(activation(down(x))); `up` starts at zero, so that a new adapter is the identity.

    Differs: the paper draws both from a normal of 0.01; the released code has its adapter behind the dropout of the
    sublayer, here the dropout is behind the adapter, with the residual sum.

    Args:
        width: int m, units of the bottleneck.
        activation: a name in ACTIVATIONS.
    Call: x [B, S, H] -> [B, S, H]. Trainable weights: 2*H*m + H + m.
    """

    def __init__(self, width: int, activation: str = "gelu", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise unknown("activation", activation, ACTIVATIONS, ", ".join(ACTIVATIONS))
        self.width, self.activation = width, activation

    def build(self, shape: Shape) -> None:
        self.down = Linear(self.width, 0.01, name="down", dtype=self.dtype_policy)
        self.down.build(shape)
        self.up = Linear(shape[-1], 0.0, name="up", dtype=self.dtype_policy)
        self.up.build((*shape[:-1], self.width))

    def call(self, x: Tensor) -> Tensor:
        return x + self.up(self.down(x, activation=self.activation))

    def get_config(self) -> Json:
        return {**super().get_config(), "width": self.width, "activation": self.activation}
