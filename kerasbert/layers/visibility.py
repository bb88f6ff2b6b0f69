"""Who may look at whom: boolean masks [B, Q, K], True = may look, and-ed together and turned into one bias, once."""

import functools
from typing import Any

from keras import ops

# Bounded, for -1e9 ruins int8 calibration; exp(-60) is 9e-27, below float32's epsilon against any other score.
HIDDEN = -60.0


def padding(mask: Any) -> Any:
    """Everybody sees the real tokens: [B, K] bool or 0/1 -> [B, 1, K] bool."""
    return ops.expand_dims(ops.cast(mask, "bool"), 1)


def packed(packed_ids: Any) -> Any:
    """The pieces of a row see themselves alone (Krell et al., 2021, section 3.2): int [B, S] -> [B, S, S] bool.

    A piece is told by its number. Padding has the number 0 and sees padding, so that no row is empty.
    """
    return ops.equal(ops.expand_dims(packed_ids, 2), ops.expand_dims(packed_ids, 1))


def causal(length: Any, memory: int = 0) -> Any:
    """A token sees itself, those before it and all of the memory: -> [1, S, M + S] bool.

    Args:
        length: int S, or a scalar tensor.
        memory: int M, keys in front of the row's own.
    """
    row, column = ops.arange(length), ops.arange(-memory, length) if memory else ops.arange(length)
    return ops.expand_dims(ops.less_equal(ops.expand_dims(column, 0), ops.expand_dims(row, 1)), 0)


def both(*visible: Any) -> Any:
    """What all of them allow: bool [B or 1, Q or 1, K] each -> the and of them; None allows everything.

    >>> both(None, None) is None
    True
    """
    masks = [ops.cast(mask, "bool") for mask in visible if mask is not None]
    return functools.reduce(ops.logical_and, masks) if masks else None


def bias(visible: Any, dtype: str = "float32") -> Any:
    """One additive bias for all layers: bool [B, Q or 1, K] -> [B, 1, Q or 1, K], 0 or HIDDEN."""
    hidden = 1.0 - ops.cast(visible, "float32")
    return ops.cast(ops.expand_dims(hidden, 1) * HIDDEN, dtype)
