"""Linear maps and the position-wise feed-forward network."""

import keras
from keras import ops

from kerasbert.layers.backend import island, on_tpu, project, recompute

ACTIVATIONS = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "swish": ops.silu,
    "tanh": ops.tanh,
}


@island
def activate(x, bias, *, activation: str):
    """activation(x + bias)."""
    return ACTIVATIONS[activation](x + bias)


class Linear(keras.layers.Layer):
    """x @ kernel + bias on the last axis.

    Args:
        width: int, units.
        initializer: float, standard deviation of the truncated normal.
    Call: x [..., H], activation: a name in ACTIVATIONS or None -> [..., width]. Trainable weights: H*width + width.
    """

    quantizer = None  # what computes x @ kernel + bias instead, in a model that is trained for int8 (layers.quantizer)

    def __init__(self, width: int, initializer: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.initializer = initializer

    def build(self, shape):
        normal = keras.initializers.TruncatedNormal(stddev=self.initializer)
        self.kernel = self.add_weight(shape=(shape[-1], self.width), initializer=normal, name="kernel")
        self.bias = self.add_weight(shape=(self.width,), initializer="zeros", name="bias")

    def call(self, x, activation=None):
        if self.quantizer is not None:
            x = self.quantizer.linear(x, self.kernel, self.bias)
            return x if activation is None else ACTIVATIONS[activation](x)
        x = project(x, self.kernel)
        return x + self.bias if activation is None else activate(x, self.bias, activation=activation)

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.width)

    def get_config(self):
        return {**super().get_config(), "width": self.width, "initializer": self.initializer}


class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network (Vaswani et al., 2017, section 3.3).

    Args:
        width: int F. activation: a name in ACTIVATIONS. initializer: float.
        output_initializer: float, of the outer kernel; by default as the inner one's.
    Call: x [B, S, H] -> [B, S, H]. Trainable weights: 2*H*F + F + H.
    """

    def __init__(
        self,
        width: int,
        activation: str = "gelu",
        initializer: float = 0.02,
        output_initializer: float | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}. Received: {activation!r}")
        self.width = width
        self.activation = activation
        self.initializer = initializer
        self.output_initializer = output_initializer or initializer

    def build(self, shape):
        self.inner = Linear(self.width, self.initializer, name="inner", dtype=self.dtype_policy)
        self.inner.build(shape)
        self.outer = Linear(shape[-1], self.output_initializer, name="outer", dtype=self.dtype_policy)
        self.outer.build((*shape[:-1], self.width))

    def call(self, x):
        if on_tpu():  # what is cheap to repeat is not kept
            return recompute(lambda y: self.outer(ACTIVATIONS[self.activation](y)))(self.inner(x))
        return self.outer(self.inner(x, activation=self.activation))

    def get_config(self):
        config = {"width": self.width, "activation": self.activation, "initializer": self.initializer}
        return {**super().get_config(), **config, "output_initializer": self.output_initializer}
