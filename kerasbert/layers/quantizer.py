"""Where rounding enters a model that is trained for int8."""

from typing import Protocol

from kerasbert.inputs import Tensor


class Quantizer(Protocol):
    """What a layer's attribute `quantizer` computes in the place of the layer itself; None costs nothing.

    All matrices of an encoder and of a task's head are read by Linear or Table, so that these hooks cover every family; a
    layer that blocks share is hooked once. It is an attribute and not a scope that is open while a graph is traced:
    training, evaluation, prediction and export trace in different places, and all of them must see the same numbers.
    """

    def linear(self, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        """x [..., H] @ kernel [H, D] + bias [D] -> [..., D]."""

    def gather(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows of a table: [V, E], int [...] -> [..., E]."""

    def mark(self, x: Tensor, gamma: Tensor, beta: Tensor, of: Tensor | None = None) -> Tensor:
        """x [..., H] itself, noting for a product that reads it that it is z * gamma [H] + beta [H].

        z is `of`, or, where None, a normalised tensor that nobody else knows.
        """
