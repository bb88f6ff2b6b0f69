"""What a token starts as: token + position + segment, normalised."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import gather, look_up, on_tpu
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.initial import Normal
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json

# rows of segments or languages, read by a product on TPU as in the released BERT: a gather's gradient is a scatter there, which
# adds up one token after the other
FEW = 16


class Table(keras.layers.Layer):
    """Learned vectors by id: int [...] -> [..., width]. Trainable weights: rows*width."""

    quantizer: Any = None  # see Linear
    added: Tensor = None  # see `adding`

    def __init__(self, rows: int, width: int, initializer: float = 0.02, **kwargs: Any) -> None:
        # the rows that are read are cast, not the whole table
        super().__init__(autocast=False, **kwargs)
        self.rows, self.width, self.initializer = rows, width, initializer

    def build(self, shape: Shape | None = None) -> None:
        normal = Normal(stddev=self.initializer)
        self.table = self.add_weight(shape=(self.rows, self.width), initializer=normal, name="table")

    def call(self, ids: Tensor) -> Tensor:
        read = gather if self.quantizer is None else self.quantizer.gather
        table = ops.cast(self.table, self.compute_dtype) if on_tpu() else self.table
        if self.quantizer is None and self.rows <= FEW:
            read = look_up
        x = ops.cast(read(table, ids), self.compute_dtype)
        return x if self.added is None else x + ops.cast(self.added, x.dtype)

    def get_config(self) -> Json:
        return {**super().get_config(), "rows": self.rows, "width": self.width, "initializer": self.initializer}


@contextlib.contextmanager
def adding(table: Table, values: Tensor) -> Iterator[None]:
    """Within it, a table of tokens gives its vectors with these added: [B, S, E] of its ids [B, S]; None adds nothing."""
    table.added = values
    try:
        yield
    finally:
        table.added = None


class Sinusoids(keras.layers.Layer):
    """Fixed vectors by position: int [...] -> [..., width]; no weights.

    Half of a vector are sines, half cosines, as in the Transformer's released code (tensor2tensor, get_timing_signal_1d) and
    in Marian. Differs: Vaswani et al. (2017, section 3.5) write them in turn. The wavelengths are theirs, 2*pi * 10000^(2i/d)
    for i from 0 on, so that the longest is just below 10000*2*pi; the released code's longest is that (2i / (d - 2)).

    Args:
        rows: int, number of positions.
        width: int d; where it is odd there is one sine more.
    """

    def __init__(self, rows: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows, self.width = rows, width

    def build(self, shape: Shape | None = None) -> None:
        sines = (self.width + 1) // 2
        angles = np.arange(self.rows)[:, None] / 10000 ** (2 * np.arange(sines) / self.width)
        cosines = np.cos(angles[:, : self.width - sines])
        self.values = np.concatenate([np.sin(angles), cosines], axis=1).astype("float32")

    @property
    def table(self) -> Tensor:
        """All of them: [rows, width], as the weight of a Table."""
        return ops.convert_to_tensor(self.values, self.compute_dtype)

    def call(self, ids: Tensor) -> Tensor:
        return gather(self.table, ids)

    def get_config(self) -> Json:
        return {**super().get_config(), "rows": self.rows, "width": self.width}


def positions(spec: Spec, width: int, **kwargs: Any) -> Table | Sinusoids | None:
    """The built layer `positions` of a Spec, or None where it has none: `embeddings.kind`."""
    if spec.embeddings.kind == "none":
        return None
    if spec.embeddings.kind == "sinusoidal":
        layer = Sinusoids(spec.embeddings.positions, width, name="positions", **kwargs)
    else:
        layer = Table(spec.embeddings.positions, width, spec.initializer, name="positions", **kwargs)
    layer.build()
    return layer


class Embeddings(keras.layers.Layer):
    """BERT's input representation (Devlin et al., 2019, figure 2).

    Args:
        spec: Spec; `embeddings`, `hidden`, `epsilon`, `dropout` and `initializer` are read.
    Call: token_ids [B, S], segment_ids [B, S] or None, position_ids [B, S] or None (0, 1, ...) -> [B, S, H].
    Trainable weights: (V + positions + segments)*E, 2*E for the norm, and E*H + H where E differs from H. Positions that
        are not learned have none.
    """

    norm_class: type = LayerNorm

    def __init__(self, spec: Spec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec

    def build(self, shape: Shape | None = None) -> None:
        parts, kwargs = self.spec.embeddings, {"dtype": self.dtype_policy}
        width = parts.width or self.spec.hidden
        self.tokens = Table(parts.vocabulary, width, self.spec.initializer, name="tokens", **kwargs)
        self.tokens.build()
        self.positions = positions(self.spec, width, **kwargs)
        if parts.segments:
            self.segments = Table(parts.segments, width, self.spec.initializer, name="segments", **kwargs)
            self.segments.build()
        self.norm = None
        if self.spec.blocks.norm == "post" if parts.norm is None else parts.norm:
            self.norm = self.norm_class(self.spec.epsilon, name="norm", **kwargs)
            self.norm.build((None, None, width))
        self.dropout = Dropout(self.spec.dropout, name="dropout", **kwargs)
        self.dropout.build()
        self.projection = None
        # ALBERT's in transformers are projected where E = H too
        if width != self.spec.hidden or getattr(parts, "projected", None):
            self.projection = Linear(self.spec.hidden, self.spec.initializer, name="projection", **kwargs)
            self.projection.build((None, None, width))

    def call(
        self, token_ids: Tensor, segment_ids: Tensor = None, position_ids: Tensor = None, training: bool = False
    ) -> Tensor:
        return self.finish(self.sum(token_ids, segment_ids, position_ids), training)

    def sum(self, token_ids: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """The sum of the tables' rows: [B, S, E]."""
        return self.placed(self.tokens(token_ids), segment_ids, position_ids)

    def placed(self, x: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """x [B, S, E] with the vectors of segments and positions added."""
        parts = self.spec.embeddings
        if parts.segments:
            # without segments every token is of the first, as in BERT
            alone = segment_ids is None or parts.segments == 1
            x = x + (self.segments.table[0] if alone else self.segments(segment_ids))
        if self.positions is None:
            return x
        if position_ids is None:
            return x + self.positions.table[parts.offset : parts.offset + ops.shape(x)[1]]
        return x + self.positions(position_ids + parts.offset if parts.offset else position_ids)

    def finish(self, x: Tensor, training: bool) -> Tensor:
        """Norm, dropout and, where E differs from H, the projection: [B, S, E] -> [B, S, H]."""
        x = self.normalise(x, training)
        return x if self.projection is None else self.projection(x)

    def normalise(self, x: Tensor, training: bool) -> Tensor:
        """Norm and dropout: [B, S, E] -> [B, S, E], what two networks with projections of their own may share."""
        if self.norm is None:
            return self.dropout(x, training=training)
        return self.norm(x, dropout=self.dropout, training=training)
