"""Random bits as a hash of (key, element), so that a number depends on nothing but its name.

Masking and dropout are keyed by (seed, step, layer) and the row in the *global* batch: replicas differ, and one replica
equals N replicas equals any accumulation. The mixer is the 32-bit finaliser `lowbias32` (C. Wellons, hash-prospector,
2018); two key words enter at different depths, for a key that is only xor-ed onto the index makes two seeds' masks
permutations of each other.
"""

import contextlib
import contextvars
import hashlib
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import argmax, keep
from kerasbert.layers.backend_graph import traced_once
from kerasbert.storage.json_view import Json
from kerasbert.within import within

_GOLDEN, _SECOND, _FIRST = 0x9E3779B9, 0x846CA68B, 0x7FEB352D


def _word(value: int) -> Tensor:
    return np.uint32(value & 0xFFFFFFFF)


def _shift(x: Tensor, bits: int) -> Tensor:
    return ops.bitwise_xor(x, ops.right_shift(x, _word(bits)))


def _mix(x: Tensor) -> Tensor:
    x = _shift(x, 16) * _word(_FIRST)
    x = _shift(x, 15) * _word(_SECOND)
    return _shift(x, 16)


def key(*words: int | str | Tensor) -> Tensor:
    """Fold words into a two-word key.

    Args:
        words: ints >= 0 (any size), strings, or int tensors whose shapes broadcast.

    Returns:
        uint32 [..., 2], `...` the words' broadcast shape.

    >>> key(7, "dropout", np.arange(3)).shape
    TensorShape([3, 2])
    """
    low, high = ops.convert_to_tensor(_word(_GOLDEN)), ops.convert_to_tensor(_word(0x243F6A88))
    for word in words:
        for part in _parts(word):
            low = _mix(ops.bitwise_xor(low, part) + _word(_GOLDEN))
            high = _mix(ops.bitwise_xor(high + part, low))
    return ops.stack([low, high], axis=-1)


def _parts(word: Tensor) -> list[Tensor]:
    if isinstance(word, str):
        word = zlib.crc32(word.encode())
    if isinstance(word, int | np.integer):
        if word < 0:
            raise ValueError(f"a word of a random key must be >= 0. Received: {word}")
        words = range(max(1, (int(word).bit_length() + 31) // 32))
        return [ops.convert_to_tensor(_word(int(word) >> 32 * i)) for i in words]
    return [ops.cast(word, "uint32")]


def bits(key: Tensor, shape: tuple[int, ...], first: Tensor = 0) -> Tensor:
    """Random bits: uint32 [..., 2] key -> uint32 [..., *shape], from element `first` (int or int32) of a longer run on.

    The key is added before the axes are spread: TensorFlow keeps what depends on no argument, such as the number of every
    element, as a constant of the graph, one for each call.
    """
    last = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    along = lambda size: ops.cast(ops.arange(size, dtype="int32"), "uint32")  # noqa: E731
    low, high = key[..., 0], key[..., 1][(..., *(None for _ in shape))]
    if not isinstance(first, int) or first:
        low = low + ops.cast(first, "uint32") * _word(_GOLDEN)
    low = low[..., None] + along(rows) * (ops.cast(last, "uint32") * _word(_GOLDEN))
    x = low[..., None] + along(last) * _word(_GOLDEN)
    x = _shift(ops.reshape(x, (*ops.shape(key)[:-1], *shape)), 16) * _word(_FIRST) + high
    x = _shift(x, 15) * _word(_SECOND)
    return _shift(x, 16)


def uniform(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Random numbers in [0, 1) on a grid of 2^-24: uint32 [..., 2] key -> float32 [..., *shape]."""
    return ops.cast(ops.cast(ops.right_shift(bits(key, shape), _word(8)), "int32"), "float32") * np.float32(2**-24)


def normal(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Normal random numbers: uint32 [..., 2] key -> float32 [..., *shape] (Box and Muller, 1958)."""
    draws, rows = uniform(key, (2, *shape)), (slice(None),) * (len(key.shape) - 1)
    radius, angle = 1.0 - draws[(*rows, 0)], draws[(*rows, 1)]
    return ops.sqrt(-2.0 * ops.log(radius)) * ops.cos(np.float32(2 * np.pi) * angle)


class _Scope:
    def __init__(self, words: Tensor, rows: Tensor) -> None:
        self.words, self.rows, self.calls = words, key(words[0], words[1], rows), {}

    def key(self, name: str) -> Tensor:
        """The rows' keys [B, 2] for the next call of the layer `name` (a shared layer is called more than once)."""
        return self._of(self.rows, name)

    def of_update(self, name: str) -> Tensor:
        """As `key`, the same for all rows, replicas and micro-batches of an update: [1, 2]."""
        return self._of(ops.expand_dims(key(self.words[0], self.words[1]), 0), name)

    def _of(self, keys: Tensor, name: str) -> Tensor:
        self.calls[name] = call = self.calls.get(name, -1) + 1
        digest = hashlib.sha256(f"{name} {call}".encode()).digest()
        salt = np.frombuffer(digest[:8], "<u4")  # both words from the name: two mixes instead of a fold per word
        return _mix(ops.bitwise_xor(keys, salt))


_open: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("open", default=None)  # of the thread that traces


def scope(words: Tensor, rows: Tensor) -> contextlib.AbstractContextManager[object]:
    """Within it, dropout draws from the key `words` (uint32 [2]) and each row's index in the global batch (int [B])."""
    return within(_open, _Scope(words, rows))


def among(rows: Tensor) -> contextlib.AbstractContextManager[object]:
    """Within it a pass over some of the rows of the open scope (int [n]) draws what it would draw of all; outside of one nothing.

    A layer that reads others next draws for them as if it had read them at once.
    """
    opened = _open.get()
    return contextlib.nullcontext() if opened is None else scope(opened.words, rows)


def scoped() -> bool:
    """Whether a scope is open, as it is where a program's training pass is traced."""
    return _open.get() is not None


def rows_key(name: str, rows: Tensor) -> Tensor:
    """The rows' keys [B, 2] for what is called `name`: the open scope's, outside of one those of rows 0 to `rows` - 1."""
    opened = _open.get()
    return key(0, name, ops.arange(rows, dtype="int32")) if opened is None else opened.key(name)


def shared_key(name: str) -> Tensor:
    """The key [2] for what is called `name`, the same for all rows: the open scope's; None outside of one."""
    opened = _open.get()
    return None if opened is None else opened.of_update(name)[0]


class _Tape:
    """What a pass draws, in its order.

    Args:
        values: list; it grows, or, in a replay, is handed out from its beginning.
        replay: bool.
        parent: the tape around it, which notes the same draws.
    """

    def __init__(self, values: list[Tensor], replay: bool, parent: "_Tape | None") -> None:
        self.values, self.left, self.parent = values, iter(values) if replay else None, parent

    def draw(self, make: Callable[[], Tensor]) -> Tensor:
        if self.left is not None:
            return next(self.left)
        self.values.append(make() if self.parent is None else self.parent.draw(make))
        return self.values[-1]


_tape: contextvars.ContextVar[_Tape | None] = contextvars.ContextVar("tape", default=None)


@contextlib.contextmanager
def recorded() -> Iterator[list[Tensor]]:
    """Within it, what `drawn` gives is noted in the list."""
    values: list[Tensor] = []
    with within(_tape, _Tape(values, False, _tape.get())):
        yield values


def replayed(values: list[Tensor]) -> contextlib.AbstractContextManager[object]:
    """Within it, `drawn` gives what was noted, in that order, and draws nothing: a pass is computed a second time."""
    return within(_tape, _Tape(values, True, None))


def drawn(make: Callable[[], Tensor]) -> Tensor:
    """What a pass decides at random: `make()`, or what it gave in the pass that is replayed."""
    tape = _tape.get()
    return make() if tape is None else tape.draw(make)


def sample(logits: Tensor, key: Tensor) -> Tensor:
    """One draw from each softmax: logits [B, ..., V] float32, the rows' keys uint32 [B, 2] -> int32 [B, ...].

    The largest of logit + Gumbel noise (Gumbel, 1954; Maddison et al., 2014, section 2). The noise is -log of an
    exponential number, which has 31 bits and is finest near 0, where the noise is large and decides. No gradient.
    """
    logits = ops.stop_gradient(logits)
    drawn = ops.cast(ops.right_shift(bits(key, tuple(ops.shape(logits)[1:])), _word(1)), "int32")
    uniform = (ops.cast(drawn, "float32") + 0.5) * np.float32(2**-31)
    return argmax(logits - ops.log(-ops.log1p(-uniform)))


def drop(x: Tensor, key: Tensor, rate: float, first: Tensor = 0) -> Tensor:
    """x [B, ...] without a share `rate` of its elements, drawn by the rows' keys [B, 2]; None drops nothing.

    `first` (int or int32) is the number of the row's first element, where x is a part of a longer row.
    """
    if key is None:
        return x
    sizes = tuple(ops.shape(x)[1:])
    if all(isinstance(size, int) for size in sizes):
        kept = _kept(key, rate, first, *sizes)
    else:  # of open lengths: nothing is compiled
        kept = traced_once(_kept, x.shape, key, rate, first, *sizes)
    return keep(x, kept, 1 / (1 - rate))


def _kept(key: Tensor, rate: float, first: Tensor, *sizes: Tensor) -> Tensor:
    """Whether an element is kept: bool [B, *sizes]."""
    return bits(key, sizes, first) >= _word(round(rate * 2**32))


class Dropout(keras.layers.Layer):
    """Dropout whose mask is a hash of (seed, step, layer, global row, element).

    Outside of a `scope` (in a user's own `fit`) the key comes from Keras' seed generator.

    Args:
        rate: float in [0, 1), share of elements set to 0; the others are divided by 1 - rate.
        shared: bool, one mask for all rows of an update: x is [1, ...], what rows have in common.
    Call: x [B, ...], first (int, the place on the second axis of a longer x that it begins at) -> [B, ...].
    """

    def __init__(self, rate: float, shared: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate, self.shared = rate, shared
        self.seeds = keras.random.SeedGenerator() if rate else None

    def build(self, shape: Shape | None = None) -> None:
        # Keras gives the layer its path here, which is part of the key
        self.built = True

    def key(self, x: Tensor, training: bool) -> Tensor | None:
        """The rows' keys [B, 2] of one call, or None where nothing is dropped."""
        if not training or not self.rate:
            return None
        return drawn(lambda: self._key(x))

    def _key(self, x: Tensor) -> Tensor:
        if (opened := _open.get()) is not None:
            return (opened.of_update if self.shared else opened.key)(self.path)
        words = self.seeds.next()  # pyright: ignore[reportOptionalMemberAccess]  # there is a rate
        return key(words[0], words[1], ops.arange(ops.shape(x)[0], dtype="int32"))

    def call(self, x: Tensor, training: bool = False, first: int = 0) -> Tensor:
        key = self.key(x, training)
        return x if key is None else drop(x, key, self.rate, first * math.prod(x.shape[2:]))

    def get_config(self) -> Json:
        return {**super().get_config(), "rate": self.rate, "shared": self.shared}


class LockedDropout(Dropout):
    """Dropout with one mask for all places of a row, "variational" (Gal and Ghahramani, 2016; Merity et al., 2017, section 4.2).

    Call: x [B, S, H] -> [B, S, H].
    """

    def call(self, x: Tensor, training: bool = False, first: int = 0) -> Tensor:
        key = self.key(x, training)
        if key is None:
            return x
        keep = bits(key, (1, x.shape[-1])) >= _word(round(self.rate * 2**32))
        return x * ops.cast(keep, x.dtype) * ops.cast(1 / (1 - self.rate), x.dtype)
