"""Keys and values of what has been written, so that a step computes one token: see `EncoderDecoder.step`.

A *state* is a flat dict of arrays, whose names serve as those of a program's inputs and outputs:

- `key_0`, `value_0`, ... [B, N, T, D], of each layer's self-attention: T places, of which a step writes one;
- `source_key_0`, `source_value_0`, ... [B, N, S, D], of each layer's cross-attention, made once;
- `source_mask` float32 [B, S], 1 = a real token of the source;
- `coverage` float32 [B, S], where it was asked for: what each token of the source has been attended to so far, 1 where padded.

What begins with `source_` no step changes. A step writes its column by a `where` on the number of the place: all shapes are
fixed, and a program's outputs can be its next inputs.

Texts stand at the left: row i has its token t at place t whatever the other rows have, and sees the places up to its own
column. What stands in later places, such as a prompt's padding, is overwritten before it is seen: so a state needs no mask.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keras import ops

from kerasbert.inputs import Tensor

if TYPE_CHECKING:
    from kerasbert.layers.attention import Attention

FIXED = "source_"
"""What the names of arrays begin with that no step changes."""

COVERAGE = "coverage"


class Column:
    """Keys and values [B, N, T, D] of one layer, of which a step writes one column.

    Args:
        key: [B, N, T, D].
        value: [B, N, T, D].
        here: bool [B, 1, T, 1], the place of each row that is written.
    """

    def __init__(self, key: Tensor, value: Tensor, here: Tensor) -> None:
        self.key, self.value, self.here = key, value, here

    def read(self, attention: "Attention", source: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all places, with those of the new token [B, 1, H]."""
        key, value = attention.read(source, value)
        self.key = ops.where(self.here, key, self.key)
        self.value = ops.where(self.here, value, self.value)
        return self.key, self.value


class Prompt:
    """Keys and values of one layer that a prompt [B, P, H] makes: the first P of T places.

    Args:
        places: int T.
    """

    def __init__(self, places: int) -> None:
        self.places = places

    def read(self, attention: "Attention", source: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the prompt's P tokens."""
        key, value = attention.read(source, value)
        self.key, self.value = self._widened(key), self._widened(value)
        return key, value

    def _widened(self, x: Tensor) -> Tensor:
        rows, heads, length, size = ops.shape(x)
        return ops.concatenate([x, ops.zeros((rows, heads, self.places - length, size), x.dtype)], axis=2)


class Made:
    """Keys and values [B, N, S, D] of a source; nothing is projected again."""

    def __init__(self, key: Tensor, value: Tensor) -> None:
        self.key, self.value = key, value

    def read(self, attention: "Attention", source: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """They themselves."""
        return self.key, self.value


@dataclasses.dataclass(frozen=True)
class LayerCache:
    """What one layer reads keys and values from: its self-attention, and its cross-attention where it has one."""

    own: Column | Prompt
    source: Made | None


class Cache:
    """What a stack reads and writes instead of computing earlier tokens again; `state` is complete when the stack has run.

    Args:
        state: dict of arrays, of a step; of a prompt what begins with `source_` alone.
        layers: int, of the stack.
        places: int T, or a scalar tensor.
        column: int32 [B], the place of each row's token; None for a prompt, which begins at place 0.
    """

    def __init__(self, state: Mapping[str, Tensor], layers: int, places: int, column: Tensor | None = None) -> None:
        self.given, self.places, self.column = dict(state), places, column
        self.layers = [LayerCache(Prompt(places), self._source(i)) for i in range(layers)]
        if column is not None:
            number = ops.reshape(ops.arange(places, dtype="int32"), (1, 1, -1, 1))
            here = ops.equal(number, ops.reshape(column, (-1, 1, 1, 1)))
            each = [Column(state[f"key_{i}"], state[f"value_{i}"], here) for i in range(layers)]
            self.layers = [LayerCache(own, self._source(i)) for i, own in enumerate(each)]

    def _source(self, layer: int) -> Made | None:
        names = [f"{FIXED}{part}_{layer}" for part in ("key", "value")]
        return Made(*(self.given[name] for name in names)) if names[0] in self.given else None

    @property
    def visible(self) -> Tensor:
        """Which places the tokens of a step see: bool [B, 1, T]."""
        number = ops.reshape(ops.arange(self.places, dtype="int32"), (1, 1, -1))
        return ops.less_equal(number, ops.reshape(self.column, (-1, 1, 1)))

    @property
    def state(self) -> dict[str, Tensor]:
        """The arrays, with what the stack has written."""
        written = dict(self.given)
        for i, layer in enumerate(self.layers):
            written |= {f"key_{i}": layer.own.key, f"value_{i}": layer.own.value}
        return written


def empty(attentions: Sequence["Attention"], rows: Tensor, places: int) -> dict[str, Tensor]:
    """`key_0`, `value_0`, ... of layers that have read nothing: zeros [B, N, T, D].

    Args:
        attentions: the layers' self-attentions.
        rows: int B, or a scalar tensor.
        places: int T.
    """
    state = {}
    for i, each in enumerate(attentions):
        for part, size in (("key", each.head_size), ("value", each.value_size)):
            state[f"{part}_{i}"] = ops.zeros((rows, each.heads, places, size), each.compute_dtype)
    return state


def places_of(state: Mapping[str, Tensor]) -> Tensor:
    """How many places a state has: T, an int where it is known."""
    return ops.shape(state["key_0"])[2]


def columns(column: Tensor, token_ids: Tensor) -> Tensor:
    """An int, a scalar or int [B] -> int32 [B], one for each token of int [B]."""
    return ops.broadcast_to(ops.cast(column, "int32"), ops.shape(token_ids))
