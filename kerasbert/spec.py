"""A model is data: a frozen Spec made of a few small frozen parts, and differences between Specs.

The same dotted paths (`embeddings.width`) serve Python, recipes, `--set` and the json saved with a model.
"""

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from kerasbert.adaptation import Adapters, Lora, Pals
from kerasbert.errors import InputError, near, nearest
from kerasbert.options import checked, checked_fields, of_numpy
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value")
Settings = TypeVar("Settings", bound="DataclassInstance")  # a family's: a Spec, or any frozen dataclass


@checked_fields
@dataclasses.dataclass(frozen=True)
class Embeddings:
    """What a token starts as.

    Args:
        vocabulary: int V, rows of the token table.
        width: int E, or None for E = H; another width is projected to H.
        positions: int, rows of the table of positions: the longest sequence, with the offset.
        offset: int, rows in front of the first position (RoBERTa and its heirs: 2, never read).
        segments: int, rows of the segment table; 0 for no segments, with 1 every token is of the first.
        kind: of the positions: "learned", "sinusoidal" (Vaswani et al., 2017, section 3.5) or "none".
        norm: bool, whether the sum is normalised; None for what follows from `blocks.norm`: with "post".
    """

    vocabulary: int = 30522
    width: int | None = None
    positions: int = 512
    offset: int = 0
    segments: int = 2
    kind: str = "learned"
    norm: bool | None = None


@checked_fields
@dataclasses.dataclass(frozen=True)
class Attention:
    """Who looks at whom.

    Args:
        heads: int N, or one value per layer (a pruned model).
        head_size: int D, or None for D = H / N.
        dropout: float, on the attention probabilities; None takes the Spec's.
        causal: bool, whether a token sees only itself and those before it.
    """

    heads: int | tuple[int, ...] = 12
    head_size: int | None = None
    dropout: float | None = None
    causal: bool = False


@checked_fields
@dataclasses.dataclass(frozen=True)
class FeedForward:
    """Two matrices with an activation between, or three of a gated linear unit (Shazeer, 2020).

    Args:
        width: int F, or one value per layer.
        activation: "gelu" (exact), "gelu_tanh", "relu", "swish", "tanh"; or one of them with "gated_" before it.
    """

    width: int | tuple[int, ...] = 3072
    activation: str = "gelu"


@checked_fields
@dataclasses.dataclass(frozen=True)
class Blocks:
    """How the layers are stacked.

    Args:
        layers: int, number of transformer layers.
        norm: "post" (after each sublayer, as in Vaswani et al., 2017) or "pre" (before it, and once at the end).
        share: what all layers have in common: "none", "all", "attention" or "ffn" (Lan et al., 2020, section 3.1).
        bias: bool, whether the linear maps of attention and feed-forward add a bias.
    """

    layers: int = 12
    norm: str = "post"
    share: str = "none"
    bias: bool = True


# fields with few values
CHOICES = {
    "embeddings.kind": ("learned", "sinusoidal", "none"),
    "blocks.norm": ("post", "pre"),
    "blocks.share": ("none", "all", "attention", "ffn"),
}


@checked_fields
@dataclasses.dataclass(frozen=True)
class Spec:
    """An encoder as data. Defaults are BERT-base, uncased (Devlin et al., 2019, section 3).

    Args:
        hidden: int H.
        dropout: float, after embeddings, attention and feed-forward.
        epsilon: float, of the layer norms.
        initializer: float, standard deviation of the truncated normal.
        pooler: bool, a tanh layer over the first token.
        lora, adapters: what adapts a trained model; nothing at their defaults.
        pals: what a task has of its own beside every block; likewise.
    """

    hidden: int = 768
    dropout: float = 0.1
    epsilon: float = 1e-12
    initializer: float = 0.02
    pooler: bool = True
    embeddings: Embeddings = Embeddings()
    attention: Attention = Attention()
    feedforward: FeedForward = FeedForward()
    blocks: Blocks = Blocks()
    lora: Lora = dataclasses.field(default=Lora())
    adapters: Adapters = dataclasses.field(default=Adapters())
    pals: Pals = dataclasses.field(default=Pals())

    attended = "hidden"  # no field: the path of the width that the heads divide among themselves

    @checked
    def derive(self, changes: Mapping[str, object]) -> Self:
        """A copy with the fields at dotted paths replaced.

        >>> Spec().derive({"embeddings.width": 128, "dropout": 0.0}).embeddings.width
        128

        Raises:
            InputError: an unknown path (the nearest is named) or a value of another type.
        """
        return derive(self, changes)

    def per_layer(self, value: Value | tuple[Value, ...], layer: int) -> Value:
        """The value that holds in `layer`: itself, or its entry where there is one per layer."""
        return cast("Value", value[layer] if isinstance(value, tuple) else value)

    def validate(self) -> "Spec":
        """Check what no single field can tell; returns self."""
        self._check_numbers()
        self._check_layers()
        self._check_head_size()
        return self

    def _check_numbers(self) -> None:
        """Ranges of numbers, and names among those known."""
        for path in ("hidden", "embeddings.vocabulary", "embeddings.positions", "blocks.layers"):
            if get(self, path) < 1:
                raise InputError(f"{path} must be at least 1. Received: {get(self, path)}")
        for path, known in CHOICES.items():
            if get(self, path) not in known:
                raise InputError(f"{path} must be one of {', '.join(known)}. Received: {get(self, path)!r}")
        if not 0 <= self.embeddings.offset < self.embeddings.positions:
            raise InputError(
                f"embeddings.offset must be in [0, embeddings.positions = {self.embeddings.positions}). "
                f"Received: {self.embeddings.offset}"
            )
        for path in ("epsilon", "initializer", "adapters.width", "pals.width"):
            if get(self, path) < 0:
                raise InputError(f"{path} must be at least 0. Received: {get(self, path)}")
        if self.pals.heads < 1 or self.pals.width % self.pals.heads:
            raise InputError(
                f"pals.width {self.pals.width} is not a multiple of pals.heads {self.pals.heads}: change one"
            )
        for path in ("dropout", "attention.dropout"):
            rate = get(self, path)
            if rate is not None and not 0 <= rate < 1:
                raise InputError(f"{path} must be in [0, 1). Received: {rate}")

    def _check_layers(self) -> None:
        """What may differ per layer."""
        for path in ("attention.heads", "feedforward.width"):
            value = get(self, path)
            if isinstance(value, tuple) and self.blocks.share != "none":
                raise InputError(
                    f"{path} must be one number where layers share weights (blocks.share). Received: {value}"
                )
            if isinstance(value, tuple) and len(value) != self.blocks.layers:
                raise InputError(f"{path} has {len(value)} values, expected one per layer: {self.blocks.layers}")
            if min(value if isinstance(value, tuple) else (value,)) < 1:
                raise InputError(f"{path} must be at least 1. Received: {value}")

    def _check_head_size(self) -> None:
        """The size of a head: said, or one that follows from the width."""
        if self.attention.head_size is not None:
            return
        heads = self.attention.heads
        if isinstance(heads, tuple) and len(set(heads)) > 1:
            raise InputError("attention.head_size must be given when attention.heads differs per layer")
        width = get(self, self.attended)
        if width % (heads[0] if isinstance(heads, tuple) else heads):
            raise InputError(
                f"{self.attended} {width} is not a multiple of attention.heads {heads}: "
                "change one or set attention.head_size"
            )

    @property
    def base(self) -> Self:
        """Of the model that this one adapts."""
        return dataclasses.replace(self, lora=Lora(), adapters=Adapters())

    def seen(self, layer: int, length: float) -> float:
        """Keys that a token's scores are computed with, on average over a row of `length` tokens."""
        return length

    def attention_maps(self, layer: int) -> float:
        """Linear maps of H x N*D that attention takes a token through: query, key, value, output."""
        return 4

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that has positions."""
        return self.embeddings.positions - self.embeddings.offset

    @property
    def head_size(self) -> int:
        """D: the width of one head."""
        return self.attention.head_size or get(self, self.attended) // self.per_layer(self.attention.heads, 0)


def by_layer(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Dotted path -> the values of a setting that has one for each layer, such as heads of a pruned model."""
    every = {path: get(spec, path) for path in paths(type(spec))}
    return {
        path: value
        for path, value in every.items()
        if isinstance(value, tuple) and len(value) == spec.blocks.layers and all(type(item) is int for item in value)
    }


def derive(spec: Settings, changes: Mapping[str, object]) -> Settings:
    """A copy of a family's settings, any frozen dataclass, with the fields at dotted paths replaced.

    Raises:
        InputError: an unknown path (the nearest is named) or a value of another type.
    """
    tree, known = to_dict(spec), paths(type(spec))
    for path, value in changes.items():
        check_path(path, known)
        node, *rest = path.split(".")
        target = tree
        while rest:
            target, node, *rest = target[node], *rest
        target[node] = check(path, value, known[path])
    return from_dict(tree, type(spec))


def check_path(path: str, known: Iterable[str]) -> None:
    """Refuse a dotted path that is none of the known ones; the nearest is given."""
    if path not in known:
        meant = f" Nearest: {best!r}." if (best := nearest(path, known)) else ""
        raise InputError(f"no spec field {path!r}.{meant} All: {', '.join(known)}")


def check_changes(tree: JsonMap, changes: Mapping[str, object]) -> None:
    """Refuse changes of the settings that nested plain values are of: of a family's own class by their paths alone.

    Raises:
        InputError: an unknown path, a value of another type or out of its range.
    """
    try:
        spec = from_dict(tree)
    except (InputError, AttributeError, KeyError, TypeError):
        known = leaves(tree)
        for path in changes:
            check_path(path, known)
        return
    derive(spec, changes)


def get(spec: object, path: str) -> Any:
    """The value at a dotted path."""
    for name in path.split("."):
        spec = getattr(spec, name)
    return spec


@functools.cache
def hints_of(kind: type) -> Mapping[str, Any]:
    """Name -> type of every field of a dataclass, kept: to evaluate annotations takes most of the time of a Spec."""
    return MappingProxyType(typing.get_type_hints(kind))


@functools.cache
def paths(kind: type) -> Mapping[str, Any]:
    """Dotted path -> type of every field of a Spec class."""
    found = {}
    hints = hints_of(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            found |= {f"{field.name}.{rest}": hint for rest, hint in paths(hints[field.name]).items()}
        else:
            found[field.name] = hints[field.name]
    return MappingProxyType(found)


def check(path: str, value: object, hint: Any) -> Any:
    """`value` as the field's type, or an InputError that names the field."""
    options, (value,) = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,), of_numpy([value])
    for option in options:
        if option is type(None):
            if value is None:
                return None
        elif typing.get_origin(option) is tuple:
            kind = typing.get_args(option)[0]
            items = value.split(",") if kind is str and isinstance(value, str) else value
            if isinstance(items, list | tuple) and all(type(item) is kind for item in items):
                return tuple(items)
        elif option is float and (type(value) is int or type(value) is float):
            if not abs(value) <= sys.float_info.max:  # nan neither; json can hold all of these
                raise InputError(f"{path} must be a finite number. Received: {value!r:.60}")
            return float(value)
        elif type(value) is option:
            return value
    names = " or ".join(getattr(option, "__name__", str(option)).replace("NoneType", "None") for option in options)
    raise InputError(f"{path} must be {names}. Received: {value!r:.200}")


def to_dict(spec: Any) -> Json:
    """A Spec, or a part of one, as nested plain values, for json."""
    tree: Json = {}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            tree[field.name] = to_dict(value)
        else:
            tree[field.name] = list(value) if isinstance(value, tuple) else value
    return tree


def leaves(tree: Mapping[str, object], prefix: str = "") -> Json:
    """The values of nested plain ones at their dotted paths.

    >>> leaves({"hidden": 4, "blocks": {"layers": 2}})
    {'hidden': 4, 'blocks.layers': 2}
    """
    found: Json = {}
    for name, value in tree.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def from_dict(tree: JsonMap, kind: type[Settings] = Spec, prefix: str = "") -> Settings:
    """The Spec of nested plain values; the inverse of `to_dict`.

    Raises:
        InputError: an unknown field or a value of another type.
    """
    hints = hints_of(kind)
    values = {}
    for name, value in tree.items():
        path = prefix + name
        if name not in hints:
            raise InputError(f"no spec field {path!r}. {near(path, [prefix + h for h in hints])}")
        nested = dataclasses.is_dataclass(hints[name])
        values[name] = from_dict(value, hints[name], path + ".") if nested else check(path, value, hints[name])
    spec = kind(**values)
    return getattr(spec, "validate", lambda: spec)()


def differences(one: "DataclassInstance", other: "DataclassInstance") -> dict[str, tuple[object, object]]:
    """Dotted path -> (value in one, value in other) where they differ."""
    every = dict.fromkeys([*paths(type(one)), *paths(type(other))])
    pairs = {path: (maybe(one, path), maybe(other, path)) for path in every}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def differing(one: "DataclassInstance", other: "DataclassInstance") -> Json:
    """Dotted path -> value in one, where another has a different one."""
    return {path: pair[0] for path, pair in differences(one, other).items()}


def maybe(spec: object, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or `default` of settings that have no such field."""
    try:
        return get(spec, path)
    except AttributeError:
        return default


def head_deviation(spec: object) -> float:
    """Standard deviation that the kernels of a head start with: `initializer`, or what the Spec says where that is a factor."""
    return maybe(spec, "head_deviation", maybe(spec, "initializer", 0.02))
