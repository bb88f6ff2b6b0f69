"""Attention over blocks of tokens: neighbours, both ends of the row and some that are drawn (Zaheer et al., 2020, appendix D).

The index of a block's keys is made, they are gathered and compared, so that time and memory grow with the length and not with
its square. A row of at most (5 + 2r) c tokens has full attention, as in transformers.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
from keras import ops
from keras.backend import standardize_dtype

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import visibility
from kerasbert.layers.attention import Attention, attention_weights
from kerasbert.layers.backend import gather, reshape
from kerasbert.layers.readout import Queries
from kerasbert.layers.window import chunks, rows_of
from kerasbert.storage.json_view import Json

PLANS = ("drawn", "first", "full")
RELEASED = (1024, 3072, 4096)  # tokens of the rows that have the released code's plan


@dataclasses.dataclass(frozen=True)
class Sparse:
    """What a block of a long row sees beside its neighbours, the first block and the last.

    Args:
        block: int c, tokens of a block.
        random: int r, further blocks.
        plan: which: "drawn", the "first" block r times more, or "full", every token sees all in rows of any length.
    """

    block: int = 64
    random: int = 3
    plan: str = "drawn"

    def check(self) -> None:
        """Raise InputError for what no layer can be."""
        for name, least in (("block", 1), ("random", 0)):
            if getattr(self, name) < least:
                raise InputError(f"sparse.{name} must be at least {least}. Received: {getattr(self, name)}")
        if self.plan not in PLANS:
            raise InputError(f"sparse.plan must be one of {', '.join(PLANS)}. Received: {self.plan!r}")

    @property
    def limit(self) -> int:
        """Tokens of the longest row with full attention."""
        return (5 + 2 * self.random) * self.block


# What is drawn: block of the queries, from 1 on -> r blocks of keys


def drawn(generator: np.random.RandomState, heads: int, count: int, random: int) -> np.ndarray:
    """Of a row of `count` blocks: int [N, count - 2, r]. The rows of a shorter one are the first of a longer one's."""
    last = 2 * random + 4  # of those that are drawn
    found = np.zeros((heads, count - 2, random), "int32")
    for row in range(1, count - 1):
        hidden = {0, row - 1, row, row + 1, last} | {1: {last - 1}, last - 1: {1}}.get(row, set())
        for head in range(heads):
            order = generator.permutation(last + 1)
            found[head, row - 1] = [block for block in order if block not in hidden][:random]
    return found


def released(generator: np.random.RandomState, heads: int, count: int, random: int, block: int) -> np.ndarray | None:
    """The same as the released code draws it, for the longest row there is, of which shorter ones take the first rows.

    None where it cannot: r blocks that are no neighbours are wanted before token 1,024.
    """
    last, blocks = (1024 // block if 2 * block < 1024 else count) - 1, np.arange(1, count - 1, dtype="int32")
    found = np.zeros((heads, count - 2, random), "int32")
    for head in range(heads):
        for row in range(1, count - 1):
            allowed = blocks[:last]
            if row <= 2:
                allowed = blocks[row + 1 : last]
            elif row < count - 3:
                before = blocks[: min(row - 2, last)]
                allowed = before if row - 2 > last or row + 1 == last else np.append(before, blocks[row + 1 : last])
            if len(allowed) < random:
                return None
            found[head, row - 1] = generator.permutation(allowed)[:random]
    return found


@functools.lru_cache(64)
def plans(sparse: Sparse, heads: int, longest: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which blocks the blocks of long rows see besides the first, their neighbours and the last: int32 [N, n - 2, r].

    Returns:
        that of most lengths and that of RELEASED, both of n blocks of the longest row; shorter ones take the first rows.
    """
    count, fits = -(-longest // sparse.block), longest // sparse.block
    if sparse.plan == "first":
        found = np.zeros((heads, count - 2, sparse.random), "int32")
        return found, found
    usual, own = (np.random.RandomState(seed) for _ in range(2))
    theirs = released(own, heads, fits, sparse.random, sparse.block) if longest >= RELEASED[0] else None
    found = drawn(usual, heads, count, sparse.random)
    return found, found if theirs is None else np.pad(theirs, ((0, 0), (0, count - fits), (0, 0)))


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A long row, what a SparseAttention is told as `scoring`.

    Args:
        length: int S, or a scalar tensor: then the row may be a short one.
        real: bool [B, S], or None where all are. pieces: int [B, S] of packed rows, 0 is padding; None.
        dense: whether all scores are asked for.
    """

    length: int | Tensor
    real: Tensor | None = None
    pieces: Tensor | None = None
    dense: bool = False


class SparseAttention(Attention):
    """Multi-head attention over blocks (appendix D): the index of a block's keys is made, they are gathered and compared.

    Args: as Attention; sparse: Sparse; longest: int, tokens of the longest row; seed: int, number of the layer.
    Call: as Attention's; with `scoring`, a Row, over blocks. The probabilities are then [B, N, n - 2, c, (5 + r) c], of all
        blocks but the first and the last; [B, N, Q, S] where the row asks for all scores; None of a length that is not known.
    """

    def __init__(self, *args: Any, sparse: Sparse, longest: int, seed: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sparse, self.longest, self.seed = sparse, longest, seed

    def call(
        self,
        x: Tensor,
        bias: Tensor = None,
        source: Tensor = None,
        value: Tensor = None,
        training: bool = False,
        scoring: Any = None,
        queries: Queries = None,
        **at: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if scoring is None or isinstance(queries, str):  # the first block sees all
            return super().call(x, bias, source, value, training, **at)
        source = x if source is None else source
        if scoring.dense:
            counted = self.counted(scoring.length, queries)
            return super().call(x, counted if bias is None else bias + counted, source, value, training, **at)

        def over_blocks() -> tuple[Tensor, Tensor]:
            y, probabilities = self.over_blocks(source, scoring, training)
            return self.output_projection(rows_of(y, queries)), probabilities

        if isinstance(scoring.length, int):
            return over_blocks()
        full = functools.partial(super().call, source=source, value=value, training=training, **at)

        def over_all() -> Tensor:
            # In the branch, though it changes nothing: where scores, scale and bias become one operator (TensorFlow 2.20, oneDNN)
            # a bias from outside of the branch is read as the other branch's, which has no value: no row came back.
            return full(x, None if bias is None else ops.minimum(bias, 0.0))[0]

        return ops.cond(scoring.length <= self.sparse.limit, over_all, lambda: over_blocks()[0]), None

    def table(self, length: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks that all but the first and last see, int32 [N, n - 2, 5 + r], and how often each counts, [n - 2, 5 + r]."""
        count = -(-length // self.sparse.block)
        both = map(ops.convert_to_tensor, plans(self.sparse, self.heads, self.longest, self.seed))
        found, theirs = (each[:, : count - 2] for each in both)
        of_theirs = [count * self.sparse.block == each for each in RELEASED if each <= self.longest]
        if isinstance(length, int):
            found = theirs if any(of_theirs) else found
        elif of_theirs:
            found = ops.where(functools.reduce(ops.logical_or, of_theirs), theirs, found)
        row = ops.expand_dims(ops.arange(1, count - 1, dtype="int32"), 1)
        near = ops.concatenate([row * 0, row - 1, row, row + 1, row * 0 + count - 1], axis=1)
        once = ops.ones_like(row, "float32")
        counts = [once, ops.cast(row > 1, "float32"), once, ops.cast(row < count - 2, "float32"), once]
        blocks = [ops.tile(ops.expand_dims(near, 0), (self.heads, 1, 1)), found]
        return ops.concatenate(blocks, axis=2), ops.concatenate(counts + [once] * self.sparse.random, axis=1)

    def counted(self, length: Tensor, queries: Queries) -> Tensor:
        """How often a query sees a key, as what is added to its score, the logarithm: float32 [B or 1, N, Q, S]."""
        size, (blocks, counts) = self.sparse.block, self.table(length)
        same = ops.equal(ops.expand_dims(blocks, -1), ops.arange(-(-length // size), dtype="int32"))
        times = ops.sum(ops.cast(same, "float32") * ops.expand_dims(counts, -1), axis=2)
        times = ops.pad(times, [[0, 0], [1, 1], [0, 0]], constant_values=1.0)  # both ends see all, once
        times = ops.where(length > self.sparse.limit, times, ops.ones_like(times))
        bias = ops.where(times > 0, ops.log(ops.maximum(times, 1.0)), visibility.HIDDEN)
        bias = ops.transpose(ops.repeat(bias, size, axis=2)[..., :length], (1, 0, 2))
        places: Tensor = ops.expand_dims(ops.arange(length, dtype="int32"), 0) if queries is None else queries
        return ops.transpose(gather(bias, places // size), (0, 2, 1, 3))

    def over_blocks(self, x: Tensor, row: Row, training: bool) -> tuple[Tensor, Tensor]:
        """x [B, S, H] -> y [B, S, N*D], and the probabilities of the inner blocks."""
        size, table = self.sparse.block, self.table(row.length)
        query, key, value = (self.cut(each(x)) for each in (self.query, self.key, self.value))  # [B, N, n, c, D]
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        told = [(self.gathered(key, table[0]), self.gathered(value, table[0]), self.bias(row, *table))]
        whole = (ops.shape(x)[0], self.heads, ops.shape(query)[2] * size, self.head_size)
        told += [(reshape(key, whole), reshape(value, whole), self.bias(row))]
        ends = ops.concatenate([query[:, :, 0], query[:, :, -1]], axis=2)
        found = []
        for of, (keys, values, bias) in zip((query[:, :, 1:-1], ends), told):
            scores, drop = ops.matmul(of, ops.swapaxes(keys, -1, -2)), self.dropout.key(x, training)
            weights = attention_weights(scores, bias, drop, rate=self.rate, dtype=standardize_dtype(value.dtype))
            found.append((ops.matmul(weights, values), weights))
        (inner, probabilities), (ends, _) = found
        ends = ops.expand_dims(ends, 2)
        y = ops.concatenate([ends[:, :, :, :size], inner, ends[:, :, :, size:]], axis=2)
        y = reshape(ops.transpose(y, (0, 2, 3, 1, 4)), (whole[0], whole[2], self.heads * self.head_size))
        return y[:, : row.length], probabilities

    def cut(self, x: Tensor) -> Tensor:
        """[B, S, N*D] -> blocks with their heads: [B, N, n, c, D]."""
        x = chunks(x, self.sparse.block, 0)
        return ops.transpose(reshape(x, (*ops.shape(x)[:3], self.heads, self.head_size)), (0, 3, 1, 2, 4))

    def gathered(self, x: Tensor, table: Tensor) -> Tensor:
        """Blocks [B, N, n, c, D] -> those of a table [N, n - 2, k] side by side: [B, N, n - 2, k c, D]."""
        batch, heads, count, size, width = ops.shape(x)
        index = table + ops.reshape(ops.arange(heads, dtype="int32") * count, (heads, 1, 1))
        found = gather(reshape(x, (batch, heads * count, size, width)), ops.reshape(index, (-1,)), axis=1)
        return reshape(found, (batch, heads, count - 2, table.shape[2] * size, width))

    def bias(self, row: Row, table: Tensor = None, counts: Tensor = None) -> Tensor:
        """What is added to scores: of the inner blocks [B or 1, N, n - 2, c or 1, k c], of both ends [B or 1, 1, 2c or 1, n c].

        Args:
            table, counts: as `table` gives them; none of the ends.
        """
        size, pieces = self.sparse.block, row.real if row.pieces is None else row.pieces
        pieces = ops.ones((1, row.length)) if pieces is None else ops.cast(pieces, "float32")
        pieces = chunks(pieces, size, 0)  # [B or 1, n, c], 0 is padding
        rows, count, _ = ops.shape(pieces)
        if table is None:
            own = ops.expand_dims(ops.concatenate([pieces[:, 0], pieces[:, -1]], axis=1), 1)
            keys = reshape(pieces, (rows, 1, 1, count * size))
            times = 1.0
        else:
            own, keys = ops.expand_dims(pieces[:, 1:-1], 1), gather(pieces, ops.reshape(table, (-1,)), axis=1)
            keys = reshape(keys, (rows, self.heads, count - 2, 1, table.shape[2] * size))
            times = ops.expand_dims(ops.repeat(counts, size, axis=1), 1)
        seen = ops.cast(keys > 0, "float32") * times
        if row.pieces is not None:
            seen = seen * ops.cast(ops.equal(ops.expand_dims(own, -1), keys), "float32")
        return (1.0 - seen) * visibility.HIDDEN

    def get_config(self) -> Json:
        return {**super().get_config(), "sparse": self.sparse, "longest": self.longest, "seed": self.seed}
