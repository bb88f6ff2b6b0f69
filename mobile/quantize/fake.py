"""Fake quantization: float numbers that int8 can hold, with the gradient of the float ones (Jacob et al., 2018, section 3).

The rounding is that of the files that `compress` writes, so that a model is trained on the numbers that a phone sees.
"""

from typing import Any

import tensorflow as tf
from keras import ops

from kerasbert.layers import backend

SMALLEST = 1024  # elements: the TFLite converter leaves smaller matrices in float
STEPS = 127  # of weights, which are symmetric: -127 to 127
LEAST = 1e-30  # a scale is not 0


@ops.custom_gradient
def per_output(kernel: Any) -> Any:
    """Weights with a scale for each output: float32 [H, D] -> [H, D], each column in steps of its largest / 127."""
    scale = ops.maximum(ops.max(ops.abs(kernel), axis=0, keepdims=True) / STEPS, LEAST)
    return ops.round(kernel / scale) * scale, _straight


@ops.custom_gradient
def per_token(x: Any) -> Any:
    """Activations as the kernels of dynamic int8 read them: float32 [..., H], each row in 255 steps of its own range.

    The range holds 0, which stays 0 (XNNPACK: xnn_qd8_asymmetric_quantization_params; TFLite's reference is the same).
    """
    low = ops.minimum(ops.min(x, axis=-1, keepdims=True), 0.0)
    high = ops.maximum(ops.max(x, axis=-1, keepdims=True), 0.0)
    empty = ops.equal(low, high)
    steps = 255.0 / ops.where(empty, 1.0, high - low)
    zero = ops.clip(ops.round(-128.0 - low * steps), -128.0, 127.0)
    whole = ops.clip(ops.round(x * steps) + zero, -128.0, 127.0)
    return ops.where(empty, x, (whole - zero) / steps), _straight


@ops.custom_gradient
def in_steps(x: Any, scale: Any) -> Any:
    """x in whole multiples of a positive scalar, at most 127 of them."""

    def gradient(upstream):
        return upstream, ops.zeros_like(scale)

    return ops.clip(ops.round(x / scale), -STEPS, STEPS) * scale, gradient


def _straight(upstream: Any) -> Any:
    """The straight-through gradient: as if nothing had been rounded (Bengio et al., 2013)."""
    return upstream


class PerChannel:
    """A layer's products as a `dynamic_int8` file works them out: a `layers.quantizer.Quantizer` for all layers.

    Kernels have a scale per output channel, activations a range per token, a table read by ids one scale. Where a norm's
    result is read by a product directly, the converter moves gamma and beta into the kernel and the bias before it rounds
    (with the lengths of buckets; a file of any length does not), and so does this.

    Args:
        on: bool variable that says whether to round, or None for always.
    """

    def __init__(self, on: tf.Variable | None = None):
        self.on = on

    def project(self, x, kernel):
        """x [..., H], kernel [H, D] -> [..., D]; worked out in float32, whatever the compute type."""
        norm = getattr(x, "_gamma_beta", None)
        return self._when(lambda: self._product(x, kernel, norm), lambda: backend.project(x, kernel))

    def _product(self, x, kernel, norm):
        dtype, x, kernel = x.dtype, ops.cast(x, "float32"), ops.cast(kernel, "float32")
        if norm is None:
            return ops.cast(backend.project(per_token(x), per_output(kernel)), dtype)
        gamma, beta = norm
        z = ops.divide_no_nan(x - beta, gamma)
        y = backend.project(per_token(z), per_output(ops.expand_dims(gamma, -1) * kernel))
        return ops.cast(y + ops.matmul(ops.expand_dims(beta, 0), kernel)[0], dtype)

    def gather(self, table, ids):
        """Rows of a table; only they are rounded."""
        rows = backend.gather(table, ids)
        return self._when(lambda: in_steps(rows, table_scale(table)), lambda: rows)

    def mark(self, x, gamma, beta):
        """x; the mark is gone with the first operation on x, as the converter's patterns are."""
        x._gamma_beta = ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta)
        return x

    def _when(self, rounded, plain):
        return rounded() if self.on is None else tf.cond(self.on, rounded, plain)


def table_scale(table: Any) -> Any:
    """The step of a table with one scale: its largest element / 127."""
    largest = ops.max(ops.abs(ops.stop_gradient(ops.convert_to_tensor(table))))
    return ops.maximum(largest / STEPS, LEAST)
