"""An encoder that is a stack of recurrent layers, for language models that are carried from text to text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import pick
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.initial import Normal
from kerasbert.layers.readout import Queries
from kerasbert.layers.recurrent import CELLS, Recurrent

STATE = "state_"


@dataclasses.dataclass(frozen=True)
class Words:
    """Args: vocabulary: int V, rows of the token table. width: int E, None for H."""

    vocabulary: int = 30522
    width: int | None = None


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """The recurrent layers.

    Args:
        cell: "lstm", "gru" or "reset_before_gru".
        layers: int L.
        units: int U, of all but the last, which has H; None for H.
    """

    cell: str = "lstm"
    layers: int = 1
    units: int | None = None


@dataclasses.dataclass(frozen=True)
class RecurrentSpec:
    """The settings of a recurrent encoder. It has no blocks, no heads and no positions.

    Args:
        hidden: int H, units of the last layer.
        dropout: float, in the head of a task.
        initializer: float, standard deviation of tables and heads; recurrent layers begin uniform in 1/sqrt(units).
        embeddings: Words.
        recurrence: Recurrence.
    """

    hidden: int = 1024
    dropout: float = 0.1
    initializer: float = 0.02
    embeddings: Words = Words()
    recurrence: Recurrence = Recurrence()

    def validate(self) -> Tensor:
        """Check what no single field can tell; returns self."""
        if self.recurrence.cell not in CELLS:
            raise unknown("recurrence.cell", self.recurrence.cell, list(CELLS), ", ".join(CELLS))
        if self.recurrence.layers < 1:
            raise InputError(f"recurrence.layers must be at least 1. Received: {self.recurrence.layers}")
        return self

    @property
    def width(self) -> int:
        """E."""
        return self.embeddings.width or self.hidden

    @property
    def units(self) -> tuple[int, ...]:
        """Of each layer."""
        return (*((self.recurrence.units or self.hidden,) * (self.recurrence.layers - 1)), self.hidden)


class RecurrentEncoder(SpecModel):
    """Vectors of tokens and recurrent layers over them, from left to right.

    Args:
        spec: RecurrentSpec.
    Call: dict of token_ids [B, S] int, padding_mask [B, S] (all real by default), packed_ids [B, S] (pieces of one number see
        each other alone; instead of padding_mask, padding is 0), embedded [B, S, E] (instead of what `embed` makes of the ids)
        -> dict of sequence [B, S, H]; `queries` are rows of it, as
        of `Encoder`. A padded place has what stands before it.
    Weights: `embeddings/table`, `block_i/...` of layer i, as layer-wise rates and gradual unfreezing want it.
    """

    weight_drop: float = 0.0  # of the recurrent matrices

    spec: RecurrentSpec

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        serializable(cls)

    def build(self, shape: Shape | None = None) -> None:
        spec = self.spec
        self.table = Table(
            spec.embeddings.vocabulary, spec.width, spec.initializer, name="embeddings", dtype=self.dtype_policy
        )
        self.table.build()
        self.recurrent, width = [], spec.width
        for i, units in enumerate(spec.units):
            layer = CELLS[spec.recurrence.cell](
                units, weight_drop=self.weight_drop, name=f"block_{i}", dtype=self.dtype_policy
            )
            layer.build((None, None, width))
            self.recurrent.append(layer)
            width = units
        self.build_parts()
        self.built = True

    def build_parts(self) -> None:
        """Make and build what a paper has besides."""

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """What the first layer reads: [B, S, E]."""
        return self.table(inputs["token_ids"])

    def between(self, x: Tensor, layer: int, training: bool = False) -> Tensor:
        """What layer `layer` + 1 reads of what layer `layer` gives: [B, S, U]."""
        return x

    def read_from(
        self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor] | None = None, training: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One text after others: the last layer's states, float [B, S, H], and the state behind each row's last token.

        Args:
            inputs: as in `call`.
            state: what the call before gave, or `empty_state`; None where a text begins.
            training: bool.
        """
        real, begins = inputs.get("padding_mask"), None
        if "packed_ids" in inputs:
            pieces = inputs["packed_ids"]
            before = ops.concatenate([pieces[:, :1], pieces[:, :-1]], axis=1)
            real, begins = pieces > 0, ops.not_equal(pieces, before)
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        x, after = ops.cast(x, self.compute_dtype), {}
        for i, layer in enumerate(self.recurrent):
            own = None
            if state:
                own = tuple(state[f"{STATE}{i}_{part}"] for part in range(len(layer.widths)))
            x, found = layer(x, real, own, begins, training=training)
            after |= {f"{STATE}{i}_{part}": each for part, each in enumerate(found)}
            if i + 1 < len(self.recurrent):
                x = self.between(x, i, training)
        return x, after

    def empty_state(self, rows: Tensor) -> dict[str, Tensor]:
        """What `read_from` carries, where nothing stands before: name -> float32 [rows, width]."""
        return empty_state(self.recurrent, rows)

    def new_softmax(self, name: str) -> keras.layers.Layer:
        """What predicts tokens of the last layer's states, with a table of its own."""
        spec = self.spec
        sizes = spec.embeddings.vocabulary, spec.hidden, spec.initializer
        return Softmax(*sizes, name=name, dtype=self.dtype_policy)

    def call(self, inputs: Tensor, training: bool = False, queries: Queries = None) -> dict[str, Tensor]:
        inputs["token_ids"]  # Keras' export tries a call without a dict, and expects a TypeError
        x, _ = self.read_from(inputs, training=training)
        return {"sequence": picked(x, queries)}


def empty_state(layers: Sequence[Recurrent], rows: Tensor) -> dict[str, Tensor]:
    """The state of a stack where nothing stands before: name -> float32 [rows, width]."""
    parts = ((i, part, each) for i, layer in enumerate(layers) for part, each in enumerate(layer.empty(rows)))
    return {f"{STATE}{i}_{part}": each for i, part, each in parts}


def picked(x: Tensor, queries: Queries) -> Tensor:
    """The rows of [B, S, H] that are asked for."""
    if isinstance(queries, str):
        return x[:, :1]
    if queries is None:
        return x
    return pick(x, queries if len(queries.shape) == 2 else ops.expand_dims(queries, 1))


class Softmax(keras.layers.Layer):
    """Which token comes next, by a table of its own: logits = x @ table^T + bias.

    Args: vocabulary: int V. width: int H. initializer: float, standard deviation.
    Trainable weights: VH + V.
    """

    def __init__(self, vocabulary: int, width: int, initializer: float = 0.02, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes, self.initializer = (vocabulary, width), initializer

    def build(self, shape: Shape | None = None) -> None:
        normal = Normal(stddev=self.initializer)
        self.table = self.add_weight(shape=self.sizes, initializer=normal, name="table")
        self.bias = self.add_weight(shape=self.sizes[:1], initializer="zeros", name="bias")

    def scaled(self, x: Tensor) -> Tensor:
        """As `with_bias`."""
        return with_one(x)

    @property
    def output_rows(self) -> Tensor:
        """[V, H + 1], the bias as one column more."""
        return with_bias(self.table, self.bias)


def with_one(x: Tensor) -> Tensor:
    """[..., H] -> [..., H + 1], what rows `with_bias` are multiplied with."""
    return ops.concatenate([x, ops.ones_like(x[..., :1])], axis=-1)


def with_bias(table: Tensor, bias: Tensor) -> Tensor:
    """A table [V, H] and the bias [V] of its rows as one column more: [V, H + 1]."""
    return ops.concatenate([ops.convert_to_tensor(table), ops.expand_dims(ops.convert_to_tensor(bias), 1)], axis=1)


def flops(spec: RecurrentSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`: the products of the layers and of the softmax."""
    gates, per_token, width = CELLS[spec.recurrence.cell].gates, 0.0, spec.width
    for units in spec.units:
        per_token += 2 * gates * units * (width + units)
        width = units
    return 3.0 * (tokens * per_token + predictions * 2 * spec.hidden * spec.embeddings.vocabulary)


def kept(spec: RecurrentSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`.

    Of a layer what it reads, the input's product, the states and, while its gradient is made, the gates and their gradients.
    """
    gates, per_token, width = CELLS[spec.recurrence.cell].gates, 0.0, spec.width
    for units in spec.units:
        per_token += width + (gates + 2) * units
        width = units
    return rows * length * (per_token + 3 * gates * max(spec.units))
