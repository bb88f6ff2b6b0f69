"""Functions between the matrix products, which CPU training compiles; and what makes their gradients fast there."""

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from kerasbert.captured_output import captured
from kerasbert.inputs import Tensor
from kerasbert.within import within

TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow as tf

# whether functions are compiled, from how many elements on, and those of open sizes too
_fusion: contextvars.ContextVar[tuple[bool, int, bool]] = contextvars.ContextVar("fusion", default=(False, 0, False))


def fusion(on: bool, least: int = 0, elements: bool = False) -> contextlib.AbstractContextManager[object]:
    """Whether functions marked `fused` are compiled in what is traced within; the step core says so on CPU.

    Args:
        least: int, elements: calls whose largest array has fewer are not compiled.
        elements: bool, whether those marked `by_element` are, whose arrays may have open sizes.
    """
    return within(_fusion, (on and TENSORFLOW, least, elements and TENSORFLOW))


def fusing() -> bool:
    """Whether what is traced now is within `fusion`."""
    return _fusion.get()[0]


class ByHand(NamedTuple):
    """A gradient written by hand, where automatic differentiation makes slow programs.

    `forward(*arrays, **static)` gives (the result, a tuple of what the gradient needs: arguments, results, other arrays, None);
    `backward(upstream, *kept, **static)` gives one gradient for each of the arrays, of whatever floating-point type, or None.
    Where the result is a tuple, so is `upstream`.
    """

    forward: Callable[..., tuple[Tensor | tuple[Tensor, ...], tuple[Tensor | None, ...]]]
    backward: Callable[..., tuple[Tensor | None, ...]] | None = None  # of what is never differentiated


def fused(fn: Callable | None = None, *, constant: tuple[int, ...] = (), by_hand: ByHand | None = None) -> Callable:
    """Mark a function that works element by element or row by row: in CPU training XLA compiles it into one loop.

    The matrix products between fused functions stay with TensorFlow's oneDNN, which is faster than XLA's on CPU. The
    backward pass computes the function again from its arguments instead of keeping what lies between. Elsewhere (TPU,
    export, inference, other backends) the function is itself.

    Args:
        fn: (*arrays, **static) -> array or tuple of arrays; an array may be None. Keyword arguments are hashable.
        constant: positions of floating-point arrays that seldom need a gradient: it is computed where a tape asks for it.
        by_hand: what is compiled instead of `fn` and its automatic gradient.
    """
    if fn is None:
        return functools.partial(fused, constant=constant, by_hand=by_hand)

    @functools.wraps(fn)
    def call(*arrays: Tensor, **static: Any) -> Any:
        on, least, _ = _fusion.get()
        if not on:
            return fn(*arrays, **static)
        tensors = [None if x is None else tf.convert_to_tensor(x) for x in arrays]
        if max(x.shape.num_elements() or least for x in tensors if x is not None) < least:
            return fn(*arrays, **static)
        kinds = tuple(
            None if x is None else x.dtype.is_floating and (i not in constant or differentiated(x))
            for i, x in enumerate(tensors)
        )
        return _compiled(fn, kinds, tuple(sorted(static.items())), by_hand)(*(x for x in tensors if x is not None))

    return call


def by_element(fn: Callable[[Tensor], Sequence[Tensor]]) -> Callable[[Tensor], Sequence[Tensor]]:
    """Mark a function that works element by element: x [...] -> arrays [...]. XLA compiles it where `fusion` says `elements`.

    Sizes may be open: it is compiled while the graph runs, once for each number of elements, in .06 CPU-seconds.
    """

    @functools.cache
    def compiled() -> Callable[[Tensor], Sequence[Tensor]]:
        return tf.function(lambda x: fn(x), jit_compile=True, autograph=False)

    @functools.wraps(fn)
    def call(x: Tensor) -> Sequence[Tensor]:
        if not _fusion.get()[2]:
            return fn(x)
        found = [tf.reshape(y, tf.shape(x)) for y in compiled()(tf.reshape(x, (-1,)))]
        return [tf.ensure_shape(y, x.shape) for y in found]

    return call


def differentiated(x: Tensor) -> bool:
    """Whether a gradient tape records what is computed from x: x depends on a weight that is trained."""
    from tensorflow.python.eager import record  # TensorFlow has no public name for the question

    return record.should_record_backprop([x])


def _whole(arrays: Sequence[Tensor], kinds: tuple) -> list[Tensor]:
    """The arrays of a call with the None among them that `kinds` tells of."""
    left = iter(arrays)
    return [None if kind is None else next(left) for kind in kinds]


@functools.cache
def _compiled(fn: Callable, kinds: tuple, static: tuple, by_hand: ByHand | None) -> Callable:
    """The compiled `fn`; one for all layers that call it alike, so that each shape is compiled once.

    Args:
        kinds: of each array: None where it is None, else whether a gradient is asked for.
    """
    wanted = [i for i, kind in enumerate(kinds) if kind]
    settings, part = dict(static), by_hand or _automatic(fn, wanted)
    # of what is kept: where it stands among the arguments and the result, or None; told by tracing
    places: list[int | None] = []

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def forward(*given: Tensor) -> tuple[Any, list[Tensor]]:
        arrays = _whole(given, kinds)
        with fusion(False):
            y, kept = part.forward(*arrays, **settings)
        # a compiled function would give a copy
        there = [*arrays, *tf.nest.flatten(y)]
        places[:] = [next((i for i, x in enumerate(there) if x is one), None) for one in kept]
        return y, [one for one, place in zip(kept, places) if place is None]

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def backward(upstream: Any, kept: Sequence[Tensor], types: Sequence[str]) -> list[Tensor]:
        assert part.backward is not None  # `_with_gradient` of objectives.lm_loss gives the gradient itself
        with fusion(False):
            found = part.backward(upstream, *kept, **settings)
        return [ops.cast(found[i], type) for i, type in zip(wanted, types)]

    @tf.custom_gradient
    def call(*arrays: Tensor) -> tuple[Any, Callable]:
        (y, more), own = forward(*arrays), _whole(arrays, kinds)
        left, there = iter(more), [*own, *tf.nest.flatten(y)]
        kept = [next(left) if place is None else there[place] for place in places]
        types = tuple(own[i].dtype.name for i in wanted)

        def gradient(*upstream: Any) -> list[Tensor]:
            found = backward(upstream[0] if len(upstream) == 1 else upstream, kept, types)
            by_position = dict(zip(wanted, found))
            for i, one in by_position.items():  # TensorFlow would take one of another shape
                one.shape.assert_is_compatible_with(own[i].shape)
            return [by_position.get(i) for i, x in enumerate(own) if x is not None]

        return y, gradient

    return call


def _automatic(fn: Callable, wanted: list[int]) -> ByHand:
    """The gradient that TensorFlow makes of `fn`, by the arrays at these positions; only they are kept."""

    def forward(*arrays: Tensor, **settings: Any) -> tuple[Any, tuple[Tensor, ...]]:
        return fn(*arrays, **settings), arrays

    def backward(upstream: Tensor, *arrays: Tensor, **settings: Any) -> tuple[Tensor | None, ...]:
        watched = [arrays[i] for i in wanted]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            y = fn(*arrays, **settings)
        zero = tf.UnconnectedGradients.ZERO
        found = dict(zip(wanted, tape.gradient(y, watched, output_gradients=upstream, unconnected_gradients=zero)))
        return tuple(found.get(i) for i in range(len(arrays)))

    return ByHand(forward, backward)


def with_derivative(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """y and dy/dx of a function that works element by element."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


def row_sums(x: Tensor) -> Tensor:
    """Sums over the last axis: float32 [..., H] -> [..., 1], as a product with ones.

    XLA's CPU compiler turns a reduction of a fused function into `reduce-window`, which is several times slower.
    """
    if None in x.shape:
        return ops.sum(x, axis=-1, keepdims=True)
    ones = ops.ones((x.shape[-1], 1), x.dtype)
    return ops.reshape(ops.matmul(ops.reshape(x, (-1, x.shape[-1])), ones), (*x.shape[:-1], 1))


def column_sums(x: Tensor) -> Tensor:
    """Sums over all axes but the last: [..., H] -> [H], as sums of sixteen slices at a time (see `row_sums`)."""
    if None in x.shape:
        return ops.sum(x, axis=tuple(range(len(x.shape) - 1)))
    x = ops.reshape(x, (-1, x.shape[-1]))
    while x.shape[0] > 1:
        x = _of_slices(tf.add_n, x, 0)
    return x[0]


def row_max(x: Tensor) -> Tensor:
    """Maxima over the last axis: [..., H] -> [..., 1], as maxima of sixteen slices at a time (see `row_sums`)."""
    while (x.shape[-1] or 0) > 16:
        x = _of_slices(lambda slices: functools.reduce(ops.maximum, slices), x, -1)
    return ops.max(x, axis=-1, keepdims=True)


def _of_slices(function: Callable[[list[Tensor]], Tensor], x: Tensor, axis: int) -> Tensor:
    """x cut into sixteen slices along the axis (fewer where it is shorter), and these put together by the function."""
    size = x.shape[axis]
    width = -(-size // min(16, size))
    whole, left = divmod(size, width)
    *slices, end = tf.split(x, [width] * whole + [left], axis=axis)
    found = function(slices)
    if left:  # a shorter slice
        begin, rest = tf.split(found, [left, width - left], axis=axis)
        found = tf.concat([function([begin, end]), rest], axis=axis)
    return found


@functools.cache
def silence_compiler() -> None:
    """Have XLA say where nobody sees it that it compiles, a line that each process gets once, with one about the log itself."""
    with captured((2,)) as read:
        tf.function(lambda x: x + 1.0, jit_compile=True, autograph=False)(0.0)
        said = read().splitlines(keepends=True)
    for line in said:  # another thread's
        if not any(known in line for known in ("Compiled cluster using XLA", "absl::InitializeLog", "XLA service")):
            sys.stderr.write(line)
