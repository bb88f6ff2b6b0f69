"""How layers cut a sequence into chunks, who sees whom there, and the settings of layers that do (`layers.lsh`)."""

import dataclasses
import math
from collections.abc import Callable

from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import choose


@dataclasses.dataclass(frozen=True)
class Local:
    """Layers that attend to neighbours; `attention.dropout` is theirs.

    Args:
        chunk: int m, tokens of a chunk.
        before: int, chunks before its own that a token sees.
        after: int, chunks after it.
    """

    chunk: int = 64
    before: int = 1
    after: int = 0

    def check(self, name: str, causal: bool) -> None:
        """Raise InputError for what no layer can be; `name` is the field's, `causal` says whether one is causal."""
        if self.chunk < 1:
            raise InputError(f"{name}.chunk must be at least 1 token. Received: {self.chunk}")
        if min(self.before, self.after) < 0:
            raise InputError(f"{name}.before and {name}.after must be at least 0. Received: {self}")
        if causal and self.after:
            raise InputError(
                f"{name}.after is {self.after}, expected 0 where a token sees none behind it (attention.causal)"
            )


@dataclasses.dataclass(frozen=True)
class Lsh(Local):
    """Layers that hash (section 2).

    Args:
        chunk, before, after: as in Local.
        rounds: int n_rounds, hashes drawn independently.
        buckets: int or two factors, even; None: by the longest sequence, two for each chunk, a power of two.
        dropout: float, on the probabilities; None takes that of `attention`.
        across: bool, whether tokens of a chunk see other buckets than their own, as in the released code.
        seed: int, of the random directions at inference.
    """

    rounds: int = 1
    buckets: int | tuple[int, ...] | None = None
    dropout: float | None = None
    across: bool = True
    seed: int = 0

    def check(self, name: str, causal: bool) -> None:
        super().check(name, causal)
        if self.rounds < 1:
            raise InputError(f"{name}.rounds must be at least 1. Received: {self.rounds}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise InputError(f"{name}.dropout must be in [0, 1). Received: {self.dropout}")
        if any(factor < 2 or factor % 2 for factor in self.factors(self.chunk)):
            raise InputError(f"{name}.buckets must be even, for a direction and its opposite. Received: {self.buckets}")

    def factors(self, longest: int) -> tuple[int, ...]:
        """Factors of the number of buckets, which follows from the longest sequence where it is open (transformers' rule)."""
        if self.buckets is not None:
            return (self.buckets,) if isinstance(self.buckets, int) else self.buckets
        power = max(1, (2 * (longest // self.chunk)).bit_length() - 1)
        most = 2 * max(int(math.sqrt(longest // self.chunk)), self.chunk)
        return (2**power,) if 2**power <= most else (2 ** (power // 2), 2 ** (power - power // 2))


@dataclasses.dataclass(frozen=True)
class Chunks:
    """How a layer cuts a sequence.

    Args:
        size: int c, tokens of a chunk.
        before: int, chunks before its own that a token sees.
        after: int, chunks after it.
        multiple: int, of which the length is made a multiple by padding: that of all layers, for where padding stands
            decides who shares a chunk.
        least: int, longest sequence that is not padded: the least chunk of all layers.
    """

    size: int
    before: int = 1
    after: int = 0
    multiple: int = 1
    least: int = 0

    def missing(self, length: int | None, now: Tensor) -> Tensor:
        """How many places padding adds to a sequence; `now` is its length where `length` is not known before."""
        if length is None:
            return (-now) % self.multiple
        return 0 if length <= self.least else -length % self.multiple

    def whole(self, length: int | None) -> bool:
        """Whether a padded sequence is one chunk, which sees itself alone."""
        return length is not None and length <= self.size

    def adjacent(self, x: Tensor) -> Tensor:
        """What each chunk sees: [B, N, C, c, ...] -> [B, N, C, W, ...]."""
        parts = [
            ops.concatenate([x[:, :, i:], x[:, :, :i]], axis=2) if i else x for i in range(-self.before, self.after + 1)
        ]
        return ops.concatenate(parts, axis=3) if len(parts) > 1 else x


@dataclasses.dataclass(frozen=True)
class Visible:
    """Who may look at whom, as far as it is not the chunks that decide.

    Args:
        real: bool [B, S], real tokens, which are seen; None where all are.
        pieces: int32 [B, S]: tokens of one number see each other; None where all do.
        matrix: bool [B, S, S], or None.
        causal: bool, whether a token sees only itself and those before it.
    """

    real: Tensor | None = None
    pieces: Tensor | None = None
    matrix: Tensor | None = None
    causal: bool = False

    def padded(self, missing: Tensor, length: Tensor) -> "Visible":
        """With `missing` places more, which nobody sees."""
        if isinstance(missing, int) and not missing:
            return self
        rows = next((ops.shape(x)[0] for x in (self.real, self.pieces, self.matrix) if x is not None), 1)
        real = ops.ones((rows, length), "bool") if self.real is None else ops.cast(self.real, "bool")
        return Visible(
            ops.pad(real, [[0, 0], [0, missing]]),
            None if self.pieces is None else ops.pad(self.pieces, [[0, 0], [0, missing]]),
            None if self.matrix is None else ops.pad(self.matrix, [[0, 0], [0, missing], [0, missing]]),
            self.causal,
        )

    def pairs(self, place: Tensor, arrange: Callable, adjacent: Callable, length: Tensor) -> tuple[Tensor, Tensor]:
        """Which keys the tokens of a chunk see, and which of them are they themselves.

        Args:
            place: int32 [B or 1, N or 1, C, c], which token stands there.
            arrange: [B, S] -> [B, N or 1, C, c].
            adjacent: of `Chunks`.
            length: S.

        Returns:
            (bool [..., C, c, W] or None where all are seen, bool [..., C, c, W]).
        """
        query, seen = ops.expand_dims(place, -1), ops.expand_dims(adjacent(place), -2)
        masks = [] if self.real is None else [ops.expand_dims(adjacent(arrange(ops.cast(self.real, "bool"))), -2)]
        if self.causal:
            masks.append(ops.less_equal(seen, query))
        if self.pieces is not None:
            piece = arrange(self.pieces)
            masks.append(ops.equal(ops.expand_dims(piece, -1), ops.expand_dims(adjacent(piece), -2)))
        if self.matrix is not None:
            masks.append(self._of_matrix(query * length + seen))
        own, visible = ops.equal(query, seen), None
        for mask in masks:
            visible = mask if visible is None else ops.logical_and(visible, mask)
        return visible, own

    def _of_matrix(self, index: Tensor) -> Tensor:
        """bool [B, S, S], int [B or 1, ...] -> bool [B, ...]."""
        rows = ops.shape(self.matrix)[0]
        index = ops.broadcast_to(index, (rows, *ops.shape(index)[1:]))
        flat = ops.reshape(ops.cast(self.matrix, "int32"), (rows, -1))
        return ops.cast(ops.reshape(choose(flat, ops.reshape(index, (rows, -1))), ops.shape(index)), "bool")
