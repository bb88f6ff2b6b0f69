"""Random bits as a hash of (key, element), so that a number depends on nothing but its name.

Masking and dropout are keyed by (seed, step, layer) and the row in the *global* batch: replicas differ, and one replica
equals N replicas equals any accumulation. The mixer is the 32-bit finaliser `lowbias32` (C. Wellons, hash-prospector,
2018); two key words enter at different depths, for a key that is only xor-ed onto the index makes two seeds' masks
permutations of each other.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.layers.backend import argmax

_GOLDEN, _SECOND, _FIRST = 0x9E3779B9, 0x846CA68B, 0x7FEB352D


def _word(value: int) -> Any:
    return np.uint32(value & 0xFFFFFFFF)


def _shift(x: Any, bits: int) -> Any:
    return ops.bitwise_xor(x, ops.right_shift(x, _word(bits)))


def _mix(x: Any) -> Any:
    x = _shift(x, 16) * _word(_FIRST)
    x = _shift(x, 15) * _word(_SECOND)
    return _shift(x, 16)


def key(*words: Any) -> Any:
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


def _parts(word: Any) -> list[Any]:
    if isinstance(word, str):
        word = zlib.crc32(word.encode())
    if isinstance(word, int | np.integer):
        if word < 0:
            raise ValueError(f"a word of a random key must be >= 0. Received: {word}")
        words = range(max(1, (int(word).bit_length() + 31) // 32))
        return [ops.convert_to_tensor(_word(int(word) >> 32 * i)) for i in words]
    return [ops.cast(word, "uint32")]


def bits(key: Any, shape: tuple[int, ...]) -> Any:
    """Random bits: uint32 [..., 2] key -> uint32 [..., *shape]."""
    size = 1
    for width in shape:
        size = size * width
    counter = ops.reshape(ops.cast(ops.arange(size, dtype="int32"), "uint32"), shape)
    spread = (..., *(None for _ in shape))
    low, high = key[..., 0][spread], key[..., 1][spread]
    x = _shift(counter * _word(_GOLDEN) + low, 16) * _word(_FIRST) + high
    x = _shift(x, 15) * _word(_SECOND)
    return _shift(x, 16)


def uniform(key: Any, shape: tuple[int, ...]) -> Any:
    """Random numbers in [0, 1) on a grid of 2^-24: uint32 [..., 2] key -> float32 [..., *shape]."""
    return ops.cast(ops.cast(ops.right_shift(bits(key, shape), _word(8)), "int32"), "float32") * np.float32(2**-24)


class _Scope:
    def __init__(self, words: Any, rows: Any):
        self.rows, self.calls = key(words[0], words[1], rows), {}

    def key(self, name: str) -> Any:
        """The rows' keys [B, 2] for the next call of the layer `name` (a shared layer is called more than once)."""
        self.calls[name] = call = self.calls.get(name, -1) + 1
        digest = hashlib.sha256(f"{name} {call}".encode()).digest()
        salt = np.frombuffer(digest[:8], "<u4")  # both words from the name: two mixes instead of a fold per word
        return _mix(ops.bitwise_xor(self.rows, salt))


_scopes: list[_Scope] = []


@contextlib.contextmanager
def scope(words: Any, rows: Any) -> Iterator[None]:
    """Within it, dropout draws from the key `words` (uint32 [2]) and each row's index in the global batch (int [B])."""
    _scopes.append(_Scope(words, rows))
    try:
        yield
    finally:
        _scopes.pop()


def scoped() -> bool:
    """Whether a scope is open, as it is where a program's training pass is traced."""
    return bool(_scopes)


def rows_key(name: str, rows: Any) -> Any:
    """The rows' keys [B, 2] for what is called `name`: the open scope's, outside of one those of rows 0 to `rows` - 1."""
    return _scopes[-1].key(name) if _scopes else key(0, name, ops.arange(rows, dtype="int32"))


def sample(logits: Any, key: Any) -> Any:
    """One draw from each softmax: logits [B, ..., V] float32, the rows' keys uint32 [B, 2] -> int32 [B, ...].

    The largest of logit + Gumbel noise (Gumbel, 1954; Maddison et al., 2014, section 2). The noise is -log of an
    exponential number, which has 31 bits and is finest near 0, where the noise is large and decides. No gradient.
    """
    logits = ops.stop_gradient(logits)
    drawn = ops.cast(ops.right_shift(bits(key, tuple(ops.shape(logits)[1:])), _word(1)), "int32")
    uniform = (ops.cast(drawn, "float32") + 0.5) * np.float32(2**-31)
    return argmax(logits - ops.log(-ops.log1p(-uniform)))


def drop(x: Any, key: Any, rate: float) -> Any:
    """x [B, ...] without a share `rate` of its elements, drawn by the rows' keys [B, 2]; None drops nothing."""
    if key is None:
        return x
    keep = bits(key, tuple(ops.shape(x)[1:])) >= _word(round(rate * 2**32))
    return x * ops.cast(keep, x.dtype) * ops.cast(1 / (1 - rate), x.dtype)


class Dropout(keras.layers.Layer):
    """Dropout whose mask is a hash of (seed, step, layer, global row, element).

    Outside of a `scope` (in a user's own `fit`) the key comes from Keras' seed generator.

    Args:
        rate: float in [0, 1), share of elements set to 0; the others are divided by 1 - rate.
    Call: x [B, ...] -> [B, ...].
    """

    def __init__(self, rate: float, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seeds = keras.random.SeedGenerator() if rate else None

    def build(self, shape=None):
        # Keras gives the layer its path here, which is part of the key
        self.built = True

    def key(self, x, training):
        """The rows' keys [B, 2] of one call, or None where nothing is dropped."""
        if not training or not self.rate:
            return None
        if _scopes:
            return _scopes[-1].key(self.path)
        words = self.seeds.next()  # pyright: ignore[reportOptionalMemberAccess]  # there is a rate
        return key(words[0], words[1], ops.arange(ops.shape(x)[0], dtype="int32"))

    def call(self, x, training=False):
        return drop(x, self.key(x, training), self.rate)

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}
