"""The few operations that keras.ops would compile badly; each has a plain `keras.ops` form with the same result."""

import contextlib
import contextvars
import math
from collections.abc import Callable, Sequence

import keras
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.backend_fused import by_element, differentiated, fused, fusing, fusion  # noqa: F401  # a part of this file
from kerasbert.within import within

TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow as tf

# of the thread that traces: others load, train and answer at the same time
_traced_for: contextvars.ContextVar[str | None] = contextvars.ContextVar("traced_for", default=None)  # a kind of TPU
_serving: contextvars.ContextVar[bool] = contextvars.ContextVar("serving", default=False)
_chips: list[str | None] = [None]  # of the process


def as_tpu(chip: str = "v5e") -> contextlib.AbstractContextManager[object]:
    """Within it, programs are traced as for a TPU of this kind, without one."""
    return within(_traced_for, chip)


def connected(chip: str | None) -> None:
    """Say which kind of TPU this process has, such as v5e; None where it is not known."""
    _chips[0] = chip


def tpu_chip() -> str | None:
    """The kind of TPU that the program being traced is for; None where it is not known."""
    return _traced_for.get() or _chips[0]


def on_tpu() -> bool:
    """Whether the program being traced is for a TPU."""
    return _traced_for.get() is not None or (
        TENSORFLOW and isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
    )


def gather(table: Tensor, ids: Tensor, axis: int = 0) -> Tensor:
    """Rows of a table: [V, E], int [...] -> [..., E]; on another axis of whatever has more.

    Plain tf.gather: `ops.take` adds the SELECT_V2 of its negative indices, which XNNPACK refuses. Of a variable the rows alone
    are read: where an update writes some of them (`training.read_rows`), whoever asks for its value gets a copy of all.
    """
    if TENSORFLOW:
        table = table.value if isinstance(table, keras.Variable) else ops.convert_to_tensor(table)
        return tf.gather(table, ids, axis=axis)
    return ops.take(table, ids, axis=axis)


def pick(x: Tensor, positions: Tensor) -> Tensor:
    """Vectors at positions: [B, S, H], int [B, P] -> [B, P, H].

    On TPU a one-hot contraction (a gather's gradient is a scatter there), elsewhere a gather.
    """
    return pick_by_contraction(x, positions) if on_tpu() else choose(x, positions)


def choose(x: Tensor, index: Tensor, axes: int = 1) -> Tensor:
    """Those of each row: [B, K, ...], int [B, J] -> [B, J, ...].

    Args:
        axes: int, how many the two have in common: with 2 it is [B, Q, K, ...], int [B, Q, J] -> [B, Q, J, ...].
    """
    if TENSORFLOW:
        return tf.gather(x, index, batch_dims=axes)
    return ops.take_along_axis(x, ops.reshape(index, (*index.shape, *(1,) * (len(x.shape) - axes - 1))), axis=axes)


def look_up(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of a small learned table: [V, E], int [...] -> [..., E].

    On TPU a one-hot contraction, as `pick`.
    """
    if not on_tpu():
        return gather(table, ids)
    return ops.matmul(ops.one_hot(ids, table.shape[0], dtype=table.dtype), table)


def pick_by_contraction(x: Tensor, positions: Tensor) -> Tensor:
    """`pick` as a product with one-hot rows; exact, for each row has a single 1."""
    return ops.matmul(ops.one_hot(positions, x.shape[1], dtype=x.dtype), x)


def constant(make: Callable[[], Tensor]) -> Tensor:
    """What `make` gives, as a numpy array, worked out at once whatever is being traced."""
    if not TENSORFLOW:
        return ops.convert_to_numpy(make())
    with tf.init_scope():
        return make().numpy()


def keep(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    """x * scale where `kept`, else 0: [...], bool [...] -> [...].

    In 16 bits a CPU clears the bits of the others: TensorFlow's select of two bytes is not vectorised, four times as long.
    """
    if not TENSORFLOW or on_tpu() or keras.backend.standardize_dtype(x.dtype) not in ("bfloat16", "float16"):
        # a choice, not a product: what the gradient keeps is a byte for each element
        return ops.where(kept, x * ops.cast(scale, x.dtype), ops.cast(0, x.dtype))

    @tf.custom_gradient
    def call(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        bits = tf.bitcast(x * tf.cast(scale, x.dtype), tf.int16)
        bits = tf.bitwise.bitwise_and(bits, -tf.cast(kept, tf.int16))
        return tf.bitcast(bits, x.dtype), call  # linear: its own derivative

    return call(x)


def stable_argsort(x: Tensor) -> Tensor:
    """The order that sorts the last axis, equal numbers as they stand: int32 [..., S] -> int32 [..., S].

    By top_k, which is stable and which a .tflite has.
    """
    if TENSORFLOW:
        return tf.math.top_k(-x, x.shape[-1] or tf.shape(x)[-1]).indices
    return ops.cast(ops.argsort(x, axis=-1), "int32")


def permute(x: Tensor, order: Tensor, undo: Tensor) -> Tensor:
    """Rows in other orders: [B, N, S, D] or [B, N, R, S, D], int32 [B, N, R, S] -> [B, N, R, S, D].

    The gradient is the same by `undo`: that of a gather is a scatter, which is slow.

    Args:
        x: [B, N, S, D] where all R orders are of the same rows.
        order: row i of the result is row order[i].
        undo: the inverse permutation.
    """
    if not TENSORFLOW:
        return permute_plainly(x, order)
    same = len(x.shape) == 4

    def gather_rows(x: Tensor, index: Tensor) -> Tensor:
        if len(x.shape) == 5:
            return tf.gather(x, index, batch_dims=3)
        rows, heads, rounds, length = ops.shape(index)
        flat = tf.gather(x, reshape(index, (rows, heads, rounds * length)), batch_dims=2)
        return reshape(flat, (rows, heads, rounds, length, x.shape[-1]))

    @tf.custom_gradient
    def call(x: Tensor) -> tuple[Tensor, Callable]:
        def gradient(upstream: Tensor) -> Tensor:
            found = gather_rows(upstream, undo)
            return tf.reduce_sum(found, axis=2) if same else found

        return gather_rows(x, order), gradient

    return call(x)


def permute_plainly(x: Tensor, order: Tensor) -> Tensor:
    """`permute` with the gradient of a gather."""
    x = ops.expand_dims(x, 2) if len(x.shape) == 4 else x
    return ops.take_along_axis(x, ops.expand_dims(order, -1), axis=3)


def argmax(x: Tensor) -> Tensor:
    """Index of the largest on the last axis, the first of equal ones: [..., V] -> int32 [...].

    For a TPU, which has no int64, it is the least index at which the maximum stands: XLA's argmax counts in int64.
    """
    if on_tpu():
        column = ops.arange(x.shape[-1], dtype="int32")
        largest = ops.equal(x, ops.max(x, axis=-1, keepdims=True))
        return ops.min(ops.where(largest, column, x.shape[-1] - 1), axis=-1)
    return tf.argmax(x, axis=-1, output_type=tf.int32) if TENSORFLOW else ops.cast(ops.argmax(x, axis=-1), "int32")


def reshape(x: Tensor, shape: tuple) -> Tensor:
    """`ops.reshape` whose only unknown size is -1: computed sizes are operators of the device graph, 25 a layer."""
    known = tuple(size if isinstance(size, int) else -1 for size in shape)
    return ops.reshape(x, known if known.count(-1) == 1 else shape)


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """[..., H] x [H, D] -> [..., D] as one flat product.

    A batched product sums its kernel gradient over B afterwards: twice the time on CPU (bf16 einsum: 27 times).
    """
    if len(x.shape) == 2:
        return ops.matmul(x, kernel)
    shape = ops.shape(x)
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    return reshape(flat, (*shape[:-1], ops.shape(kernel)[-1]))


def by_head(x: Tensor, matrices: Tensor) -> Tensor:
    """Products with matrices that rows have in common: [B, N, Q, D] x [1 or B, N, D, R] -> [B, N, Q, R].

    TensorFlow's product on a CPU (2.20) gives other memory's numbers where N is 1 and one matrix is for several rows.
    """
    if x.shape[1] != 1 or matrices.shape[0] != 1:
        return ops.matmul(x, matrices)
    return ops.expand_dims(project(x[:, 0], matrices[0, 0]), 1)


def serving() -> contextlib.AbstractContextManager[object]:
    """Within it, graphs are traced for TensorFlow's own kernels on a CPU: predictions and SavedModels."""
    return within(_serving, TENSORFLOW)


def affine(
    x: Tensor, kernel: Tensor, bias: Tensor, activation: Callable[[Tensor], Tensor] | None, gelu: bool
) -> Tensor | None:
    """activation(x @ kernel + bias), [..., H] -> [..., D], where `serving`: one operator, or two, of oneDNN; else None.

    TensorFlow's graph optimizer finds MatMul, BiasAdd and the exact GELU behind each other, with no reshape between and the
    GELU written as here.
    """
    if not _serving.get():
        return None
    half = tf.cast(0.5, x.dtype)
    y = tf.nn.bias_add(tf.matmul(tf.reshape(x, (-1, x.shape[-1])), tf.convert_to_tensor(kernel)), bias)
    if gelu:
        y = (tf.math.erf(y * tf.cast(0.5**0.5, x.dtype)) + tf.cast(1.0, x.dtype)) * half * y
    elif activation is not None:
        y = activation(y)
    return reshape(y, (*ops.shape(x)[:-1], kernel.shape[-1]))


def gelu(x: Tensor) -> Tensor:
    """The exact GELU, x * Phi(x) (Hendrycks and Gimpel, 2016, section 2): [...] -> [...]; in 16 bits worked out in float32.

    TensorFlow's erfc of bfloat16 takes a CPU eight times as long as its erf of float32, and is less exact. Kept for the gradient
    is the derivative in the type of x, where automatic differentiation keeps four arrays. A TPU's compiler needs neither.
    """
    if not TENSORFLOW or on_tpu() or keras.backend.standardize_dtype(x.dtype) not in ("bfloat16", "float16"):
        return ops.gelu(x, approximate=False)
    return _gelu_of_16_bits(x)[0] if _serving.get() else ops.custom_gradient(_gelu_of_16_bits)(x)


def _gelu_of_16_bits(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    y, derivative = _gelu_and_derivative(x)
    return y, lambda upstream: upstream * derivative


@by_element
def _gelu_and_derivative(x: Tensor) -> Sequence[Tensor]:
    inner = ops.cast(x, "float32")
    phi = 0.5 + 0.5 * ops.erf(inner * 0.5**0.5)
    density = ops.exp(-0.5 * ops.square(inner)) * (2 * math.pi) ** -0.5
    return ops.cast(inner * phi, x.dtype), ops.cast(phi + inner * density, x.dtype)


def softmax(scores: Tensor, dtype: str) -> Tensor:
    """Softmax over the last axis, worked out in float32: float32 [..., K] -> `dtype` [..., K].

    On TPU the gradient reads the rounded result: automatic differentiation would keep the float32 one, [B, N, Q, K] a layer.
    """
    if not on_tpu() or dtype == "float32":
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    return _rounded_softmax(dtype)(scores)


def _rounded_softmax(dtype: str) -> Tensor:
    @ops.custom_gradient
    def call(scores: Tensor) -> tuple[Tensor, Callable]:
        rounded = ops.cast(ops.softmax(scores, axis=-1), dtype)

        def gradient(upstream: Tensor) -> Tensor:
            p, g = ops.cast(rounded, "float32"), ops.cast(upstream, "float32")
            return p * (g - ops.sum(p * g, axis=-1, keepdims=True))

        return rounded, gradient

    return call


def scan(
    body: Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]],
    inputs: Sequence[Tensor],
    state: Sequence[Tensor],
    outputs: Sequence[Tensor],
    reverse: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """A loop over the first axis. One graph whatever the length: a WHILE of a .tflite, which XLA compiles too.

    `keras.ops.scan` fails on TensorFlow with two carried arrays and one output (Keras 3.15.1).

    Args:
        body: (elements of the inputs, state) -> (outputs of this place, state).
        inputs: [T, ...] each.
        state: arrays that are carried; their shapes and types stay.
        outputs: an array of the shape and type of each output of one place.
        reverse: bool, from the last place to the first.

    Returns:
        (the outputs [T, ...] in the order of the inputs, the state at the end).
    """
    if not TENSORFLOW:
        return scan_plainly(body, inputs, state, outputs, reverse)
    static = inputs[0].shape[0]
    length = tf.shape(inputs[0])[0] if static is None else static
    arrays = [tf.TensorArray(x.dtype, length, element_shape=x.shape[1:]).unstack(x) for x in inputs]
    results = tuple(tf.TensorArray(x.dtype, length, element_shape=x.shape) for x in outputs)

    def step(count: Tensor, results: Sequence[tf.TensorArray], state: Sequence[Tensor]) -> tuple:
        place = length - 1 - count if reverse else count
        found, after = body([array.read(place) for array in arrays], list(state))
        for one, other in zip(after, state, strict=True):
            one.set_shape(other.shape)
        return count + 1, tuple(a.write(place, y) for a, y in zip(results, found, strict=True)), tuple(after)

    begin = (tf.constant(0), results, tuple(tf.convert_to_tensor(x) for x in state))
    _, results, state = tf.while_loop(lambda count, *_: count < length, step, begin, maximum_iterations=static)
    return [array.stack() for array in results], list(state)


def scan_plainly(
    body: Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]],
    inputs: Sequence[Tensor],
    state: Sequence[Tensor],
    outputs: Sequence[Tensor],
    reverse: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """`scan` place after place, as many operations as there are places."""
    places = range(inputs[0].shape[0])
    found, state = {}, list(state)
    for place in reversed(places) if reverse else places:
        found[place], after = body([x[place] for x in inputs], state)
        state = list(after)
    return [ops.stack([found[place][i] for place in places]) for i in range(len(outputs))], state


def gradients(
    fn: Callable[..., Sequence[Tensor]], arrays: Sequence[Tensor], upstream: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of sum(y * upstream) by each of the arrays, y the arrays fn(*arrays); zeros where there is none."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(list(arrays))
        y = fn(*arrays)
    zero = tf.UnconnectedGradients.ZERO
    return tape.gradient(list(y), list(arrays), output_gradients=list(upstream), unconnected_gradients=zero)


def reverse_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """The first `lengths` elements of each row the other way round, the others as they stand: [B, S, ...], int32 [B]."""
    if TENSORFLOW:
        return tf.reverse_sequence(x, lengths, seq_axis=1, batch_axis=0)
    return reverse_rows_plainly(x, lengths)


def reverse_rows_plainly(x: Tensor, lengths: Tensor) -> Tensor:
    """`reverse_rows` as a gather."""
    place, length = ops.arange(ops.shape(x)[1], dtype="int32"), ops.expand_dims(lengths, 1)
    return choose(x, ops.where(place < length, length - 1 - place, place))
