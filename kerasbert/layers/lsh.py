"""Attention in chunks: of neighbours (local), and of tokens whose hashes agree (LSH; Kitaev et al., 2020, section 2).

Letters beside the usual: R rounds of hashing, C chunks, c tokens of a chunk, W = (1 + before + after) * c keys that they see.

Chunks stand in a ring, as in the released code: before the first comes the last, of the round before where there are several.
"""

import math
from typing import Any

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import argmax, by_head, choose, constant, fused, permute, reshape, stable_argsort
from kerasbert.layers.chunks import Chunks, Visible
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.random import Dropout, drawn, drop, key, normal, scoped, shared_key
from kerasbert.layers.visibility import HIDDEN

TINY = 1e-30


@fused(constant=(1, 2))
def chunk_weights(
    scores: Tensor, visible: Tensor, own: Tensor, key: Tensor, *, rate: float, dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [B, N, C, c, W] -> attention weights after dropout, their log sum of exponentials, whether others are seen.

    A token sees itself only where it sees nobody else (section 2, "Causal masking"); `own` None: it is one of those it
    sees. What is hidden weighs exactly nothing, whatever its score, and a row that sees nothing gives zeros.

    Args:
        visible: bool [B or 1, N or 1, C, c, W], or None where all is seen.
        own: bool, likewise, or None.

    Returns:
        (`dtype` [B, N, C, c, W], float32 [B, N, C, c], float32 [B, N, C, c]: 1 or 0).
    """
    scores = ops.cast(scores, "float32")
    visible = ops.ones_like(scores) if visible is None else ops.cast(visible, "float32")
    if own is not None:
        own = ops.cast(own, "float32")
        others = visible * (1.0 - own)
        company = ops.max(others, axis=-1, keepdims=True)
        visible = others + visible * own * (1.0 - company)
    else:
        company = ops.max(visible, axis=-1, keepdims=True)
    scores = scores * visible + (1.0 - visible) * HIDDEN
    most = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
    exponents = ops.exp(scores - most) * visible
    total = ops.maximum(ops.sum(exponents, axis=-1, keepdims=True), TINY)
    weights = drop(ops.cast(exponents / total, dtype), key, rate)
    return weights, ops.squeeze(most + ops.log(total), -1), ops.squeeze(company + ops.zeros_like(total), -1)


@fused(constant=(1,))
def round_weights(logits: Tensor, company: Tensor) -> Tensor:
    """How much each round counts: float32 [B, N, R, S], 1 where the token saw others -> float32 [B, N, R, S].

    The share of its exponentials among those of all rounds (section 2, "Multi-round LSH attention"); a round in which the
    token was alone counts only where it was in all.
    """
    some = ops.max(company, axis=2, keepdims=True)
    used = company + (1.0 - some)
    logits = logits * used + (1.0 - used) * HIDDEN
    exponents = ops.exp(logits - ops.stop_gradient(ops.max(logits, axis=2, keepdims=True))) * used
    return exponents / ops.sum(exponents, axis=2, keepdims=True)


class ChunkAttention(Attention):
    """What local and LSH attention have in common; their maps have no bias.

    Args:
        chunks: Chunks.
    Call: x [B, S, H], Visible, probabilities (bool, whether they are asked for)
        -> (y [B, S, H], probabilities [B, N, S, S] float32 or None).
    """

    def __init__(self, *sizes: Any, chunks: Chunks, **kwargs: Any) -> None:
        super().__init__(*sizes, **kwargs | {"use_bias": False})
        self.chunks = chunks

    def call(
        self, x: Tensor, visible: Visible | None = None, training: bool = False, probabilities: bool = False
    ) -> tuple[Tensor, Tensor]:
        length, now = x.shape[1], ops.shape(x)[1]
        missing = self.chunks.missing(length, now)
        visible = (visible or Visible()).padded(missing, now)
        some = not isinstance(missing, int) or missing > 0
        key = self.dropout.key(x, training)
        read = [self.split(each(x)) for each in self.maps]
        read = [ops.pad(each, [[0, 0], [0, 0], [0, missing], [0, 0]]) if some else each for each in read]
        y, seen = self.mix(*read, visible, key, training, probabilities)
        y = ops.transpose(y[:, :, :now] if some else y, (0, 2, 1, 3))
        y = reshape(y, (*ops.shape(y)[:2], self.heads * self.value_size))
        seen = None if seen is None else seen[:, :, :now, :now]
        return self.output_projection(y), seen

    @property
    def maps(self) -> tuple[Linear, ...]:
        """The linear maps of x that `mix` reads, in its order."""
        return self.query, self.key, self.value

    def mix(self, *read: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the heads give: [B, N, S, D], and the probabilities [B, N, S, S] or None."""
        raise NotImplementedError

    def places(self, length: Tensor) -> Tensor:
        """int32 [1, 1, S]."""
        return ops.reshape(ops.arange(length, dtype="int32"), (1, 1, -1))

    def cut(self, x: Tensor) -> Tensor:
        """[B, N, ..., S, D] -> [B, N, C, c, D], all rounds' chunks one after the other."""
        return reshape(x, (*ops.shape(x)[:2], -1, self.chunks.size, x.shape[-1]))

    def cut_places(self, x: Tensor) -> Tensor:
        """[B, N, ..., S] -> [B, N, C, c]."""
        return reshape(x, (*ops.shape(x)[:2], -1, self.chunks.size))

    def attend_chunks(
        self, query: Tensor, keys: Tensor, value: Tensor, visible: Tensor, own: Tensor, key: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[B, N, C, c, D], keys and values [B, N, C, W, D] -> (y [B, N, C, c, D], and what `chunk_weights` gives)."""
        scores = ops.matmul(query, ops.transpose(keys, (0, 1, 2, 4, 3)))
        dtype = keras.backend.standardize_dtype(value.dtype)
        weights, logits, company = chunk_weights(scores, visible, own, key, rate=self.rate, dtype=dtype)
        return ops.matmul(weights, value), weights, logits, company

    def spread(self, weights: Tensor, seen: Tensor, length: Tensor) -> Tensor:
        """Weights of chunks as those of all tokens: [B, N, C, c, W], places [B, N, C, W] -> float32 [B, N, C, c, S]."""
        return ops.matmul(ops.cast(weights, "float32"), ops.one_hot(seen, length, dtype="float32"))


class LocalAttention(ChunkAttention):
    """Attention to the tokens of one's own chunk and of its neighbours (transformers' LocalSelfAttention).

    Args and call: as ChunkAttention. Trainable weights: 4*H*N*D.
    """

    def mix(
        self,
        query: Tensor,
        keys: Tensor,
        value: Tensor,
        visible: Visible,
        key: Tensor,
        training: bool,
        probabilities: bool,
    ) -> tuple[Tensor, Tensor | None]:
        length = ops.shape(query)[2]
        query = query * ops.cast(1 / math.sqrt(self.head_size), query.dtype)
        if self.chunks.whole(query.shape[2]):
            arrange, adjacent = (lambda x: ops.expand_dims(ops.expand_dims(x, 1), 1)), (lambda x: x)
            query, keys, value = (ops.expand_dims(x, 2) for x in (query, keys, value))
        else:
            arrange, adjacent = (lambda x: self.cut_places(ops.expand_dims(x, 1))), self.chunks.adjacent
            query, keys, value = (self.cut(x) for x in (query, keys, value))
        place = arrange(self.places(length)[:, 0])
        seen, _ = visible.pairs(place, arrange, adjacent, length)
        y, weights, *_ = self.attend_chunks(query, adjacent(keys), adjacent(value), seen, None, key)
        whole = None
        if probabilities:
            whole = self.spread(weights, adjacent(place), length)
            whole = reshape(whole, (*ops.shape(whole)[:2], length, length))
        return reshape(y, (*ops.shape(y)[:2], length, self.value_size)), whole


class LSHAttention(ChunkAttention):
    """Locality-sensitive hashing attention (Kitaev et al., 2020, section 2).

    Queries are keys that have not been made of unit length. A token's bucket is the nearest of random directions and their
    opposites; tokens are sorted by bucket, equal ones by place, and the sorted sequence is cut into chunks.

    Differs: as in the released code a chunk's tokens see each other across buckets; with `across=False` they see their own
    bucket alone, equation 4. A key that two rounds find counts twice, where the paper's appendix A would divide (N_i,j).

    Args:
        chunks: Chunks.
        buckets: int or two, whose product is the number of buckets; even.
        rounds: int R, hashes that are drawn independently.
        across: bool, whether a token sees other buckets in its chunk and those before.
        layer: int, the layer's number, which its directions are drawn by.
        seed: int, of the directions at inference. In training they are new in every update, alike for all rows.
    Call: as ChunkAttention. Trainable weights: 3*H*N*D.
    """

    def __init__(
        self,
        *sizes: Any,
        buckets: int | tuple[int, ...],
        rounds: int = 1,
        across: bool = True,
        seed: int = 0,
        layer: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*sizes, **kwargs)
        self.drawn_as = f"lsh {layer}"  # not the path, which depends on what the encoder is built in
        self.factors = (buckets,) if isinstance(buckets, int) else tuple(buckets)
        self.rounds, self.across, self.seed = rounds, across, seed

    def build(self, shape: Shape) -> None:
        kwargs = {"use_bias": False, "dtype": self.dtype_policy}
        width = self.heads * self.head_size
        for name in ("query_key", "value"):
            setattr(self, name, Linear(width, self.initializer, name=name, **kwargs))
            getattr(self, name).build(shape)
        self.output_projection = Linear(shape[-1], self.output_initializer, name="output", **kwargs)
        self.output_projection.build((*shape[:-1], width))
        self.dropout = Dropout(self.rate, name="dropout", dtype=self.dtype_policy)
        self.dropout.build()
        self.fixed = constant(lambda: self.directions(key(self.seed, self.drawn_as)))

    @property
    def maps(self) -> tuple[Linear, ...]:
        return self.query_key, self.value

    def directions(self, key: Tensor) -> Tensor:
        """Random directions: uint32 [2] -> float32 [N, D, R * half of all factors]; each of R rounds has its own."""
        return normal(key, (self.heads, self.head_size, self.rounds * (sum(self.factors) // 2)))

    def rotations(self, training: bool) -> Tensor:
        """The directions of this call."""
        if training and scoped():
            return self.directions(shared_key(self.drawn_as))
        return ops.convert_to_tensor(self.fixed)

    def hash(self, vectors: Tensor, real: Tensor, training: bool) -> Tensor:
        """The buckets: [B, N, S, D] -> int32 [B, N, R, S]; what is not real, bool [B, S], has the last one (section 2)."""
        vectors = ops.stop_gradient(ops.cast(vectors, "float32"))
        rotated = by_head(vectors, ops.expand_dims(self.rotations(training), 0))
        rotated = reshape(rotated, (*ops.shape(rotated)[:3], self.rounds, sum(self.factors) // 2))
        buckets, first, product = 0, 0, 1
        for factor in self.factors:
            part = rotated[..., first : first + factor // 2]
            buckets = buckets + product * argmax(ops.concatenate([part, -part], axis=-1))
            first, product = first + factor // 2, product * factor
        buckets = ops.transpose(buckets, (0, 1, 3, 2))
        if real is None:
            return buckets
        kept = ops.expand_dims(ops.expand_dims(ops.cast(real, "int32"), 1), 1)
        return buckets * kept + (1 - kept) * product

    def unit(self, x: Tensor) -> Tensor:
        """Vectors of length 1, with the released code's epsilon: [..., D] -> [..., D]."""
        wide = ops.cast(x, "float32")
        wide = wide * ops.rsqrt(ops.mean(wide * wide, axis=-1, keepdims=True) + 1e-6) / math.sqrt(self.head_size)
        return ops.cast(wide, x.dtype)

    def mix(
        self, shared: Tensor, value: Tensor, visible: Visible, key: Tensor, training: bool, probabilities: bool
    ) -> tuple[Tensor, Tensor | None]:
        length = ops.shape(shared)[2]
        if self.chunks.whole(shared.shape[2]):
            shared, value = (ops.expand_dims(x, 2) for x in (shared, value))
            arrange = lambda x: ops.expand_dims(ops.expand_dims(x, 1), 1)  # noqa: E731
            seen, own = visible.pairs(arrange(self.places(length)[:, 0]), arrange, lambda x: x, length)
            y, weights, *_ = self.attend_chunks(shared, self.unit(shared), value, seen, own, key)
            return ops.squeeze(y, 2), ops.cast(ops.squeeze(weights, 2), "float32") if probabilities else None
        buckets = drawn(lambda: self.hash(shared, visible.real, training))
        order = stable_argsort(buckets)
        undo = stable_argsort(order)
        query, value = (self.cut(permute(x, order, undo)) for x in (shared, value))
        rows, adjacent = ops.shape(shared)[0], self.chunks.adjacent

        def arrange(x: Tensor) -> Tensor:
            x = ops.broadcast_to(x, (rows, length))
            return self.cut_places(reshape(choose(x, ops.reshape(order, (rows, -1))), ops.shape(order)))

        place = self.cut_places(order)
        seen, own = visible.pairs(place, arrange, adjacent, length)
        if not self.across:
            same = self._same_bucket(buckets, order)
            seen = same if seen is None else ops.logical_and(seen, same)
        y, weights, *told = self.attend_chunks(query, adjacent(self.unit(query)), adjacent(value), seen, own, key)
        y = permute(reshape(y, (*ops.shape(order), self.value_size)), undo, order)
        told = [permute(reshape(x, (*ops.shape(order), 1)), undo, order) for x in told]
        share = ops.expand_dims(round_weights(*(ops.squeeze(x, -1) for x in told)), -1)
        whole = None
        if probabilities:
            whole = reshape(self.spread(weights, adjacent(place), length), (*ops.shape(order), length))
            whole = ops.sum(permute(whole, undo, order) * share, axis=2)
        return ops.sum(y * ops.cast(share, y.dtype), axis=2), whole

    def _same_bucket(self, buckets: Tensor, order: Tensor) -> Tensor:
        """Who shares a bucket and stands in the chunks beside, the ring cut open: bool [B, N, C, c, W]."""
        # a bucket of each round, in sorted order, and the number of the chunk
        number = ops.reshape(ops.arange(self.rounds, dtype="int32"), (1, 1, -1, 1)) * (math.prod(self.factors) + 1)
        bucket = self.cut_places(ops.take_along_axis(buckets + number, order, axis=-1))
        chunk = ops.reshape(ops.arange(ops.shape(bucket)[2], dtype="int32"), (1, 1, -1, 1)) + ops.zeros_like(bucket)
        (own, seen), (mine, near) = (
            (ops.expand_dims(x, -1), ops.expand_dims(self.chunks.adjacent(x), -2)) for x in (bucket, chunk)
        )
        close = ops.logical_and(near >= mine - self.chunks.before, near <= mine + self.chunks.after)
        return ops.logical_and(ops.equal(own, seen), close)
