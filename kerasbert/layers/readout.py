"""One vector a row, of the vectors of its tokens."""

from typing import Literal

from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers.backend import pick
from kerasbert.poolings import readouts_of

Queries = Tensor | Literal["first"] | None  # None for all, "first", int [B, P], or int [B] for one a row


def readout(outputs: Tensor, mask: Tensor, kind: str, begin: int = 0) -> Tensor:
    """The vector of a row: [B, S, H] -> [B, H].

    Args:
        outputs: float [B, S, H], an encoder's `sequence`, or [B, 1, H] of its `queries` (`queries_of`); for "none" [B, H].
        mask: bool or 0/1 [B, S], True = a real token; None where all are real.
        kind: "first" ("cls"), "last" (the last real token), "mean" (of the real tokens), "max" (of each number over the real
            tokens), "mean_sqrt_len" (their sum over the root of how many they are), "weighted_mean" (a token weighs its place,
            from 1: Muennighoff, 2022, section 3.1), some of these with + between them (side by side in that order: [B, nH]),
            "concat" (last+max+mean) or "none" (a row has one vector already). The first six are the poolings of
            sentence-transformers (Reimers and Gurevych, 2019, section 3).
        begin: int, how many tokens of a row, the first ones, are not read: those of a prompt. Weights are by place still.

    >>> readout(ops.reshape(ops.arange(6.0), (1, 3, 2)), ops.array([[1, 1, 0]]), "last").numpy().tolist()
    [[2.0, 3.0]]
    """
    names = readouts_of(kind)
    if begin and outputs.shape[1] != 1:
        mask = ops.ones(ops.shape(outputs)[:2]) if mask is None else mask
        start = None if "first" not in names else pick(outputs, _start(mask, begin))[:, 0]
        mask = ops.cast(mask, "float32") * ops.cast(ops.arange(ops.shape(outputs)[1]) >= begin, "float32")
        found = [start if name == "first" else _one(outputs, mask, name) for name in names]
    else:
        found = [_one(outputs, mask, name) for name in names]
    return found[0] if len(found) == 1 else ops.concatenate(found, axis=-1)


def _one(outputs: Tensor, mask: Tensor, kind: str) -> Tensor:
    if kind == "none":
        return outputs
    if kind == "first" or (kind == "last" and outputs.shape[1] == 1):
        return first(outputs)
    if kind == "last":
        return outputs[:, -1] if mask is None else pick(outputs, last(mask))[:, 0]
    if mask is None and kind == "mean":
        return ops.mean(outputs, axis=1)
    mask = ops.ones(ops.shape(outputs)[:2]) if mask is None else mask
    real = ops.expand_dims(ops.cast(mask, "float32"), -1)
    if kind == "max":  # the least there may be of a row is lower than anything a layer norm leaves
        return ops.max(ops.where(real > 0, outputs, ops.cast(-1e4, outputs.dtype)), axis=1)
    if kind == "weighted_mean":
        real = real * ops.reshape(ops.arange(1, ops.shape(outputs)[1] + 1, dtype="float32"), (1, -1, 1))
    total, count = ops.sum(ops.cast(outputs, "float32") * real, axis=1), ops.maximum(ops.sum(real, axis=1), 1.0)
    return ops.cast(total / (ops.sqrt(count) if kind == "mean_sqrt_len" else count), outputs.dtype)


def _start(mask: Tensor, begin: int) -> Tensor:
    """Places of the first tokens that are read, of shorter rows of their last: int32 [B, 1]."""
    return ops.minimum(begin, last(mask))


def queries_of(kind: str, mask: Tensor, begin: int = 0) -> Queries:
    """What the last layer must compute for `readout`: the encoder's `queries`."""
    names = readouts_of(kind)
    if names == ("first",) and begin:
        return None if mask is None else _start(mask, begin)
    if names == ("last",):
        return None if mask is None else last(mask)
    return "first" if names == ("first",) else None


def width(kind: str | None, hidden: int) -> int:
    """How many numbers `readout` gives of H."""
    return hidden * (1 if kind is None else len(readouts_of(kind)))


def first(x: Tensor, keepdims: bool = False) -> Tensor:
    """The first token, [CLS] or <s>: [B, S, H] -> [B, H], or [B, 1, H]."""
    if keepdims:
        return x[:, :1]
    # of a known length in two operators, which a phone's GPU takes
    return x[:, 0] if x.shape[1] is None else ops.squeeze(x[:, :1], 1)


def last(mask: Tensor) -> Tensor:
    """Positions of the last real tokens: [B, S] -> int32 [B, 1]; 0 in a row that has none."""
    mask = ops.cast(mask, "int32")
    return ops.max(mask * ops.arange(ops.shape(mask)[1], dtype="int32"), axis=1, keepdims=True)
