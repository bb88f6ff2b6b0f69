"""Normalisation over the last axis."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import fused
from kerasbert.layers.backend_fused import ByHand, column_sums, row_sums
from kerasbert.layers.backend_graph import own_gradient
from kerasbert.layers.random import Dropout, drop
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.layers.quantizer import Quantizer


def normalise(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """(x - mean) / standard deviation * gamma + beta over the last axis, in float32; beta may be None.

    Written as mean -> centre -> mean: the TFLite converter turns it into operations that XNNPACK takes.
    """
    found = own_gradient(functools.partial(_with_gradient, epsilon=epsilon), x, gamma, beta)
    if found is not None:
        return found
    normal, _ = _centred(x, epsilon)
    return _plus(normal * gamma, beta)


def _centred(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """x - mean, over the standard deviation, and one over that: [..., H] -> float32 [..., H], [..., 1]."""
    centred = ops.cast(x, "float32")
    centred = centred - ops.mean(centred, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(centred * centred, axis=-1, keepdims=True) + epsilon)
    return centred * scale, scale


def _with_gradient(x: Tensor, gamma: Tensor, *beta: Tensor, epsilon: float) -> tuple[Tensor, Callable]:
    """`normalise` with two thirds of the operations that automatic differentiation makes of it."""
    normal, scale = _centred(x, epsilon)

    def gradient(upstream: Tensor) -> list[Tensor]:
        inner, rows = upstream * gamma, tuple(range(len(x.shape) - 1))
        of_x = inner - ops.mean(inner, axis=-1, keepdims=True)
        of_x = (of_x - normal * ops.mean(inner * normal, axis=-1, keepdims=True)) * scale
        of_weights = [upstream * normal, upstream][: 1 + len(beta)]
        return [ops.cast(of_x, x.dtype), *(ops.sum(each, axis=rows) for each in of_weights)]

    return _plus(normal * gamma, beta[0] if beta else None), gradient


def _plus(x: Tensor, beta: Tensor | None) -> Tensor:
    return x if beta is None else x + beta


def _normalised(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """x - mean, over the standard deviation, and one over that: [..., H] -> float32 [..., H], [..., 1]."""
    x = ops.cast(x, "float32")
    centred = x - row_sums(x) / x.shape[-1]
    scale = ops.rsqrt(row_sums(centred * centred) / x.shape[-1] + epsilon)
    return centred * scale, scale


def _gradients(upstream: Tensor, x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Those of `normalise` by x, gamma and beta, in float32."""
    upstream, (normal, scale) = ops.cast(upstream, "float32"), _normalised(x, epsilon)
    inner = upstream * gamma
    inner = inner - (row_sums(inner) + normal * row_sums(inner * normal)) / x.shape[-1]
    return inner * scale, column_sums(upstream * normal), column_sums(upstream)


def _norm_forward(x: Tensor, gamma: Tensor, beta: Tensor, key: Tensor, *, epsilon: float, rate: float) -> tuple:
    normal = _plus(_normalised(x, epsilon)[0] * gamma, beta)
    return drop(ops.cast(normal, x.dtype), key, rate), (x, gamma, key)


def _norm_backward(
    upstream: Tensor, x: Tensor, gamma: Tensor, key: Tensor, *, epsilon: float, rate: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_x, of_gamma, of_beta = _gradients(drop(upstream, key, rate), x, gamma, epsilon)
    return of_x, of_gamma, of_beta, None


@fused(by_hand=ByHand(_norm_forward, _norm_backward))
def norm(x: Tensor, gamma: Tensor, beta: Tensor, key: Tensor, *, epsilon: float, rate: float) -> Tensor:
    """Dropout after the norm."""
    return drop(ops.cast(normalise(x, gamma, beta, epsilon), x.dtype), key, rate)


def _add_and_norm_forward(
    x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, key: Tensor, *, epsilon: float, rate: float
) -> tuple:
    normal = _plus(_normalised(x + drop(y, key, rate), epsilon)[0] * gamma, beta)
    return ops.cast(normal, x.dtype), (x, y, gamma, key)


def _add_and_norm_backward(
    upstream: Tensor, x: Tensor, y: Tensor, gamma: Tensor, key: Tensor, *, epsilon: float, rate: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    of_sum, of_gamma, of_beta = _gradients(upstream, x + drop(y, key, rate), gamma, epsilon)
    of_sum = ops.cast(of_sum, x.dtype)
    return of_sum, drop(of_sum, key, rate), of_gamma, of_beta, None


@fused(by_hand=ByHand(_add_and_norm_forward, _add_and_norm_backward))
def add_and_norm(
    x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, key: Tensor, *, epsilon: float, rate: float
) -> Tensor:
    """norm(x + dropout(y)): the end of a sublayer (Vaswani et al., 2017, section 5.4)."""
    return ops.cast(normalise(x + drop(y, key, rate), gamma, beta, epsilon), x.dtype)


class LayerNorm(keras.layers.Layer):
    """Layer normalisation (Ba et al., 2016), in float32 whatever the compute type.

    Args:
        epsilon: float, added to the variance.
    Call: x [..., H] -> [..., H]; with y [..., H] norm(x + y). Dropout, where given, is of y or else of the result.
    Trainable weights: 2*H.
    """

    use_bias: bool = True  # whether beta is added
    quantizer: "Quantizer | None" = None  # what marks the result, see Linear

    def __init__(self, epsilon: float = 1e-12, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape: Shape) -> None:
        one = {"shape": (shape[-1],), "autocast": False}
        self.gamma = self.add_weight(initializer="ones", name="gamma", **one)
        self.beta = self.add_weight(initializer="zeros", name="beta", **one) if self.use_bias else None

    def call(self, x: Tensor, y: Tensor = None, dropout: Dropout | None = None, training: bool = False) -> Tensor:
        at = {"epsilon": self.epsilon, "rate": dropout.rate if dropout else 0.0}
        key = dropout.key(x, training) if dropout else None
        x = ops.cast(x, self.compute_dtype)
        if y is None:
            return self.mark(norm(x, self.gamma, self.beta, key, **at), key is None)
        return self.mark(add_and_norm(x, y, self.gamma, self.beta, key, **at))

    def mark(self, x: Tensor, scaled: bool = True, of: Tensor = None) -> Tensor:
        """x, marked by the quantizer where there is one; `scaled`: it ends with gamma and beta, not with dropout."""
        if self.quantizer is None or not scaled:
            return x
        return self.quantizer.mark(x, self.gamma, ops.zeros_like(self.gamma) if self.beta is None else self.beta, of)

    def compute_output_shape(self, shape: Shape) -> tuple[int | None, ...]:
        return shape

    def get_config(self) -> Json:
        return {**super().get_config(), "epsilon": self.epsilon}


class BiasFreeLayerNorm(LayerNorm):
    """Layer normalisation that adds nothing (`torch.nn.LayerNorm(bias=False)`). Trainable weights: H."""

    use_bias = False


def scale(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    """x / root mean square * gamma over the last axis, in float32."""
    x = ops.cast(x, "float32")
    return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon) * gamma


def _rms(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """x over its root mean square, and one over that: [..., H] -> float32 [..., H], [..., 1]."""
    x = ops.cast(x, "float32")
    scale = ops.rsqrt(row_sums(x * x) / x.shape[-1] + epsilon)
    return x * scale, scale


def _rms_forward(x: Tensor, gamma: Tensor, key: Tensor, *, epsilon: float, rate: float) -> tuple:
    return drop(ops.cast(_rms(x, epsilon)[0] * gamma, x.dtype), key, rate), (x, gamma, key)


def _rms_backward(
    upstream: Tensor, x: Tensor, gamma: Tensor, key: Tensor, *, epsilon: float, rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    upstream, (normal, scale) = ops.cast(drop(upstream, key, rate), "float32"), _rms(x, epsilon)
    inner = upstream * gamma
    inner = inner - normal * row_sums(inner * normal) / x.shape[-1]
    return inner * scale, column_sums(upstream * normal), None


@fused(by_hand=ByHand(_rms_forward, _rms_backward))
def rms_norm(x: Tensor, gamma: Tensor, key: Tensor, *, epsilon: float, rate: float) -> Tensor:
    """Dropout after the norm."""
    return drop(ops.cast(scale(x, gamma, epsilon), x.dtype), key, rate)


class RMSNorm(keras.layers.Layer):
    """Root mean square normalisation (Zhang and Sennrich, 2019, equation 4): no mean is taken off, nothing is added.

    Args:
        epsilon: float, added to the mean square.
    Call: x [..., H] -> [..., H]; dropout, where given, is of the result. Trainable weights: H.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape: Shape) -> None:
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma", autocast=False)

    def call(self, x: Tensor, dropout: Dropout | None = None, training: bool = False) -> Tensor:
        rate, key = (dropout.rate, dropout.key(x, training)) if dropout else (0.0, None)
        return rms_norm(ops.cast(x, self.compute_dtype), self.gamma, key, epsilon=self.epsilon, rate=rate)

    def compute_output_shape(self, shape: Shape) -> tuple[int | None, ...]:
        return shape

    def get_config(self) -> Json:
        return {**super().get_config(), "epsilon": self.epsilon}


@fused
def scale_and_shift(x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, key: Tensor, *, rate: float) -> Tensor:
    """(x + dropout(y)) * gamma + beta, or without y dropout(x * gamma + beta)."""
    if y is None:
        return drop(ops.cast(ops.multiply(x, gamma) + beta, x.dtype), key, rate)
    return ops.cast(ops.multiply(x + drop(y, key, rate), gamma) + beta, x.dtype)


class NoNorm(LayerNorm):
    """x * gamma + beta in place of layer normalisation (Sun et al., 2020, section 3.3); called as `LayerNorm`."""

    def call(self, x: Tensor, y: Tensor = None, dropout: Dropout | None = None, training: bool = False) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        key = dropout.key(x, training) if dropout else None
        made = scale_and_shift(x, y, self.gamma, self.beta, key, rate=dropout.rate if dropout else 0.0)
        return self.mark(made, y is not None or key is None, x if y is None else None)
