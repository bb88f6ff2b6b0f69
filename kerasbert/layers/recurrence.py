"""The loop over time of LSTM and GRU, and its gradient.

The gradient keeps the states and works out the gates again; the recurrent matrix gets its gradient by one product over all
times. An automatic one would add to it in every step.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.backend import TENSORFLOW, differentiated, gradients, project, scan

State = tuple[Tensor, ...]


def recur(
    cell: Callable[..., State],
    x: Tensor,
    matrix: Tensor,
    state: State,
    weights: Sequence[object] = (),
    *,
    real: Tensor | None = None,
    kept: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, State]:
    """The loop over time: state' = cell(x_t, h @ matrix, state, *weights).

    Args:
        cell: as `Recurrent.cell`.
        x: float32 [S, B, G], the input's product.
        matrix: [H, G], the recurrent one, in the type of the product.
        state: float32 [B, width] each, the first h [B, H].
        weights: what the cell reads besides.
        real: float32 [S, B, 1], 0 where the state is left alone; None for nowhere.
        kept: float32 [S, B, 1], 0 where the state before is not seen; None for nowhere.
        reverse: bool, from the last place to the first.

    Returns:
        (h after each place, float32 [S, B, H], the state at the end).
    """
    asked = TENSORFLOW and any(differentiated(each) for each in (x, matrix, *state, *weights))
    loop = _Loop(cell, real, kept, reverse, len(state))
    if not asked:  # nothing is kept
        y, last = loop.forward(x, matrix, state, weights, keep=False)
        return y[0], tuple(last)

    @ops.custom_gradient
    def call(x: Tensor, matrix: Tensor, *arrays: Any) -> tuple[tuple[Tensor, ...], Callable]:
        begin, rest = arrays[: len(state)], arrays[len(state) :]
        y, after = loop.forward(x, matrix, begin, rest, keep=True)

        def gradient(*upstream: Tensor) -> list[Tensor]:
            return loop.backward(x, matrix, begin, rest, y, upstream)

        # states as outputs too, so that nothing is computed twice
        return (y[0], *after), gradient

    y, *after = call(x, matrix, *state, *weights)
    return y, tuple(after)


class _Loop:
    """`recur` and its gradient. Args: as `recur`; count: int, arrays of a state."""

    def __init__(self, cell: Callable, real: Tensor, kept: Tensor, reverse: bool, count: int) -> None:
        self.cell, self.real, self.kept, self.reverse, self.count = cell, real, kept, reverse, count

    def _masks(self) -> list[Tensor]:
        return [mask for mask in (self.real, self.kept) if mask is not None]

    def _step(
        self, x: Tensor, product: Tensor, before: Sequence[Tensor], weights: Sequence[Tensor], real: Tensor
    ) -> list[Tensor]:
        """The state after a place whose state before is seen as far as it is to be."""
        after = self.cell(x, product, before, *weights)
        if real is None:
            return list(after)
        # exact, for real is 0 or 1; a `where` would be a SELECT_V2 of the device graph
        return [real * one + (1 - real) * other for one, other in zip(after, before, strict=True)]

    def _read(self, masks: Sequence[Tensor]) -> Iterator[Tensor]:
        left = iter(masks)
        return (None if mask is None else next(left) for mask in (self.real, self.kept))

    def forward(
        self, x: Tensor, matrix: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The states after each place (h alone unless `keep`), and the state at the end."""

        def body(places: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
            real, kept = self._read(places[1:])
            before = state if kept is None else [kept * each for each in state]
            product = ops.cast(ops.matmul(ops.cast(before[0], matrix.dtype), matrix), "float32")
            after = self._step(places[0], product, before, weights, real)
            return (after if keep else after[:1]), after

        return scan(body, [x, *self._masks()], state, state if keep else state[:1], self.reverse)

    def backward(
        self,
        x: Tensor,
        matrix: Tensor,
        begin: Sequence[Tensor],
        weights: Sequence[Tensor],
        y: Sequence[Tensor],
        upstream: Sequence[Tensor],
    ) -> list[Tensor]:
        """Gradients by x, matrix, the state at the begin and weights."""
        before = []
        for first, after in zip(begin, y, strict=True):
            first = ops.expand_dims(first, 0)
            both = [after[1:], first] if self.reverse else [first, after[:-1]]
            seen = ops.concatenate(both, axis=0)
            before.append(seen if self.kept is None else seen * self.kept)
        told = ops.cast(before[0], matrix.dtype)
        product = ops.cast(project(told, matrix), "float32")
        of_y, *of_state = upstream
        count, transposed = self.count, ops.transpose(matrix)

        def body(places: Sequence[Tensor], carried: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
            x, product, of_y, *rest = places
            state, (real, kept) = rest[:count], self._read(rest[count:])
            of_after, total = carried[:count], carried[count:]
            of_after = [of_after[0] + of_y, *of_after[1:]]

            def step(x: Tensor, product: Tensor, *arrays: Tensor) -> list[Tensor]:
                return self._step(x, product, arrays[:count], arrays[count:], real)

            of_x, of_product, *found = gradients(step, [x, product, *state, *weights], of_after)
            of_before = found[:count]
            of_h = ops.matmul(ops.cast(of_product, matrix.dtype), transposed)
            of_before[0] = of_before[0] + ops.cast(of_h, "float32")
            if kept is not None:
                of_before = [kept * each for each in of_before]
            total = [one + ops.cast(other, "float32") for one, other in zip(total, found[count:], strict=True)]
            return [of_x, of_product], [*of_before, *total]

        zeros = [ops.zeros_like(each, dtype="float32") for each in weights]  # of a source the shape is not known
        places, likes = [x, product, of_y, *before, *self._masks()], [x[0], product[0]]
        (of_x, of_product), carried = scan(body, places, [*of_state, *zeros], likes, not self.reverse)
        flat = ops.reshape(ops.cast(of_product, matrix.dtype), (-1, matrix.shape[1]))
        of_matrix = ops.matmul(ops.transpose(ops.reshape(told, (-1, matrix.shape[0]))), flat)
        of_weights = [ops.cast(each, like.dtype) for each, like in zip(carried[count:], weights, strict=True)]
        return [of_x, of_matrix, *carried[:count], *of_weights]
