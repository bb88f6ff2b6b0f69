"""Fake quantization: float numbers that int8 can hold, with the gradient of the float ones (Jacob et al., 2018, section 3).

The rounding is that of the files that `compress` writes, so that a model is trained on the numbers that a phone sees.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers import backend, random

SMALLEST = 1024  # elements: the TFLite converter leaves smaller matrices in float
STEPS = 127  # of weights, which are symmetric: -127 to 127
LEAST = 1e-30  # a scale is not 0
SPREAD = 3.0  # times the mean of the tokens' largest values: beyond, an activation is cut off


@ops.custom_gradient
def per_output(kernel: Tensor) -> Tensor:
    """Weights with a scale for each output: float32 [H, D] -> [H, D], each column in steps of its largest / 127."""
    scale = ops.maximum(ops.max(ops.abs(kernel), axis=0, keepdims=True) / STEPS, LEAST)
    return ops.round(kernel / scale) * scale, _straight


@ops.custom_gradient
def per_token(x: Tensor) -> Tensor:
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
def in_steps(x: Tensor, scale: Tensor) -> Tensor:
    """x in whole multiples of a positive scalar, at most 127 of them."""

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        return upstream, ops.zeros_like(scale)

    return ops.clip(ops.round(x / scale), -STEPS, STEPS) * scale, gradient


def _straight(upstream: Tensor) -> Tensor:
    """The straight-through gradient: as if nothing had been rounded (Bengio et al., 2013)."""
    return upstream


@dataclasses.dataclass(frozen=True)
class _Affine:
    """Where a tensor comes from: z * gamma + beta (None: 1), z the product with `kernel` (None: a norm's)."""

    gamma: Tensor | None
    beta: Tensor | None
    kernel: Tensor | None = None


class PerChannel:
    """A layer as a `dynamic_int8` file works it out: a `layers.quantizer.Quantizer` for all layers of a model.

    Kernels have a scale per output channel, activations a range per token, a table read by ids one scale.

    In files of known lengths the converter moves what a norm ends with, gamma and beta, into the kernel and the bias of a
    product that reads the norm directly, and the bias of a product that others read directly into theirs; it rounds after
    that, and so does this. A matrix product whose bias was folded into its consumer does not fold the preceding norm.
    (A file of any length moves nothing.)

    Args:
        on: bool variable that says whether to round, or None for always.
    """

    def __init__(self, on: tf.Variable | None = None) -> None:
        self.on = on
        self.given: set[int] = set()  # ids of the kernels whose bias goes to their readers, known after a forward pass

    def linear(self, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        """x [..., H] @ kernel [H, D] + bias [D] -> [..., D]; in float32, whatever the compute type."""
        came = getattr(x, "_affine", None)
        if came is not None and came.kernel is not None:
            self.given.add(id(came.kernel))
        variable, kernel, bias = kernel, ops.convert_to_tensor(kernel), ops.convert_to_tensor(bias)
        folded = None if id(variable) in self.given else came
        y = self._when(lambda: self._product(x, kernel, folded), lambda: backend.project(x, kernel)) + bias
        y._affine = _Affine(None, bias, variable)
        return y

    def _product(self, x: Tensor, kernel: Tensor, came: "_Affine | None") -> Tensor:
        dtype, x, kernel = x.dtype, ops.cast(x, "float32"), ops.cast(kernel, "float32")
        if came is None:
            return ops.cast(backend.project(per_token(x), per_output(kernel)), dtype)
        beta = ops.cast(came.beta, "float32")
        z, inner = x - beta, kernel
        if came.gamma is not None:
            z, inner = ops.divide_no_nan(z, came.gamma), ops.expand_dims(came.gamma, -1) * kernel
        y = backend.project(per_token(z), per_output(inner)) + ops.matmul(ops.expand_dims(beta, 0), kernel)
        return ops.cast(y, dtype)

    def gather(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows of a table; only they are rounded."""
        rows = backend.gather(table, ids)
        return self._when(lambda: in_steps(rows, table_scale(table)), lambda: rows)

    def mark(self, x: Tensor, gamma: Tensor, beta: Tensor, of: Tensor = None) -> Tensor:
        """x; the mark is gone with the next operation on x, as for the converter, whose patterns are pairs of operations."""
        came = getattr(of, "_affine", None)
        gamma, beta = ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta)
        if came is None:
            x._affine = _Affine(gamma, beta)
        else:
            x._affine = _Affine(gamma, ops.cast(came.beta, gamma.dtype) * gamma + beta, came.kernel)
        return x

    def _when(self, rounded: Callable[[], Tensor], plain: Callable[[], Tensor]) -> Tensor:
        return rounded() if self.on is None else tf.cond(self.on, rounded, plain)


class PerTensor:
    """One Linear as static int8 works it out: input and output have one range each; a `layers.quantizer.Quantizer`.

    The kernel has a scale per output channel, which the converter chooses however it is told to, and no norm moves into it.
    What the inputs and outputs reached is noted in the training pass, by each replica for itself; `learn` makes the moving
    averages of it that are rounded by (Jacob et al., 2018, section 3.1). Differs: a range ends at SPREAD times what a token
    reaches on average. In MiniLM a feed-forward network writes 194 into one coordinate of [CLS] and [SEP], where other tokens
    stay below 5: 256 steps for all of it leave those none. What is cut off, the norm after it divides out.

    Args:
        on: bool variable that says whether to round, or None for always.
        ranges: float32 [2, 2], least and largest of input and output; None to learn them.
    """

    def __init__(self, on: tf.Variable | None = None, ranges: np.ndarray | None = None) -> None:
        self.on = on
        if ranges is not None:
            self.ranges, self.seen = tf.constant(ranges, tf.float32), None
            return
        self.ranges = tf.Variable(tf.zeros((2, 2)), trainable=False)
        local = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
        self.seen = tf.Variable(tf.zeros((2, 4)), trainable=False, **local)

    def linear(self, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        """x [..., H] @ kernel [H, D] + bias [D] -> [..., D]; in float32, whatever the compute type."""
        kernel, bias = ops.convert_to_tensor(kernel), ops.convert_to_tensor(bias)
        y = self._when(lambda: self._product(x, kernel, bias), lambda: backend.project(x, kernel) + bias)
        if self.seen is not None and random.scoped():
            self.seen.assign(joined(self.seen, ops.stop_gradient(ops.stack([extent(x), extent(y)]))))
        return y

    def _product(self, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        dtype, x, kernel = x.dtype, ops.cast(x, "float32"), ops.cast(kernel, "float32")
        y = backend.project(self._rounded(x, 0), per_output(kernel)) + ops.cast(bias, "float32")
        return ops.cast(self._rounded(y, 1), dtype)

    def _rounded(self, x: Tensor, place: int) -> Tensor:
        """256 steps of the range; no gradient where a value lies outside of it."""
        least, largest = self.ranges[place, 0], self.ranges[place, 1]
        return tf.quantization.fake_quant_with_min_max_vars(x, least, largest)

    def learn(self, strategy: tf.distribute.Strategy, decay: float) -> None:
        """Move the ranges towards what the replicas saw in the last update, and forget that; in the cross-replica context."""
        reached = limits(self.reached(strategy))
        old = tf.convert_to_tensor(self.ranges)
        new = tf.where(tf.reduce_any(old != 0.0), decay * old + (1.0 - decay) * reached, reached)
        self.ranges.assign(tf.where(tf.math.is_finite(new), new, old))  # an update that exploded was left out
        self.note(strategy, tf.zeros((2, 4)))

    def reached(self, strategy: tf.distribute.Strategy) -> tf.Tensor:
        """What the replicas saw together: `extent` of input and output, float32 [2, 4]."""
        every = [tf.convert_to_tensor(local) for local in strategy.experimental_local_results(self.seen)]
        return functools.reduce(joined, every)

    def note(self, strategy: tf.distribute.Strategy, values: Tensor) -> None:
        """Let every replica have seen that."""
        for local in strategy.experimental_local_results(self.seen):
            local.assign(values)

    def _when(self, rounded: Callable[[], Tensor], plain: Callable[[], Tensor]) -> Tensor:
        return rounded() if self.on is None else tf.cond(self.on, rounded, plain)


def extent(x: Tensor) -> Tensor:
    """Least and largest value, the sum of the tokens' largest absolute values, and their number: [..., D] -> float32 [4]."""
    x = ops.cast(x, "float32")
    tokens = ops.max(ops.abs(x), axis=-1)
    return ops.stack([ops.min(x), ops.max(x), ops.sum(tokens), ops.cast(ops.size(tokens), "float32")])


def joined(one: Tensor, other: Tensor) -> Tensor:
    """The extent [..., 4] of what both are of."""
    least, largest = ops.minimum(one[..., 0], other[..., 0]), ops.maximum(one[..., 1], other[..., 1])
    return ops.concatenate([ops.stack([least, largest], axis=-1), one[..., 2:] + other[..., 2:]], axis=-1)


def limits(extents: Tensor) -> Tensor:
    """The ranges [..., 2] of extents [..., 4]."""
    far = SPREAD * extents[..., 2] / ops.maximum(extents[..., 3], 1.0)
    return ops.stack([ops.maximum(extents[..., 0], -far), ops.minimum(extents[..., 1], far)], axis=-1)


def table_scale(table: Tensor) -> Tensor:
    """The step of a table with one scale: its largest element / 127."""
    largest = ops.max(ops.abs(ops.stop_gradient(ops.convert_to_tensor(table))))
    return ops.maximum(largest / STEPS, LEAST)
