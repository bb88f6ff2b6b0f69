"""Normalisation over the last axis."""

from typing import Any

import keras
from keras import ops

from kerasbert.layers.backend import fused
from kerasbert.layers.random import drop


def normalise(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """(x - mean) / standard deviation * gamma + beta over the last axis, in float32.

    Written as mean -> centre -> mean: the TFLite converter turns it into operations that XNNPACK takes.
    """
    centred = ops.cast(x, "float32")
    centred = centred - ops.mean(centred, axis=-1, keepdims=True)
    variance = ops.mean(centred * centred, axis=-1, keepdims=True)
    return centred * ops.rsqrt(variance + epsilon) * gamma + beta


@fused
def norm(x: Any, gamma: Any, beta: Any, key: Any, *, epsilon: float, rate: float) -> Any:
    """Dropout after the norm."""
    return drop(ops.cast(normalise(x, gamma, beta, epsilon), x.dtype), key, rate)


@fused
def add_and_norm(x: Any, y: Any, gamma: Any, beta: Any, key: Any, *, epsilon: float, rate: float) -> Any:
    """norm(x + dropout(y)): the end of a sublayer (Vaswani et al., 2017, section 5.4)."""
    return ops.cast(normalise(x + drop(y, key, rate), gamma, beta, epsilon), x.dtype)


class LayerNorm(keras.layers.Layer):
    """Layer normalisation (Ba et al., 2016), in float32 whatever the compute type.

    Args:
        epsilon: float, added to the variance.
    Call: x [..., H] -> [..., H]; with y [..., H] norm(x + y). Dropout, where given, is of y or else of the result.
    Trainable weights: 2*H.
    """

    quantizer: Any = None  # what marks the result, see Linear

    def __init__(self, epsilon: float = 1e-12, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        one = {"shape": (shape[-1],), "autocast": False}
        self.gamma = self.add_weight(initializer="ones", name="gamma", **one)
        self.beta = self.add_weight(initializer="zeros", name="beta", **one)

    def call(self, x, y=None, dropout=None, training=False):
        at = {"epsilon": self.epsilon, "rate": dropout.rate if dropout else 0.0}
        key = dropout.key(x, training) if dropout else None
        x = ops.cast(x, self.compute_dtype)
        if y is None:
            return self.mark(norm(x, self.gamma, self.beta, key, **at), key is None)
        return self.mark(add_and_norm(x, y, self.gamma, self.beta, key, **at))

    def mark(self, x, scaled=True, of=None):
        """x, marked by the quantizer where there is one; `scaled`: it ends with gamma and beta, not with dropout."""
        return self.quantizer.mark(x, self.gamma, self.beta, of) if self.quantizer is not None and scaled else x

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def scale(x: Any, gamma: Any, epsilon: float) -> Any:
    """x / root mean square * gamma over the last axis, in float32."""
    x = ops.cast(x, "float32")
    return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon) * gamma


@fused
def rms_norm(x: Any, gamma: Any, key: Any, *, epsilon: float, rate: float) -> Any:
    """Dropout after the norm."""
    return drop(ops.cast(scale(x, gamma, epsilon), x.dtype), key, rate)


class RMSNorm(keras.layers.Layer):
    """Root mean square normalisation (Zhang and Sennrich, 2019, equation 4): no mean is taken off, nothing is added.

    Args:
        epsilon: float, added to the mean square.
    Call: x [..., H] -> [..., H]; dropout, where given, is of the result. Trainable weights: H.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma", autocast=False)

    def call(self, x, dropout=None, training=False):
        rate, key = (dropout.rate, dropout.key(x, training)) if dropout else (0.0, None)
        return rms_norm(ops.cast(x, self.compute_dtype), self.gamma, key, epsilon=self.epsilon, rate=rate)

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
