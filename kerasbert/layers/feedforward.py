"""Linear maps and the position-wise feed-forward network."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import lora
from kerasbert.layers.backend import affine, fused, gelu, on_tpu, project
from kerasbert.layers.backend_fused import ByHand, column_sums, with_derivative
from kerasbert.layers.backend_graph import own_gradient, recompute
from kerasbert.layers.initial import Normal
from kerasbert.layers.random import Dropout, drop
from kerasbert.storage.json_view import Json

ACTIVATIONS = {
    "gelu": gelu,
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "swish": ops.silu,
    "tanh": ops.tanh,
}
GATED = "gated_"  # before the name of an activation: a gated linear unit


def _activate_forward(x: Tensor, bias: Tensor, *, activation: str) -> tuple:
    """The derivative shares most of its work with the activation; it is kept instead of x, in the type of x."""
    inner = ops.cast(x if bias is None else x + bias, "float32")
    y, derivative = with_derivative(ACTIVATIONS[activation], inner)
    return ops.cast(y, x.dtype), (ops.cast(derivative, x.dtype), bias)


def _activate_backward(
    upstream: Tensor, derivative: Tensor, bias: Tensor, *, activation: str
) -> tuple[Tensor, Tensor | None]:
    found = ops.cast(upstream, "float32") * ops.cast(derivative, "float32")
    return found, None if bias is None else column_sums(found)


@fused(by_hand=ByHand(_activate_forward, _activate_backward))
def activate(x: Tensor, bias: Tensor, *, activation: str) -> Tensor:
    """activation(x + bias), or activation(x) where there is no bias.

    Automatic differentiation of a GELU or of SiLU keeps two to six arrays: where a tape records, the derivative is kept alone.
    """
    inner, function = x if bias is None else x + bias, ACTIVATIONS[activation]
    if activation in ("gelu", "gelu_tanh", "swish") and keras.backend.standardize_dtype(inner.dtype) == "float32":
        y = own_gradient(functools.partial(_with_gradient, function), inner)
        return function(inner) if y is None else y
    return function(inner)


def _with_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    y, derivative = with_derivative(function, x)
    return y, lambda upstream: upstream * derivative


class Linear(keras.layers.Layer):
    """x @ kernel + bias on the last axis; (kernel + scale * lora_a @ lora_b) where the Spec asks for it (`layers.lora`).

    Args:
        width: int, units.
        initializer: float, standard deviation of the truncated normal.
        use_bias: bool, whether there is a bias.
    Call: x [..., H], activation: a name in ACTIVATIONS or None -> [..., width]. Trainable weights: H*width + width, and
        r*(H + width) of a rank r.
    """

    lora: tuple[int, float] | None = None  # rank and scale
    quantizer: Any = (
        None  # what computes x @ kernel + bias instead, in a model that is trained for int8 (layers.quantizer)
    )

    def __init__(self, width: int, initializer: float = 0.02, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = width
        self.initializer = initializer
        self.use_bias = use_bias

    def build(self, shape: Shape) -> None:
        normal = Normal(stddev=self.initializer)
        self.kernel = self.add_weight(shape=(shape[-1], self.width), initializer=normal, name="kernel")
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.width,), initializer="zeros", name="bias")
        self.lora = lora.settings_of(self.path, (shape[-1], self.width))
        if self.lora is not None:
            # uniform in 1/sqrt(H), as in the authors' code and PEFT. Differs: the paper says a normal
            uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
            rank = self.lora[0]
            self.lora_a = self.add_weight(shape=(shape[-1], rank), initializer=uniform, name="lora_a")
            self.lora_b = self.add_weight(shape=(rank, self.width), initializer="zeros", name="lora_b")

    def call(self, x: Tensor, activation: str | None = None) -> Tensor:
        if self.quantizer is not None:
            bias = ops.zeros((self.width,), self.compute_dtype) if self.bias is None else self.bias
            x = self.quantizer.linear(x, self.merged(), bias)
            return x if activation is None else activate(x, None, activation=activation)
        if self.bias is not None and self.lora is None:
            function = None if activation is None else ACTIVATIONS[activation]
            y = affine(x, self.kernel, self.bias, function, gelu=activation == "gelu")
            if y is not None:
                return y
        update = None if self.lora is None else project(project(x, self.lora_a), self.lora_b) * self.lora[1]
        x = project(x, self.kernel)
        x = x if update is None else x + update
        if activation is not None:
            return activate(x, self.bias, activation=activation)
        return x if self.bias is None else x + self.bias

    def merged(self) -> Tensor:
        """The one matrix that it computes with: [H, width]."""
        if self.lora is None:
            return self.kernel
        return self.kernel + ops.matmul(self.lora_a, self.lora_b) * self.lora[1]

    def compute_output_shape(self, shape: Shape) -> tuple[int | None, ...]:
        return (*shape[:-1], self.width)

    def get_config(self) -> Json:
        config = {"width": self.width, "initializer": self.initializer, "use_bias": self.use_bias}
        return {**super().get_config(), **config}


class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network (Vaswani et al., 2017, section 3.3), or a gated one (Shazeer, 2020, section 2).

    Args:
        width: int F.
        activation: a name in ACTIVATIONS: activation(x @ inner) @ outer. Behind "gated_" it is that of a gate:
            (activation(x @ gate) * (x @ linear)) @ outer, so that "gated_gelu" is GEGLU and "gated_swish" SwiGLU.
        initializer: float.
        output_initializer: float, of the outer kernel; by default as the inner one's.
        use_bias: bool, whether the maps add a bias.
        dropout: float, of what the outer map reads.
    Call: x [B, S, H] -> [B, S, H]. Trainable weights: 2*H*F + F + H; with a gate 3*H*F + 2*F + H.
    """

    def __init__(
        self,
        width: int,
        activation: str = "gelu",
        initializer: float = 0.02,
        output_initializer: float | None = None,
        use_bias: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.gated, self.activation = activation.startswith(GATED), activation.removeprefix(GATED)
        if self.activation not in ACTIVATIONS:
            names = f"{', '.join(ACTIVATIONS)}, or {GATED} before one of them"
            raise ValueError(f"activation must be one of {names}. Received: {activation!r}")
        self.width, self.initializer, self.output_initializer = width, initializer, output_initializer or initializer
        self.use_bias, self.rate = use_bias, dropout

    def deviations(self, shape: Shape) -> tuple[float, float]:
        """Standard deviations that the kernels of the inner maps and of the outer one start with."""
        return self.initializer, self.output_initializer

    def build(self, shape: Shape) -> None:
        kwargs, (inner, outer) = {"use_bias": self.use_bias, "dtype": self.dtype_policy}, self.deviations(shape)
        for name in ("gate", "linear") if self.gated else ("inner",):
            setattr(self, name, Linear(self.width, inner, name=name, **kwargs))
            getattr(self, name).build(shape)
        self.outer = Linear(shape[-1], outer, name="outer", **kwargs)
        self.outer.build((*shape[:-1], self.width))
        self.dropout = Dropout(self.rate, name="dropout", dtype=self.dtype_policy)
        self.dropout.build()

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        key, first = self.dropout.key(x, training), self.gate if self.gated else self.inner
        linear = (self.linear(x),) if self.gated else ()
        if on_tpu():  # what is cheap to repeat is not kept
            activate = ACTIVATIONS[self.activation]
            return recompute(lambda y, *by: self._finish(activate(y), by, key))(first(x), *linear)
        return self._finish(first(x, activation=self.activation), linear, key)

    def _finish(self, y: Tensor, linear: Tensor, key: Tensor) -> Tensor:
        """The outer map of what the first one gives, times what the gate opens for, if there is one."""
        return self.outer(drop(y * linear[0] if linear else y, key, self.rate))

    def get_config(self) -> Json:
        config = {"width": self.width, "activation": GATED * self.gated + self.activation, "dropout": self.rate}
        config |= {"initializer": self.initializer, "output_initializer": self.output_initializer}
        return {**super().get_config(), **config, "use_bias": self.use_bias}
