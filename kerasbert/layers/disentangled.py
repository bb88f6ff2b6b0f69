"""Disentangled attention (He et al., 2021, DeBERTa, section 3.1): contents and relative positions are scored apart.

    score(i, j) = q_i k_j  +  q_i W_kr P(i, j)  +  k_j W_qr P(i, j)                   equation (4)
                  content     content to position  position to content

is divided by the root of D times the number of its terms. P(i, j) is the row delta(i, j) (equation 3) of one table [2 k, H] that
all layers share: that of the distance i - j, where all distances beyond k are alike. In later models (DeBERTaV2, DeBERTaV3: the
released code's make_log_bucket_position) distances beyond half of k fall into buckets that grow with their logarithm.

Differs: in equation (4) the position to content term has P(j, i). The released code and transformers have P(i, j), as here.
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import by_head, gather, look_up
from kerasbert.layers.context import select
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import Queries
from kerasbert.layers.relative import aligned, in_order
from kerasbert.storage.json_view import Json

C2P, P2C = TERMS = ("c2p", "p2c")


def rows_of_distances(span: int, farthest: int = 0) -> np.ndarray:
    """Rows of the table: int32 [2 L + 1], of the distances -L to L; those that are farther are as -L and L.

    Args:
        span: int k, half of the rows.
        farthest: int L, the distance of the last bucket, where those of more than k/2 fall into buckets; 0 for no buckets, L = k.

    >>> rows_of_distances(2).tolist(), rows_of_distances(4, 9)[9:].tolist()
    ([0, 1, 2, 3, 3], [4, 5, 6, 7, 7, 7, 7, 7, 7, 7])
    """
    distances = np.arange(-(farthest or span), (farthest or span) + 1)
    return np.clip((buckets(distances, span, farthest) if farthest else distances) + span, 0, 2 * span - 1).astype(
        "int32"
    )


def buckets(distances: np.ndarray, span: int, farthest: int) -> np.ndarray:
    """Numbers of the buckets of distances: int [...] -> int [...], -k + 1 to k - 1 and, where they are farther, on."""
    middle, far = np.float32(span // 2), np.abs(distances).astype("float32")
    far = np.maximum(far, middle)  # nearer ones are their own bucket
    logarithms = np.log(far / middle) / np.log(np.float32((farthest - 1) / middle)) * (middle - 1)
    of_far = (np.ceil(logarithms) + middle) * np.sign(distances)
    return np.where(np.abs(distances) <= middle, distances, of_far).astype("int64")


@dataclasses.dataclass(frozen=True)
class Distances:
    """What the scores of all layers are told of distances: a `Context`'s `scoring`.

    Args:
        table: float [2 k, H]. rows: int32 [2 L + 1], its rows of the distances -L to L (`rows_of_distances`).
        length: int S, or a scalar tensor.
        pieces: int32 [B, S], which text of its row a token is of, 0 for padding; None where a row is one text. Of convolutions.
    """

    table: Tensor
    rows: Tensor
    length: int | Tensor
    pieces: Tensor | None = None

    def vectors(self, distances: Tensor) -> Tensor:
        """Rows of the table: int32 [R], numpy or a tensor -> [R, H]."""
        limit, numpy = len(self.rows) // 2, isinstance(distances, np.ndarray)
        clip = np.clip if numpy else ops.clip
        places = clip(distances, -limit, limit) + limit
        return look_up(self.table, self.rows[places] if numpy else gather(self.rows, places))

    def counted(self, first: Tensor, count: Tensor) -> Tensor:
        """first, first + 1, ...: int32 [count]; in numpy where it is known."""
        if isinstance(count, int):
            return np.arange(count, dtype="int32") + first
        return ops.arange(count, dtype="int32") + first


class DisentangledAttention(Attention):
    """Attention with disentangled scores.

    Args: as Attention, and
        terms: of TERMS, those that are added to the scores of the contents.
        shared: bool, whether positions are projected by the maps of the contents (share_att_key).
        key_bias: bool, whether the two maps of keys add a bias.
        table_dropout: float, on the table.
    Call: as its parent's, with `scoring`, Distances; without terms it needs none.
    Trainable weights: of its parent, and 2*H*N*D + 2*N*D of the maps `position_key`, `position_query` where they are not shared.
    """

    def __init__(
        self,
        *args: Any,
        terms: tuple[str, ...] = TERMS,
        shared: bool = False,
        key_bias: bool = True,
        table_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.terms, self.shared, self.key_bias, self.table_rate = tuple(terms), shared, key_bias, table_dropout

    def has_bias(self, name: str) -> bool:
        return self.use_bias and (self.key_bias or not name.endswith("key"))

    def build(self, shape: Shape) -> None:
        super().build(shape)
        for name, term in (("position_key", C2P), ("position_query", P2C)):
            if term in self.terms and not self.shared:
                bias, size = self.has_bias(name), self.heads * self.head_size
                setattr(self, name, Linear(size, self.initializer, bias, name=name, dtype=self.dtype_policy))
                getattr(self, name).build(shape)
        self.table_dropout = Dropout(self.table_rate, shared=True, name="table_dropout", dtype=self.dtype_policy)
        self.table_dropout.build()

    def attend(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        training: bool = False,
        *,
        scoring: Distances | None = None,
        queries: Queries = None,
        **at: object,
    ) -> tuple:
        if self.terms:
            assert scoring is not None, "a disentangled attention needs scoring, Distances"
            table = ops.expand_dims(ops.cast(scoring.table, x.dtype), 0)
            table = ops.squeeze(self.table_dropout(table, training=training), 0)
            scoring = dataclasses.replace(scoring, table=table)
        return super().attend(x, key, value, bias, training, scoring=scoring, queries=queries, **at)

    def scores(
        self, query: Tensor, key: Tensor, *, scoring: Distances | None = None, queries: Queries = None, **at: object
    ) -> Tensor:
        scale = (self.head_size * (1 + len(self.terms))) ** -0.5
        query = query * ops.cast(scale, query.dtype)
        found = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32")
        if scoring is None:  # without terms: where there are some, `attend` asks for it
            return found
        if C2P in self.terms:
            found = found + ops.cast(self.to_positions(query, scoring, queries), "float32")
        if P2C in self.terms:
            key = key * ops.cast(scale, key.dtype)
            found = found + ops.cast(self.from_positions(key, scoring, queries), "float32")
        return found

    def to_positions(self, query: Tensor, distances: Distances, queries: Queries) -> Tensor:
        """Content to position: [B, N, Q, D] -> [B, N, Q, S]."""
        keys, projection = distances.length, self.key if self.shared else self.position_key
        if isinstance(queries, str):  # the first token: -j
            return by_head(query, self.turned(projection, -distances.counted(0, keys), distances))
        # column c is of the distance S - c
        moved = by_head(query, self.turned(projection, keys - distances.counted(0, 2 * keys), distances))
        if queries is None:
            return in_order(moved, keys)
        return aligned(moved, keys - ops.cast(queries, "int32"), keys)

    def from_positions(self, key: Tensor, distances: Distances, queries: Queries) -> Tensor:
        """Position to content: [B, N, S, D] -> [B, N, Q, S]."""
        keys, projection = distances.length, self.query if self.shared else self.position_query
        if isinstance(queries, str):
            positions = self.turned(projection, -distances.counted(0, keys), distances)
            found = ops.sum(key * ops.transpose(positions, (0, 1, 3, 2)), axis=-1)
            return ops.expand_dims(found, 2)
        # of key j, column c is of the distance c - S: from S - j on, those of the queries 0, 1, ...
        moved = by_head(key, self.turned(projection, distances.counted(0, 2 * keys) - keys, distances))
        moved = in_order(moved, keys)  # [B, N, S of keys, S of queries]
        if queries is None:
            return ops.transpose(moved, (0, 1, 3, 2))
        rows, heads = ops.shape(moved)[:2]
        byquery = ops.reshape(ops.transpose(moved, (0, 3, 1, 2)), (rows, keys, heads * keys))
        chosen = select(byquery, ops.cast(queries, "int32"))
        chosen = ops.reshape(chosen, (rows, ops.shape(chosen)[1], heads, keys))
        return ops.transpose(chosen, (0, 2, 1, 3))

    def turned(self, projection: Linear, apart: Tensor, distances: Distances) -> Tensor:
        """Projected vectors of distances: int32 [R] -> [1, N, D, R]."""
        vectors = self.split(projection(ops.expand_dims(distances.vectors(apart), 0)))
        return ops.transpose(vectors, (0, 1, 3, 2))

    def get_config(self) -> Json:
        config = {"terms": self.terms, "shared": self.shared, "key_bias": self.key_bias}
        return {**super().get_config(), **config, "table_dropout": self.table_rate}
