"""What a stack remembers of earlier segments: the inputs of its layers (Dai et al., 2019, Transformer-XL, section 3.2)."""

import dataclasses
from collections.abc import Mapping, Sequence

from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor

STATE, MASK = "memory_", "memory_mask"


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """What is carried from segment to segment.

    Args:
        length: int M, tokens that each layer remembers (mem_len); 0 for none.
        clamp: int, from which distance on all distances are one (clamp_len); None for no bound.
        same_length: bool, whether every token sees M tokens, itself among them, instead of all before it.
    """

    length: int = 150
    clamp: int | None = None
    same_length: bool = False

    def check(self) -> "Recurrence":
        """Refuse what means nothing; returns self."""
        if self.length < 0:
            raise InputError(f"memory.length must be at least 0. Received: {self.length}")
        if self.clamp is not None and self.clamp < 1:
            raise InputError(f"memory.clamp must be at least 1, or none for no bound. Received: {self.clamp}")
        if self.same_length and not self.length:
            raise InputError(
                "memory.same_length lets a token see memory.length tokens, expected at least 1. Received: 0"
            )
        return self


@dataclasses.dataclass(frozen=True)
class Memory:
    """The last M tokens before a segment, as each layer read them. It has no gradient.

    Args:
        layers: of each layer float [B, M, H].
        mask: float32 [B, M], 1 = a token; None where all are.
    """

    layers: tuple[Tensor, ...]
    mask: Tensor | None = None

    @classmethod
    def empty(cls, rows: int, places: int, layers: int, hidden: int, dtype: str) -> "Memory":
        """Of a text that begins: M places of nothing."""
        return cls((ops.zeros((rows, places, hidden), dtype),) * layers, ops.zeros((rows, places), "float32"))

    @classmethod
    def of_state(cls, state: Mapping[str, Tensor]) -> "Memory":
        """The inverse of `state`."""
        return cls(tuple(state[f"{STATE}{i}"] for i in range(len(state) - 1)), state[MASK])

    @property
    def state(self) -> dict[str, Tensor]:
        """Arrays by name: `memory_0`, ... and `memory_mask`."""
        mask = ops.ones(ops.shape(self.layers[0])[:2], "float32") if self.mask is None else self.mask
        return {f"{STATE}{i}": layer for i, layer in enumerate(self.layers)} | {MASK: mask}

    @property
    def places(self) -> int:
        """M."""
        return ops.shape(self.layers[0])[1]


def remembered(
    memory: Memory | None, hidden: Sequence[Tensor], places: int, real: Tensor | None = None
) -> Memory | None:
    """The memory after a segment: the last of what was remembered and of the segment, at most so many places.

    Args:
        memory: before the segment; None for nothing.
        hidden: of each layer its input, float [B, S, H].
        places: int M, at most.
        real: bool or 0/1 [B, S], True = a token; None where all are.

    Returns:
        a Memory without a gradient; None where `places` is 0.
    """
    if not places:
        return None
    before = [None] * len(hidden) if memory is None else memory.layers
    layers = tuple(ops.stop_gradient(_last(pair, places)) for pair in zip(before, hidden, strict=True))
    old = None if memory is None else memory.mask
    if real is None and old is None:
        return Memory(layers)
    own = ops.ones(ops.shape(hidden[0])[:2], "float32") if real is None else ops.cast(real, "float32")
    if memory is not None and old is None:
        old = ops.ones(ops.shape(memory.layers[0])[:2], "float32")
    return Memory(layers, _last((old, own), places))


def within(places: Tensor, keys: Tensor, about: Recurrence) -> Tensor:
    """Which keys stand at most M - 1 places before a query (same_length): bool [1 or B, Q, K], or None for all.

    Args:
        places: int32 [Q], or [B, Q, 1], the queries' among the keys.
        keys: int K, or a scalar tensor.
        about: Recurrence.
    """
    if not about.same_length:
        return None
    places = ops.reshape(places, (1, -1, 1)) if len(places.shape) == 1 else places
    return places - ops.reshape(ops.arange(keys, dtype="int32"), (1, 1, -1)) < about.length


def _last(pair: tuple[Tensor, Tensor], places: int) -> Tensor:
    """The last places of two arrays [B, M, ...], [B, S, ...] behind one another; the first may be None."""
    before, x = pair
    if before is not None and (x.shape[1] is None or x.shape[1] < places):
        x = ops.concatenate([ops.cast(before, x.dtype), x], axis=1)
    return x[:, -places:]
