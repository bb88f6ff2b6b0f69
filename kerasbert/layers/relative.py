"""Relative attention (Dai et al., 2019, Transformer-XL, section 3.3): scores that depend on how far apart two tokens stand.

    score(i, j) = (q_i + u) k_j + (q_i + v) W_r R_(i-j)

is divided by the root of the head's size as a whole. R are sinusoids of the distance, u and v learned numbers of a head.
Transformer-XL (distances from K - 1 down to 0) and XLNet (from K down to -Q + 1, and a term for the segments) read it.
"""

import dataclasses

import numpy as np
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import by_head, choose, on_tpu
from kerasbert.layers.context import select
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.initial import Normal
from kerasbert.layers.readout import Queries


def sinusoids(distances: Tensor, width: int) -> Tensor:
    """Vectors of distances: float [...] -> float32 [..., width], all sines, then all cosines (both papers' released code).

    Args:
        width: int H, even.

    >>> np.abs(sinusoids(ops.array([0.0, np.pi / 2]), 2)).round(3).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    # in numpy's double precision: TensorFlow's power would be off by 1e-7, and a distance of 500 multiplies that
    frequencies = (1 / 10000 ** (np.arange(0, width, 2) / width)).astype("float32")
    angles = ops.expand_dims(ops.cast(distances, "float32"), -1) * frequencies
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def distances(keys: Tensor, last: Tensor, clamp: int | None = None) -> Tensor:
    """float32 [keys - last + 1]: keys, keys - 1, ..., last. The first of them no query reads: it makes room for the shift.

    Args:
        keys: int K, or a scalar tensor.
        last: int, 0 where no query sees what is ahead, else -Q + 1; or a scalar tensor.
        clamp: int, distances are at most that far from 0 (clamp_len); None for no bound.
    """
    # differs: the released XLNet counts down to -Q + 1 as here, the released Transformer-XL from K - 1
    found = ops.cast(keys - ops.arange(keys - last + 1, dtype="int32"), "float32")
    return found if clamp is None else ops.clip(found, -clamp, clamp)


@dataclasses.dataclass(frozen=True)
class Relative:
    """What the scores of all layers are told of distances: a `Context`'s `scoring`.

    The queries are the rows of x in order, or some of them, or both.

    Args:
        vectors: float [R, H], or [2, R, H] with `backward`, of the distances K, K - 1, ... (`distances`).
        keys: int K, or a scalar tensor; the keys are at the places 0 to K - 1, and the last of them are those of x.
        memory: int M, or a scalar tensor, keys in front of those of x.
        ordered: bool, whether all rows of x are queries, in their order; they come first.
        places: int32 [B or 1, P], the places among the keys of further queries; None for none.
        backward: bool [B], rows whose text is written backward (XLNet's bi_data): the second of `vectors` is theirs.
        other: float [B, Q, K], 1 where a query and a key are of different segments (XLNet), of these queries; or None.
        seen: float [B, Q, 1], 0 for queries that see nothing, which then get zeros; None where all see something.
    """

    vectors: Tensor
    keys: Tensor
    memory: Tensor = 0
    ordered: bool = True
    places: Tensor | None = None
    backward: Tensor | None = None
    other: Tensor | None = None
    seen: Tensor | None = None

    def of(self, queries: Queries) -> "Relative":
        """The same for these rows of x alone: None for all, "first" or int [B, P]."""
        if queries is None:
            return self
        places = ops.zeros((1, 1), "int32") if isinstance(queries, str) else ops.cast(queries, "int32")
        own = {name: getattr(self, name) for name in ("other", "seen")}
        own = {name: None if value is None else select(value, queries) for name, value in own.items()}
        return dataclasses.replace(self, ordered=False, places=places + self.memory, **own)

    def shifted(self, scores: Tensor) -> Tensor:
        """Scores of distances -> of keys: [B, N, Q, R], column c of the distance K - c -> [B, N, Q, K].

        What stands in columns that `vectors` has no distance for (a key ahead, with distances down to 0) means nothing.
        """
        if not self.ordered:
            return aligned(scores, self.keys - self.places, self.keys)
        if self.places is None:
            return in_order(scores, self.keys)
        rows = self.keys - self.memory
        moved = aligned(scores[:, :, rows:], self.keys - self.places, self.keys)
        return ops.concatenate([in_order(scores[:, :, :rows], self.keys), moved], axis=2)


def in_order(x: Tensor, keys: Tensor) -> Tensor:
    """The relative shift (Dai et al., 2019, appendix B): row i from its column Q - i on: [B, N, Q, R] -> [B, N, Q, K], R > K.

    >>> in_order(ops.reshape(ops.arange(8), (1, 1, 2, 4)), 3).numpy().tolist()
    [[[[2, 3, 4], [5, 6, 7]]]]
    """
    rows, heads, queries, width = ops.shape(x)
    # read with rows one shorter, and the first Q numbers gone, each row begins one number earlier than the one before it
    x = ops.reshape(x, (rows, heads, width, queries))[:, :, 1:]
    return ops.reshape(x, (rows, heads, queries, width - 1))[..., :keys]


def aligned(x: Tensor, begin: Tensor, keys: Tensor) -> Tensor:
    """K columns of each query, from its own on: [B, N, P, R], int32 [B or 1, P] -> [B, N, P, K].

    Columns behind the last are some other number. On TPU by shifts by powers of two, elsewhere by a gather.
    """
    if on_tpu():
        return aligned_by_shifts(x, begin, keys)
    rows, _, queries, width = ops.shape(x)
    column = ops.expand_dims(begin, -1) + ops.arange(keys, dtype="int32")
    column = ops.broadcast_to(ops.minimum(column, width - 1), (rows, queries, keys))
    found = choose(ops.transpose(x, (0, 2, 3, 1)), column, 2)  # [B, P, K, N]
    return ops.transpose(found, (0, 3, 1, 2))


def aligned_by_shifts(x: Tensor, begin: Tensor, keys: int) -> Tensor:
    """`aligned` where all sizes are known: as many selects as the widest shift has bits, no gather and no scatter."""
    farthest = keys  # a query's place is at least 0
    bits = max(1, int(farthest).bit_length())
    x = ops.pad(x, [[0, 0]] * 3 + [[0, max(0, keys + 2**bits - 1 - x.shape[-1])]])[..., : keys + 2**bits - 1]
    begin = ops.expand_dims(ops.expand_dims(begin, 1), -1)  # [B, 1, P, 1]
    for bit in reversed(range(bits)):
        width = keys + 2**bit - 1  # what is still to be shifted
        asked = ops.equal(ops.bitwise_and(ops.right_shift(begin, bit), 1), 1)
        x = ops.where(asked, x[..., 2**bit : 2**bit + width], x[..., :width])
    return x


class RelativeAttention(Attention):
    """Attention with relative positions (Dai et al., 2019, section 3.3).

    u and v are the weights `content_bias` and `position_bias`. What is set before `build` is used as it is: a stack's own,
    shared by all layers.

    Args: as Attention; `use_bias` is of the four maps, W_r never adds one.
    Call: as its parent's, with `scoring`, a Relative; `source` [B, K, H] has the memory in front.
    Trainable weights: of its parent, H*N*D of W_r and 2*N*D where u and v are not shared.
    """

    content_bias: Tensor
    position_bias: Tensor

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.position = Linear(
            self.heads * self.head_size, self.initializer, use_bias=False, name="position", dtype=self.dtype_policy
        )
        self.position.build((None, None, shape[-1]))
        for name in ("content_bias", "position_bias"):
            if not hasattr(self, name):
                setattr(self, name, self.head_weight(name))

    def head_weight(self, name: str, *more: int) -> Tensor:
        """A weight [*more, N, D], which starts as the kernels do."""
        normal = Normal(stddev=self.initializer)
        return self.add_weight(shape=(*more, self.heads, self.head_size), initializer=normal, name=name)

    def scores(self, query: Tensor, key: Tensor, *, scoring: Relative, queries: Queries = None, **at: object) -> Tensor:
        positions = scoring.of(queries)
        # all terms are scaled: 1/sqrt(D) on the queries and on what is added to them
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        content = ops.matmul(self.biased(query, self.content_bias), ops.transpose(key, (0, 1, 3, 2)))
        vectors = ops.transpose(self.vectors(positions, query.dtype), (0, 1, 3, 2))
        moved = positions.shifted(by_head(self.biased(query, self.position_bias), vectors))
        scores = ops.cast(content, "float32") + ops.cast(moved, "float32")
        further = self.further(query, positions)
        return scores if further is None else scores + further

    def attend(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        training: bool = False,
        *,
        scoring: Relative | None = None,
        queries: Queries = None,
        **at: object,
    ) -> tuple:
        assert scoring is not None, "a relative attention needs scoring, a Relative"
        positions = scoring.of(queries)
        y, probabilities = super().attend(x, key, value, bias, training, scoring=positions, **at)
        if positions.seen is None:
            return y, probabilities
        return y * ops.cast(positions.seen, y.dtype), probabilities * ops.expand_dims(positions.seen, 1)

    def biased(self, query: Tensor, bias: Tensor) -> Tensor:
        """q + u, where the queries [B, N, Q, D] are divided by sqrt(D) already; bias [N, D]."""
        return query + ops.expand_dims(ops.cast(bias, query.dtype), 1) * ops.cast(self.head_size**-0.5, query.dtype)

    def vectors(self, positions: Relative, dtype: str) -> Tensor:
        """W_r R: [1 or B, N, R, D]."""
        x = ops.cast(positions.vectors, dtype)
        if positions.backward is None:
            return self.split(self.position(ops.expand_dims(x, 0)))
        found = self.split(self.position(x))
        return ops.where(ops.reshape(ops.cast(positions.backward, "bool"), (-1, 1, 1, 1)), found[1:], found[:1])

    def further(self, query: Tensor, positions: Relative) -> Tensor:
        """What a paper adds: queries [B, N, Q, D], divided by sqrt(D) -> float32 [B, N, Q, K], or None."""
        return None
