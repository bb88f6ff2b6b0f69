"""Deep contextualized word representations (Peters et al., 2018), ELMo: a language model of two directions over characters.

- Section 3.1: one LSTM reads a text from left to right, one from right to left; both share the words' vectors and the softmax.
- Section 3.2: a task reads a mix of all layers with learned weights, the words' vectors among them (`finetune --layers mix`).
- Section 3.4: two layers of 4,096 units and projections to 512, a residual connection from the first to the second; a word is
  2,048 filters over its characters, two highways and a projection to 512.
- From the released code (bilm-tf) and AllenNLP: states and projections clipped at 3, words of 50 characters, a word's first
  48 bytes, the filters' widths and numbers; small and medium are AllenNLP's models of these names.

A token is a word (`text.characters`), so tags need no alignment. The layers' vectors are both directions side by side, the words'
vectors twice.

Differs: tasks have the toolkit's heads, not the papers' own networks, and no dropout of ELMo's vectors; the weights of the mix
have no L2 term; language models learn as `objectives.bilm` says.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from kerasbert.classics.layers.characters import CharacterCNN
from kerasbert.classics.layers.recurrent_encoder import STATE, Recurrence, RecurrentSpec, Softmax, empty_state, picked
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import TEXT, WORD, Shape, Tensor
from kerasbert.layers.bidirectional import WAYS, borders
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import Queries
from kerasbert.layers.recurrent import LSTM
from kerasbert.registry import Family, register
from kerasbert.storage.json_view import JsonMap
from kerasbert.text.characters import CHARACTERS, ROWS


@dataclasses.dataclass(frozen=True)
class Characters:
    """How a word's vector is made.

    Args:
        vocabulary: int V, words that the language model predicts; the encoder has no weights of them.
        width: int, numbers of a character.
        filters: of each width from 1 on, how many.
        highways: int.
        activation: "relu" or "tanh", of the filters' maxima.
    """

    vocabulary: int = 793471
    width: int = 16
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    highways: int = 2
    activation: str = "relu"


@dataclasses.dataclass(frozen=True)
class Clips:
    """Args: cell, projection: float, what an LSTM's state and its output are clipped to."""

    cell: float = 3.0
    projection: float = 3.0


@dataclasses.dataclass(frozen=True)
class ELMoSpec(RecurrentSpec):
    """The settings of ELMo: those of a recurrent encoder; half of `hidden` is what each direction gives.

    Args:
        embeddings: Characters.
        clips: Clips.
    """

    embeddings: Characters = Characters()  # pyright: ignore[reportIncompatibleVariableOverride]  # words by characters
    clips: Clips = Clips()

    def validate(self) -> "ELMoSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        about = self.embeddings
        if self.hidden % 2:
            raise InputError(f"hidden must be even: half of it is of each direction. Received: {self.hidden}")
        if self.recurrence.cell != "lstm":
            raise InputError(f"recurrence.cell must be lstm, which has projections. Received: {self.recurrence.cell!r}")
        if about.activation not in ("relu", "tanh"):
            raise unknown("embeddings.activation", about.activation, ["relu", "tanh"], "relu, tanh")
        if not 1 <= len(about.filters) <= WORD or min(about.filters) < 1:
            raise InputError(f"embeddings.filters must be 1 to {WORD} numbers of filters. Received: {about.filters}")
        if min(self.clips.cell, self.clips.projection) <= 0:
            raise InputError(f"clips must be above 0. Received: {self.clips.cell}, {self.clips.projection}")
        return self

    @property
    def width(self) -> int:
        """P, of a word's vector and of what a direction gives."""
        return self.hidden // 2


class BothWays(keras.layers.Layer):
    """A layer of both directions, which see nothing of each other: LSTMs `forward` and `backward` with projections.

    Args: spec: ELMoSpec. Trainable weights: 2 (4U(2P + 1) + UP).
    """

    def __init__(self, spec: ELMoSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width, clips = spec.width, spec.clips
        self.ways = [
            LSTM(
                spec.recurrence.units or spec.hidden,
                spec.width,
                clips.cell,
                clips.projection,
                reverse=name == "backward",
                name=name,
                dtype=self.dtype_policy,
            )
            for name in WAYS
        ]

    def build(self, shape: Shape | None = None) -> None:
        for layer in self.ways:
            layer.build((None, None, self.width))
        self.built = True


class ELMo(SpecModel):
    """Words made of characters, and LSTMs in two directions over them.

    Args:
        spec: ELMoSpec.
    Call: dict of char_ids [B, S, 50] int (`text.characters`), padding_mask [B, S] (all real by default), packed_ids [B, S]
        (pieces of one number see each other alone; instead of padding_mask, padding is 0), embedded [B, S, P] (instead of what
        `embed` makes of the characters) -> dict of sequence [B, S, H], the last layer, and hidden, a tuple of all layers
        [B, S, H], the words' vectors twice the first; `queries` are rows of the sequence, as of `Encoder`.
    Weights: `characters/...`, `block_i/forward/...` and `block_i/backward/...` of layer i.
    """

    spec: ELMoSpec

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        serializable(cls)

    @property
    def hidden_layers(self) -> int:
        """L of the L + 1 in `hidden`."""
        return self.spec.recurrence.layers

    def build(self, shape: Shape | None = None) -> None:
        spec = self.spec
        about, policy = spec.embeddings, {"dtype": self.dtype_policy}
        sizes = (ROWS, about.width, about.filters, about.highways, spec.width, about.activation)
        self.characters = CharacterCNN(*sizes, name="characters", **policy)
        self.characters.build()
        self.recurrent = [BothWays(spec, name=f"block_{i}", **policy) for i in range(spec.recurrence.layers)]
        self.dropouts = [
            [Dropout(spec.dropout, name=f"{way}_dropout_{i}", **policy) for i in range(spec.recurrence.layers + 1)]
            for way in WAYS
        ]
        for layer in (*self.recurrent, *self.dropouts[0], *self.dropouts[1]):
            layer.build()
        self.built = True

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """What the first layer of both directions reads: [B, S, P]."""
        if "char_ids" not in inputs:
            raise InputError("ELMo reads char_ids [B, S, 50], the characters of words. Received: no char_ids")
        return self.characters(inputs["char_ids"])

    def read(
        self,
        x: Tensor,
        way: int,
        padding_mask: Tensor | None = None,
        state: Mapping[str, Tensor] | None = None,
        begins: Tensor | None = None,
        training: bool = False,
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """One direction over words: what each layer gives, float [B, S, P], `x` first; and the state at its end.

        Args:
            x: float [B, S, P], of `embed`.
            way: int, of WAYS.
            padding_mask: bool or 0/1 [B, S]; None where all are tokens.
            state: what the call gave that read the text before it in this direction, or `empty_state`; None for nothing.
            begins: bool [B, S], True = nothing before it, in this direction, is seen.
            training: bool.
        """
        found, after = [ops.cast(x, self.compute_dtype)], {}
        for i, block in enumerate(self.recurrent):
            layer, own = block.ways[way], None
            if state:
                own = tuple(state[f"{STATE}{i}_{part}"] for part in range(len(layer.widths)))
            source = self.dropouts[way][i](found[-1], training=training)
            y, ended = layer(source, padding_mask, own, begins, training=training)
            found.append(y + source if i else y)  # residual from the second layer on
            after |= {f"{STATE}{i}_{part}": each for part, each in enumerate(ended)}
        return found, after

    def last_dropout(self, x: Tensor, way: int, training: bool = False) -> Tensor:
        """What the softmax reads of a direction's last layer."""
        return self.dropouts[way][-1](x, training=training)

    def empty_state(self, rows: Tensor) -> dict[str, Tensor]:
        """What `read` carries, where nothing stands before: name -> float32 [rows, width]."""
        return empty_state([block.ways[0] for block in self.recurrent], rows)

    def new_softmax(self, name: str) -> keras.layers.Layer:
        """What predicts words of what either direction gives; logits begin with the size of that (bilm-tf, training.py)."""
        spec = self.spec
        sizes = spec.embeddings.vocabulary, spec.width, spec.width**-0.5
        return Softmax(*sizes, name=name, dtype=self.dtype_policy)

    def call(self, inputs: Tensor, training: bool = False, queries: Queries = None) -> dict[str, Tensor]:
        if not hasattr(inputs, "keys"):  # Keras' export tries a call without a dict, and expects a TypeError
            raise TypeError(f"ELMo is called on a dict of arrays. Received: {type(inputs).__name__}")
        real, begins = borders(inputs)
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        read = [self.read(x, way, real, begins=begins[way], training=training)[0] for way in range(len(WAYS))]
        hidden = tuple(ops.concatenate(pair, axis=-1) for pair in zip(*read, strict=True))
        return {"sequence": picked(hidden[-1], queries), "hidden": hidden}


def flops(spec: ELMoSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`: filters, highways, projections, LSTMs, a full softmax a direction."""
    about, total = spec.embeddings, sum(spec.embeddings.filters)
    per_token = sum(2 * n * k * about.width * (WORD - k + 1) for k, n in enumerate(about.filters, 1))
    per_token += about.highways * 2 * 2 * total * total + 2 * total * spec.width
    units = spec.recurrence.units or spec.hidden
    per_token += spec.recurrence.layers * 2 * (2 * 4 * units * 2 * spec.width + 2 * units * spec.width)
    return 3.0 * (tokens * per_token + predictions * 2 * 2 * spec.width * about.vocabulary)


def kept(spec: ELMoSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`.

    Of a word what each filter reads and gives at every place, of an LSTM as `recurrent_encoder.kept`, for both directions.
    """
    about, units = spec.embeddings, spec.recurrence.units or spec.hidden
    per_token = sum((n + k * about.width) * (WORD - k + 1) for k, n in enumerate(about.filters, 1))
    per_token += (4 * about.highways + 2) * sum(about.filters)
    per_token += 2 * spec.recurrence.layers * (2 * spec.width + (4 + 2) * units) + 3 * 4 * units
    return rows * length * per_token


def _sizes() -> Mapping[str, JsonMap]:
    released: Sequence[tuple[str, int, int]] = (("small", 256, 1024), ("medium", 512, 2048))
    small = {
        name: {"hidden": hidden, "recurrence.units": units, "embeddings.highways": 1}
        for name, hidden, units in released
    }
    return {**small, "original": {}}


ELMO = register(
    Family(
        name="elmo",
        spec=ELMoSpec(  # pyright: ignore[reportArgumentType]  # no Spec
            hidden=1024, dropout=0.1, recurrence=Recurrence(layers=2, units=4096)
        ),
        sizes=_sizes(),
        encoder=ELMo,
        inputs=(*TEXT[:2], CHARACTERS),
        readout="mean",
        tokenizer="word_characters",
        objective="bilm",
        longest=lambda spec: None,
        flops=flops,  # pyright: ignore[reportArgumentType]  # of its own settings
        memory=kept,  # pyright: ignore[reportArgumentType]
        paper="Peters et al., 2018, Deep Contextualized Word Representations",
    )
)
