"""The ends of MobileBERT's bottlenecks (Sun et al., 2020, figure 1)."""

from typing import Any

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.norms import LayerNorm, NoNorm
from kerasbert.layers.random import Dropout


class Narrowed(Linear):
    """norm(x @ kernel + bias), or with another y norm(y + dropout(x @ kernel + bias)): the ends of a bottleneck (figure 1).

    Args:
        width, initializer: as in Linear.
        norm: a class of NORMS.
        epsilon, dropout: float.
    Call: x [..., A], y [..., width] or None -> [..., width]. Trainable weights: A*width + 3*width.
    """

    def __init__(
        self,
        width: int,
        initializer: float = 0.02,
        norm: type[LayerNorm] = NoNorm,
        epsilon: float = 1e-12,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(width, initializer, **kwargs)
        self.norm = norm(epsilon, name="norm", dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.norm.build((*shape[:-1], self.width))
        self.dropout.build()

    def call(self, x: Tensor, y: Tensor = None, training: bool = False) -> Tensor:
        x = super().call(x)
        return self.norm(x) if y is None else self.norm(y, x, dropout=self.dropout, training=training)
