"""Axial positions: vectors of a * b positions from a + b (Kitaev et al., 2020, section 5, and the released code)."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import gather
from kerasbert.layers.embeddings import Table
from kerasbert.layers.random import Dropout

if TYPE_CHECKING:
    from kerasbert.models.reformer import ReformerSpec


@dataclasses.dataclass(frozen=True)
class Axial:
    """Positions as pairs of a row and a column.

    Args:
        factored: bool; else there is a table of `embeddings.positions` vectors.
        shape: a rows and b columns, which make a * b positions.
        widths: numbers of a vector that its row gives and its column, H in all; None: a quarter and three.
        initializer: float, standard deviation of both tables, and of the tokens' (trax, 2020: 1), which would hardly count
            beside them otherwise.
    """

    factored: bool = True
    shape: tuple[int, ...] = (64, 64)
    widths: tuple[int, ...] | None = None
    initializer: float = 1.0


class AxialPositions(keras.layers.Layer):
    """Vectors of a * b positions: that of position i is row i // b's and column i % b's, side by side.

    Args:
        spec: ReformerSpec.
    Call: x [B, S, H], position_ids int32 [B or 1, S] -> their vectors [B or 1, S, H]. In training whole columns of a row
        are dropped, as in transformers. Trainable weights: a * widths[0] + b * widths[1].
    """

    def __init__(self, spec: "ReformerSpec", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec

    def build(self, shape: Shape | None = None) -> None:
        (a, b), widths = self.spec.axial.shape, self.spec.axial_widths
        # one for each: an initializer gives the same numbers again
        normal = functools.partial(keras.initializers.RandomNormal, stddev=self.spec.axial.initializer)
        self.row_table = self.add_weight(shape=(a, 1, widths[0]), initializer=normal(), name="row_table")
        self.column_table = self.add_weight(shape=(1, b, widths[1]), initializer=normal(), name="column_table")
        self.dropout = Dropout(self.spec.dropout, name="dropout", dtype=self.dtype_policy)
        self.dropout.build()

    def call(self, x: Tensor, position_ids: Tensor, training: bool = False) -> Tensor:
        columns = self.spec.axial.shape[1]
        row, column = position_ids // columns, position_ids % columns
        parts = [gather(self.row_table[:, 0], row), gather(self.column_table[0], column)]
        vectors = ops.cast(ops.concatenate(parts, axis=-1), self.compute_dtype)
        if not training or not self.dropout.rate:
            return vectors
        kept = self.dropout(ops.ones((ops.shape(x)[0], columns), vectors.dtype), training=True)
        return vectors * ops.expand_dims(ops.take_along_axis(kept, ops.broadcast_to(column, x.shape[:2]), axis=1), -1)


class ReformerEmbeddings(keras.layers.Layer):
    """Tokens and positions, dropped separately, not normalised: token_ids [B, S] -> [B, S, H]."""

    def __init__(self, spec: "ReformerSpec", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec

    def build(self, shape: Shape | None = None) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        width = spec.embeddings.width
        assert width is not None
        begins = spec.axial.initializer if spec.axial.factored else spec.initializer
        self.tokens = Table(spec.embeddings.vocabulary, width, begins, name="tokens", **kwargs)
        if spec.axial.factored:
            self.positions = AxialPositions(spec, name="positions", **kwargs)
        else:
            self.positions = Table(spec.embeddings.positions, width, spec.initializer, name="positions", **kwargs)
        self.dropout = Dropout(spec.dropout, name="dropout", **kwargs)
        self.positions_dropout = Dropout(spec.dropout, name="positions_dropout", **kwargs)
        for layer in (self.tokens, self.positions, self.dropout, self.positions_dropout):
            layer.build()

    def call(
        self, token_ids: Tensor, segment_ids: Tensor = None, position_ids: Tensor = None, training: bool = False
    ) -> Tensor:
        x = self.dropout(self.tokens(token_ids), training=training)
        if position_ids is None:
            position_ids = ops.expand_dims(ops.arange(ops.shape(token_ids)[1], dtype="int32"), 0)
        if self.spec.axial.factored:
            return x + self.positions(x, position_ids, training=training)
        return x + self.positions_dropout(self.positions(position_ids) + ops.zeros_like(x), training=training)
