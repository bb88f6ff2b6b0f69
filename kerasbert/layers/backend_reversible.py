"""What `layers.reversible` needs of TensorFlow: a gradient that works out its inputs again, and loops over pieces.

On Keras' other backends the gradients are ordinary ones, and pieces follow each other in the program.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.backend import TENSORFLOW, fusing, fusion, on_tpu

if TENSORFLOW:
    import tensorflow as tf


def reversible(halves: Sequence[Tensor], a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Reversible residual sublayers (Gomez et al., 2017, section 3): (a, b) -> (b, a + half(b)), one after the other.

    Nothing between is kept: the gradient works out each sublayer's input from its output, a = b' - half(a'), and the
    sublayer a second time.

    Args:
        halves: `layers.reversible.Half`s: `weights`, a list of variables, `size`, the places that are computed together or
            0 for all, `forward(x, weights)` -> (y, what it has drawn) and `again(piece, weights, drawn, first)` -> y of
            these places, by the same draws.
        a: float32 [B, S, H].
        b: float32 [B, S, H].
    """
    if not TENSORFLOW:
        return reversible_plainly(halves, a, b)
    from tensorflow.python.eager import record  # a tape would keep what the gradient works out again

    counts, on = [len(half.weights) for half in halves], fusing()

    @tf.custom_gradient
    def call(a: Tensor, b: Tensor, *weights: Any) -> tuple:
        left = iter(weights)
        own = [[next(left) for _ in range(count)] for count in counts]
        draws = []
        with record.stop_recording():
            for half, tensors in zip(halves, own, strict=True):
                # masks that follow from draws alone would be computed for all layers at the start, and wait
                with tf.control_dependencies([b]):
                    y, drawn = half.forward(b, tensors)
                a, b = b, a + tf.cast(y, a.dtype)
                draws.append(drawn)

        def gradient(of_a: Tensor, of_b: Tensor, variables: Sequence[Tensor] = ()) -> tuple | list:
            x, y, found = a, b, []
            with fusion(on):
                for half, tensors, drawn in reversed(list(zip(halves, own, draws, strict=True))):
                    # else the masks would be those of the forward pass, kept meanwhile
                    again = list(_after([x, of_b], *drawn)) if drawn else []
                    with tf.control_dependencies([x, of_b]):
                        value, of_x, of_weights = _half_gradient(half, tensors, again, x, of_b)
                    x, y, of_a, of_b = _after(of_weights, y - value, x, of_b, of_a + of_x)
                    found.append(of_weights)
            found = [each for of_weights in reversed(found) for each in of_weights]
            # what the sublayers read beside their weights, such as a step's number, has none
            return ([of_a, of_b, *found], [None] * len(variables)) if variables else [of_a, of_b, *found]

        return (a, b), gradient

    # read here, once: a custom gradient by tensors has nothing to do with variables and replicas
    return call(a, b, *(tf.convert_to_tensor(weight) for half in halves for weight in half.weights))


def reversible_plainly(halves: Sequence[Tensor], a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """`reversible` with ordinary gradients, which keep what every sublayer has computed."""
    for half in halves:
        a, b = b, a + ops.cast(half.forward(b, half.weights)[0], a.dtype)
    return a, b


def _half_gradient(
    half: Tensor, weights: list[Tensor], drawn: Tensor, x: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """half(x), the gradient by x, and those by its weights; piece after piece."""

    def step(first: int, total: list[Tensor], piece: Tensor, upstream: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([piece, *weights])
            y = half.again(piece, weights, drawn, first)
        upstream, zero = tf.cast(upstream, y.dtype), tf.UnconnectedGradients.ZERO
        found = tape.gradient(y, [piece, *weights], output_gradients=upstream, unconnected_gradients=zero)
        total = [one + tf.convert_to_tensor(other) for one, other in zip(total, found[1:])]
        return total, [tf.cast(y, x.dtype), found[0]]

    (value, of_x), of_weights = loop_of_pieces(step, [x, upstream], half.size, list(map(tf.zeros_like, weights)))
    return value, of_x, of_weights


def loop_of_pieces(
    step: Callable[..., tuple[list[Tensor], list[Tensor]]],
    arrays: Sequence[Tensor],
    size: int,
    total: Sequence[Tensor] = (),
) -> tuple[list[Tensor], list[Tensor]]:
    """A function of `size` places at once, in a loop, which holds one piece at a time however many there are.

    Args:
        step: (the piece's first place, int32 or 0, the totals, *pieces [B, size, H]) -> (totals, results [B, size, H]). The
            last piece is filled with zeros, and what `step` gives of them is left out.
        arrays: [B, S, H], all alike.
        size: int, or 0 for all at once, as where S is not known before.
        total: arrays that the pieces add to.

    Returns:
        (results [B, S, H], totals).
    """
    length = arrays[0].shape[1]
    if not size or length is None or length <= size:
        total, results = step(0, list(total), *arrays)
        return results, total
    filling, count = -length % size, -(-length // size)
    arrays = [ops.pad(x, [[0, 0], [0, filling], [0, 0]]) if filling else x for x in arrays]
    if not TENSORFLOW:
        found = []
        for first in range(0, length, size):
            total, results = step(first, total, *(x[:, first : first + size] for x in arrays))
            found.append(results)
        return [ops.concatenate(parts, axis=1)[:, :length] for parts in zip(*found)], list(total)
    rows, width = tf.shape(arrays[0])[0], arrays[0].shape[2]

    def body(i: Tensor, first: Tensor, buffers: list[tf.TensorArray], total: list[Tensor]) -> tuple:
        pieces = [tf.slice(x, [0, first, 0], [rows, size, width]) for x in arrays]
        for piece in pieces:
            piece.set_shape((arrays[0].shape[0], size, width))
        total, results = step(first, total, *pieces)
        return i + 1, first + size, [buffer.write(i, y) for buffer, y in zip(buffers, results, strict=True)], total

    shape = arrays[0].shape[0], size, width
    buffers = [tf.TensorArray(x.dtype, count, element_shape=shape) for x in arrays]
    state = tf.constant(0), tf.constant(0), buffers, list(total)
    *_, buffers, total = tf.while_loop(
        lambda i, *_: i < count, body, state, parallel_iterations=1, maximum_iterations=count
    )
    results = [tf.reshape(tf.transpose(x.stack(), (1, 0, 2, 3)), (rows, count * size, width)) for x in buffers]
    return [y[:, :length] for y in results], list(total)


def _after(done: list[Tensor], *arrays: Tensor) -> tuple[Tensor, ...]:
    """The arrays, once the others are there: what follows is not begun early, which would hold more at once."""
    if on_tpu():
        from tensorflow.compiler.tf2xla.python import xla

        return tuple(xla.optimization_barrier(*arrays, *done)[: len(arrays)])
    if tf.executing_eagerly():
        return arrays
    with tf.control_dependencies([*done, *arrays]):
        return tuple(tf.identity(x) for x in arrays)
