"""Learned numbers of distances (Raffel et al., 2020, section 2.1): each head adds one to a score, by how far apart the two are.

T5, umT5 and MPNet read it.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import choose, gather, look_up
from kerasbert.layers.embeddings import Table
from kerasbert.layers.readout import Queries
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class Buckets:
    """How a distance becomes one of the learned numbers (section 2.1): `relative` of a Spec.

    Args:
        buckets: int, numbers per head.
        distance: int, from which on all distances are one.
    """

    buckets: int = 32
    distance: int = 128

    def __post_init__(self) -> None:
        if self.buckets < 4 or self.buckets % 2:
            raise InputError(f"relative.buckets must be even and at least 4. Received: {self.buckets}")
        if self.distance <= self.buckets // 2:
            raise InputError(
                f"relative.distance must be above half of relative.buckets, {self.buckets // 2}. Received: {self.distance}"
            )


def buckets(count: int, distance: int, both_sides: bool) -> np.ndarray:
    """The bucket of each distance: half of them for one distance each, the others for ranges that grow logarithmically.

    Args:
        count, distance: int, as in `Buckets`.
        both_sides: bool, whether half of the buckets are for keys behind the query and half for those ahead.

    Returns:
        int32 [distance + 1] by the number of tokens between query and key; the last holds for all that is farther.

    >>> buckets(8, 6, both_sides=False).tolist()
    [0, 1, 2, 3, 4, 6, 7]
    """
    side = count // 2 if both_sides else count
    exact, apart = side // 2, np.arange(distance + 1, dtype="float32")
    ratio = np.log(np.maximum(apart, 1) / np.float32(exact)) / np.float32(math.log(distance / exact))
    ranges = exact + (ratio * np.float32(side - exact)).astype("int32")
    return np.where(apart < exact, apart.astype("int32"), np.minimum(ranges, side - 1)).astype("int32")


def bucketed(settings: Buckets, both_sides: bool, queries: Tensor, keys: Tensor) -> Tensor:
    """The bucket of each pair of places: int32 [B or 1, Q], [B or 1, K] -> int32 [B or 1, Q, K]."""
    numbers = buckets(settings.buckets, settings.distance, both_sides)
    apart = ops.expand_dims(keys, 1) - ops.expand_dims(queries, 2)
    of_each = ops.minimum(ops.abs(apart) if both_sides else ops.maximum(-apart, 0), len(numbers) - 1)
    places = gather(numbers, of_each)
    return places + ops.cast(apart > 0, "int32") * (settings.buckets // 2) if both_sides else places


def by_head(table: Tensor, places: Tensor) -> Tensor:
    """What is added to scores: table [buckets, N], buckets int32 [B or 1, Q, K] -> float32 [B or 1, N, Q, K]."""
    return ops.transpose(look_up(ops.cast(table, "float32"), places), (0, 3, 1, 2))


class DistanceTable(Table):
    """The learned numbers, and which of them each pair of tokens has.

    Args:
        settings: Buckets. heads: int N. initializer: float.
        both_sides: bool, whether keys ahead of the query have numbers of their own (an encoder's).
    Call: places of the queries int32 [B or 1, Q], of the keys int32 [B or 1, K] -> float32 [B or 1, N, Q, K].
    Trainable weights: buckets*N, `table`.
    """

    def __init__(
        self, settings: Buckets, heads: int, initializer: float, both_sides: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(settings.buckets, heads, initializer, **kwargs)
        self.settings, self.both_sides = settings, both_sides

    def call(self, queries: Tensor, keys: Tensor) -> Tensor:
        return by_head(self.table, bucketed(self.settings, self.both_sides, queries, keys))

    def get_config(self) -> Json:
        raise NotImplementedError("a table of distances is a part of a stack, whose Spec describes it")


def with_distances(scores: Tensor, distances: Tensor, queries: Queries = None) -> Tensor:
    """Scores [B, N, Q, K] plus the numbers [B or 1, N, S, K] of these queries, in float32; None adds nothing."""
    if distances is None:
        return scores
    return ops.cast(scores, "float32") + ops.cast(_of_queries(distances, queries), "float32")


def _of_queries(x: Tensor, queries: Queries) -> Tensor:
    """The queries' rows of [1 or B, N, S, K]: [1 or B, N, Q, K]."""
    if queries is None:
        return x
    if isinstance(queries, str):
        return x[:, :, :1]
    rows = ops.transpose(x, (0, 2, 1, 3))
    return ops.transpose(gather(rows[0], queries) if x.shape[0] == 1 else choose(rows, queries), (0, 2, 1, 3))
