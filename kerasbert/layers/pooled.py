"""Sequences that become shorter between layers (Dai et al., 2020, Funnel-Transformer, section 2.2), and their distances."""

import dataclasses
from typing import Any

from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import visibility
from kerasbert.layers.backend import by_head
from kerasbert.layers.context import Queries, select
from kerasbert.layers.relative import RelativeAttention, aligned, sinusoids

FAR = 1e4  # beyond what a layer norm gives: what is left out of a maximum


@dataclasses.dataclass(frozen=True)
class Level:
    """The tokens of rows after some poolings.

    Args:
        ids: int32 [B, S], 0 where nothing stands; those of packed rows the numbers of their pieces.
        segments: int32 [B, S], or None for one.
        step: int, how many tokens of the text one stands for: 1, 2, 4, ...
        apart: bool, whether the first token is never pooled.
        cut: bool, whether the last token is left out where the first is apart, so that halves stay whole.
        masked: bool, whether there may be places where nothing stands.
        packed: bool, whether pieces see themselves alone.
    """

    ids: Tensor
    segments: Tensor | None = None
    step: int = 1
    apart: bool = True
    cut: bool = True
    masked: bool = True
    packed: bool = False

    @property
    def kept(self) -> Tensor:
        """What is pooled: bool [B, S]. Each row as if it stood alone, so that padding changes nothing.

        A row of two tokens is not pooled any more: its second is kept.
        """
        real = self.ids > 0
        if not (self.apart and self.cut):
            return real
        count = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)
        place = ops.expand_dims(ops.arange(ops.shape(self.ids)[1], dtype="int32"), 0)
        return ops.logical_and(real, ops.logical_or(place < count - 1, count <= 2))

    @property
    def short(self) -> bool:
        """Whether there is nothing to pool."""
        size = self.ids.shape[1]
        return size is not None and size <= (2 if self.apart else 1)

    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the second of two that become one: [B, S, ...] -> [B, P, ...] twice; a last one alone stands twice."""
        rest = x[:, 1:-1] if self.apart and self.cut else x[:, 1:] if self.apart else x
        return rest[:, ::2], ops.concatenate([rest, rest[:, -1:]], axis=1)[:, 1::2]

    def with_first(self, x: Tensor, pooled: Tensor) -> Tensor:
        """What was pooled, behind the first token where that is apart."""
        return ops.concatenate([x[:, :1], pooled], axis=1) if self.apart else pooled

    def pooled(self) -> "Level":
        """The level above."""
        kept, own = self.pairs(self.kept)[0], self.pairs(self.ids)[0]
        ids = self.with_first(self.ids, ops.where(kept, own, 0))
        segments = self.segments
        if segments is not None:
            segments = self.with_first(segments, self.pairs(segments)[0])
        return dataclasses.replace(self, ids=ids, segments=segments, step=2 * self.step, masked=True)

    def pool(self, x: Tensor, kind: str) -> Tensor:
        """Vectors of the level above: [B, S, H] -> [B, P, H], the "mean" or "max" of what is kept of two; 0 of nothing."""
        one, two = self.pairs(x)
        (first, second), (own, other) = self.pairs(self.kept), self.pairs(self.ids)
        place = ops.arange(ops.shape(self.ids)[1], dtype="int32")
        alone = ops.equal(*self.pairs(ops.expand_dims(place, 0)))  # the last, where it has no second
        second = second & first & ops.equal(own, other) & ~alone
        first, second = (ops.expand_dims(ops.cast(each, x.dtype), -1) for each in (first, second))
        if kind == "mean":
            return self.with_first(x, (one * first + two * second) / ops.maximum(first + second, 1))
        return self.with_first(x, first * ops.maximum(one, two * second - FAR * (1 - second)))

    def bias(self, keys: "Level") -> Tensor | None:
        """What is added to the scores of this level's queries: 0 where a key is seen."""
        if self.packed:
            return visibility.bias(ops.equal(ops.expand_dims(self.ids, 2), ops.expand_dims(keys.ids, 1)))
        return visibility.bias(visibility.padding(keys.ids > 0)) if keys.masked else None

    def unpooled(self, x: Tensor, length: Tensor) -> Tensor:
        """Each vector as often as it stands for a token, 0 where there is none: [B, P, H] -> [B, length, H] (section 2.3)."""
        x = x * ops.expand_dims(ops.cast(self.ids > 0, x.dtype), -1)
        if self.step == 1:
            return x
        rest = x[:, 1:] if self.apart else x
        rows, size, width = ops.shape(rest)
        rest = ops.broadcast_to(ops.expand_dims(rest, 2), (rows, size, self.step, width))
        rest = ops.reshape(rest, (rows, size * self.step, width))
        whole = self.with_first(x, rest)
        return ops.concatenate([whole, ops.zeros_like(whole[:, :1]) * ops.ones((1, self.step, 1), x.dtype)], axis=1)[
            :, :length
        ]


@dataclasses.dataclass(frozen=True)
class Distances:
    """What the scores of a layer are told: a `Context`'s `scoring`.

    Args:
        rows, keys: int, queries and keys in their order, or scalar tensors.
        step: int, tokens between two keys. stride: int, keys between two queries: 2 of pooled queries on keys that are not.
        apart: bool, whether the first token is apart: no distance and no segment counts for it.
        width: int H, of the vectors of distances.
        same: bool [B, Q, K], query and key are of one segment; None where there is one.
        places: int32 [B or 1, P], which of the rows the queries are; None for all.
    """

    rows: int | Tensor
    keys: int | Tensor
    step: int
    stride: int
    apart: bool
    width: int
    same: Tensor | None = None
    places: Tensor | None = None

    def of(self, queries: Queries) -> "Distances":
        """The same for these rows alone: None for all, "first" or int [B, P]."""
        if queries is None:
            return self
        places = ops.zeros((1, 1), "int32") if isinstance(queries, str) else ops.cast(queries, "int32")
        same = None if self.same is None else select(ops.cast(self.same, "float32"), queries) > 0.5
        return dataclasses.replace(self, places=places, same=same)

    @property
    def farthest(self) -> Tensor:
        """The distance, in keys, of the first of `vectors`."""
        return self.stride * self.rows - (1 if self.apart and self.stride > 1 else 0)

    def vectors(self) -> Tensor:
        """Of all distances, from `farthest` down: float32 [R, H] (appendix A.2.1)."""
        count = self.stride * self.rows + self.keys
        found = self.farthest - ops.arange(count, dtype="int32")
        return sinusoids(ops.cast(self.step * found, "float32"), self.width)

    def shifted(self, scores: Tensor) -> Tensor:
        """Scores of distances -> of keys: [B, N, Q, R] -> [B, N, Q, K]. A row begins `stride` before the one above it."""
        if self.places is not None:
            return aligned(scores, self.stride * (self.rows - self.places), self.keys)
        batch, heads, queries, count = ops.shape(scores)
        x = ops.reshape(scores, (batch, heads, count, queries))[:, :, self.stride :]
        return ops.reshape(x, (batch, heads, queries, count - self.stride))[..., : self.keys]

    def waves(self) -> tuple[Tensor, ...]:
        """Sines and cosines of where queries and keys stand: float32 [1 or B, 1, Q, H/2] twice, [K, H/2] twice (A.2.2)."""
        places = ops.expand_dims(ops.arange(self.rows, dtype="int32"), 0) if self.places is None else self.places
        # of two tokens the first says where they stand, and the first token of all is apart
        moved = 1 if self.apart and self.stride > 1 else 0
        half = self.width // 2
        of_queries = sinusoids(ops.cast(self.step * (self.stride * places - moved), "float32")[:, None], self.width)
        of_keys = sinusoids(ops.cast(self.step * ops.arange(self.keys, dtype="int32"), "float32"), self.width)
        return of_queries[..., :half], of_queries[..., half:], of_keys[..., :half], of_keys[..., half:]

    def counted(self) -> Tensor | None:
        """1 where distance and segment count, 0 of the first token: float32 [1 or B, 1, Q, K]; None: everywhere."""
        if not self.apart:
            return None
        places = ops.expand_dims(ops.arange(self.rows, dtype="int32"), 0) if self.places is None else self.places
        row = ops.reshape(ops.cast(places > 0, "float32"), (-1, 1, ops.shape(places)[1], 1))
        return row * ops.cast(ops.arange(self.keys, dtype="int32") > 0, "float32")


class PooledAttention(RelativeAttention):
    """Relative attention of rows whose queries may stand farther apart than keys (appendix A.2).

    Args: as Attention; factorized: bool, by products of sines and cosines.
    Call: as its parent's; `scoring`, a Distances.
    Trainable weights: 5*H*N*D + 2*N*D + H of the maps and W_r, 3*N*D of u, v and s, 2*N*D of the segments.
    """

    def __init__(self, *args: Any, factorized: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factorized = factorized

    def has_bias(self, name: str) -> bool:
        return self.use_bias and name != "query"

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.segment_bias, self.segments = self.head_weight("segment_bias"), self.head_weight("segments", 2)

    def scores(
        self, query: Tensor, key: Tensor, *, scoring: Distances, queries: Queries = None, **at: object
    ) -> Tensor:
        told = scoring.of(queries)
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        content = ops.matmul(self.biased(query, self.content_bias), ops.transpose(key, (0, 1, 3, 2)))
        of_place = self.biased(query, self.position_bias)
        more = ops.cast(self.by_waves(of_place, told) if self.factorized else self.by_shift(of_place, told), "float32")
        if told.same is not None:
            segments = ops.expand_dims(ops.transpose(ops.cast(self.segments, query.dtype), (1, 2, 0)), 0)
            of_segment = by_head(self.biased(query, self.segment_bias), segments)
            of_segment = ops.cast(of_segment, "float32")  # [B, N, Q, 2]: another segment, the same
            more = more + ops.where(ops.expand_dims(told.same, 1), of_segment[..., 1:], of_segment[..., :1])
        counted = told.counted()
        return ops.cast(content, "float32") + (more if counted is None else more * counted)

    def by_shift(self, query: Tensor, told: Distances) -> Tensor:
        """(q + v) W_r R of all distances, moved to the keys (A.2.1): [B, N, Q, D] -> [B, N, Q, K]."""
        vectors = ops.expand_dims(ops.cast(told.vectors(), query.dtype), 0)
        return told.shifted(by_head(query, ops.transpose(self.split(self.position(vectors)), (0, 1, 3, 2))))

    def by_waves(self, query: Tensor, told: Distances) -> Tensor:
        """The same as products with sines and cosines of queries and of keys, whose angles' difference it is (A.2.2)."""
        kernel = ops.reshape(ops.cast(self.position.kernel, query.dtype), (-1, self.heads, self.head_size))
        kernel = ops.expand_dims(ops.transpose(kernel, (1, 2, 0)), 0)
        x = by_head(query, kernel)  # [B, N, Q, H]: what sines and cosines weigh
        sine, cosine, key_sine, key_cosine = (ops.cast(each, query.dtype) for each in told.waves())
        of_sine, of_cosine = x[..., : told.width // 2], x[..., told.width // 2 :]
        left = [of_sine * sine + of_cosine * cosine, of_cosine * sine - of_sine * cosine]
        right = ops.concatenate([key_cosine, key_sine], axis=-1)
        return ops.matmul(ops.concatenate(left, axis=-1), ops.transpose(right))

    def attend(
        self, x: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, training: bool = False, **at: object
    ) -> tuple:
        return super(RelativeAttention, self).attend(x, key, value, bias, training, **at)
