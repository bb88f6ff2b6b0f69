"""Where rounding enters a model that is trained for int8."""

from typing import Any, Protocol


class Quantizer(Protocol):
    """What a layer's attribute `quantizer` does in the place of the layer's own product, None being the layer itself.

    All matrices with weights are read by Linear or Table, so that these three hooks cover every encoder; a layer that is
    shared by blocks is hooked once. It is an attribute and not a scope that is open while a graph is traced: training,
    evaluation and prediction trace in different places, and all of them must see the same numbers. None costs nothing.
    """

    def project(self, x: Any, kernel: Any) -> Any:
        """x [..., H], kernel [H, D] -> [..., D]."""

    def gather(self, table: Any, ids: Any) -> Any:
        """Rows of a table: [V, E], int [...] -> [..., E]."""

    def mark(self, x: Any, gamma: Any, beta: Any) -> Any:
        """x itself, noting for the products that read it that it is some z [..., H] * gamma [H] + beta [H]."""
