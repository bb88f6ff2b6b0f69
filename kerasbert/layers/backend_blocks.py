"""A function of a batch's rows, a few rows at a time on TPU, so that what it makes of them stays in the chip's own memory.

After FlashAttention (Dao et al., 2022, section 3.1): what is cheap to compute again is not kept for the gradient, and does
not go to HBM and back. Differs: a block is of whole rows, so that each softmax is an ordinary one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.backend import TENSORFLOW, gradients, on_tpu, scan, tpu_chip

if TENSORFLOW:
    import tensorflow as tf

# of v5e's 128 MiB: probabilities of 24 MiB and what is computed with them stayed on the chip, of 48 MiB they did not
BLOCK = 24 * 2**20
# Whose compiler keeps a block on the chip. A layer of BERT-base's width at 64 x 512, GB from and to HBM and estimated cycles:
# v5e 6.0 -> 1.8, 26.3M -> 22.0M; v6e 6.4 -> 3.3, 15.1M -> 14.6M; but v4 6.4 -> 5.3, 26.2M -> 33.8M; v5p
# 6.6 -> 6.4, 12.5M -> 14.8M
CHIPS = ("v5e", "v6e")


def block_rows(rows: int | None, size: int | None) -> int:
    """How many rows of a batch are computed at once, a divisor of `rows`; 0 for all of them, as where few blocks would do.

    Args:
        rows: int B, or None where it is not known.
        size: bytes of what is not to leave the chip, a row; None where it is not known.
    """
    if not (TENSORFLOW and on_tpu() and tpu_chip() in CHIPS and rows and size) or rows == 1 or rows * size <= 3 * BLOCK:
        return 0
    return max(n for n in range(1, rows // 2 + 1) if rows % n == 0 and (n == 1 or n * size <= BLOCK))


def by_rows(
    fn: Callable[..., Tensor],
    arrays: Sequence[Tensor],
    constants: Sequence[Tensor | None],
    shape: tuple[int, ...],
    rows: int,
) -> Tensor:
    """fn(*arrays, *constants) -> [B, ...], some rows after the other; the gradient computes each block again.

    Args:
        fn: whose result's rows depend on the same rows of the arguments alone; it reads no weights.
        arrays: [B, ...] each. They get a gradient.
        constants: [B or 1, ...] each, or None. They get none.
        shape: of a row of the result, which has the type of the last of `arrays`.
        rows: int, a divisor of B (`block_rows`); 0 for all at once.
    """
    if not rows:
        return fn(*arrays, *constants)
    count = arrays[0].shape[0] // rows
    fold = lambda x: ops.reshape(x, (count, rows, *x.shape[1:]))  # noqa: E731
    cut = [i for i, x in enumerate(constants) if x is not None and x.shape[0] != 1]
    folded = [fold(constants[i]) for i in cut]

    def block(arrays: Sequence[Tensor], told: Sequence[Tensor]) -> Tensor:
        by_place = dict(zip(cut, told, strict=True))
        return fn(*arrays, *(by_place.get(i, x) for i, x in enumerate(constants)))

    @tf.custom_gradient
    def call(*arrays: Any) -> tuple[Tensor, Callable]:
        n = len(arrays)
        blocks, like = [fold(x) for x in arrays], tf.zeros((rows, *shape), arrays[-1].dtype)
        (y,), _ = scan(lambda x, state: ([block(x[:n], x[n:])], ()), [*blocks, *folded], [], [like])

        def gradient(upstream: Tensor) -> list[Tensor]:
            def body(x: Sequence[Tensor], state: Sequence[Tensor]) -> list:
                return gradients(lambda *arrays: [block(arrays, x[:-1])], state, x[-1:])

            found = _replaced(body, [*folded, fold(upstream)], blocks)
            return [ops.reshape(one, x.shape) for one, x in zip(found, arrays, strict=True)]

        return ops.reshape(y, (count * rows, *shape)), gradient

    return call(*arrays)


def _replaced(
    body: Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]], inputs: Sequence[Tensor], arrays: Sequence[Tensor]
) -> list[Tensor]:
    """Arrays [T, ...] whose elements are replaced, one after the other: no memory is filled with zeros before.

    Args:
        body: (elements of the inputs, of the arrays) -> the arrays' new ones.
    """
    count = arrays[0].shape[0]
    unstacked = lambda x: tf.TensorArray(x.dtype, count, element_shape=x.shape[1:], clear_after_read=False).unstack(x)  # noqa: E731
    told = [unstacked(x) for x in inputs]

    def step(place: Tensor, *state: tf.TensorArray) -> tuple:
        found = body([x.read(place) for x in told], [x.read(place) for x in state])
        return place + 1, *(x.write(place, y) for x, y in zip(state, found, strict=True))

    begin = (tf.constant(0), *(unstacked(x) for x in arrays))
    _, *state = tf.while_loop(lambda place, *_: place < count, step, begin, maximum_iterations=count)
    return [x.stack() for x in state]
