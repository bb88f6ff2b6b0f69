"""Semi-supervised sequence tagging with bidirectional language models (Peters et al., 2017), TagLM.

- Section 3.1, the tagger: a token is a vector of its characters, by a CNN, beside a vector of its word; two bidirectional
  recurrent layers read the tokens, a dense layer scores labels, a CRF finds the best sequence. Dense layer and CRF are the
  task's: `--task ner --set task.crf=true`.
- Section 3.2: a language model of each direction, trained before and then left as it is. Here it is an ELMo, `lm/...`, whose top
  layer is both directions' states side by side; `--freeze '^lm/'` leaves it as it is. Its dropout is off.
- Section 3.3, equation 8: its states stand beside what the first recurrent layer gives, which is the best place of section 4.2.
- Section 4: `chunking` has 30 filters over three characters of 30 numbers with tanh, LSTMs of 200 units a direction and a
  dropout of 0.5, `ner` GRUs of 300, characters of 25 numbers and a dropout of 0.25. Words have 50 numbers.

A model is made of an ELMo's directory: `kerasbert import runs/elmo --model taglm/ner --out models/taglm`. The vocabulary is the
language model's.

Differs: the language models are ELMo's (2018), characters with a projected LSTM, not CNN-BIG-LSTM and LSTM-2048-512. Characters
are bytes. `ner` has a CNN where the paper has two GRUs of 80 units over characters, of as many filters. Words are read as they
are, not lower-cased with their digits as 0, and their vectors begin at random, not as Senna's. Dropout stands before each
recurrent layer and before the scores, not on the characters' numbers.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from keras import ops

from kerasbert.classics import elmo
from kerasbert.classics.layers.characters import CharacterCNN
from kerasbert.classics.layers.recurrent_encoder import CELLS, Recurrence, RecurrentSpec, picked
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import TEXT, WORD, Shape, Tensor
from kerasbert.layers.bidirectional import Bidirectional, borders
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.naming import names
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import Queries
from kerasbert.registry import Family, register
from kerasbert.text.characters import CHARACTERS, ROWS

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class Tokens:
    """How a token's vector is made.

    Args:
        vocabulary: int V, words with a vector of their own.
        width: int, numbers of a word.
        characters: int, numbers of a character.
        filters: of each width from 1 on, how many.
    """

    vocabulary: int = 793471
    width: int = 50
    characters: int = 30
    filters: tuple[int, ...] = (0, 0, 30)


@dataclasses.dataclass(frozen=True)
class TagLMSpec(RecurrentSpec):
    """The settings of TagLM: those of a recurrent encoder; half of `hidden` is what each direction gives.

    Args:
        embeddings: Tokens.
        lm: ELMoSpec, of the language model.
    """

    embeddings: Tokens = Tokens()  # pyright: ignore[reportIncompatibleVariableOverride]  # tokens of two parts
    lm: elmo.ELMoSpec = elmo.ELMO.spec  # pyright: ignore[reportAssignmentType]  # a family's settings may be any

    def validate(self) -> "TagLMSpec":
        """Check what no single field can tell; returns self."""
        if self.recurrence.cell not in CELLS:
            raise unknown("recurrence.cell", self.recurrence.cell, list(CELLS), ", ".join(CELLS))
        if self.recurrence.layers < 2:
            raise InputError(
                "recurrence.layers must be 2 at least: the language model is behind the first. "
                f"Received: {self.recurrence.layers}"
            )
        if self.hidden % 2:
            raise InputError(f"hidden must be even: half of it is of each direction. Received: {self.hidden}")
        filters = self.embeddings.filters
        if min(filters, default=-1) < 0 or not sum(filters):
            raise InputError(f"embeddings.filters must be numbers of filters, one at least. Received: {filters}")
        self.lm.validate()
        return self

    @property
    def units(self) -> tuple[int, ...]:
        """Of each layer and direction."""
        return (*((self.recurrence.units or self.hidden // 2,) * (self.recurrence.layers - 1)), self.hidden // 2)


class TagLM(SpecModel):
    """Characters, words, and a language model's states between bidirectional recurrent layers.

    Args:
        spec: TagLMSpec.
    Call: dict of token_ids [B, S] int, char_ids [B, S, 50] int (`text.characters`), padding_mask [B, S] (all real by default),
        packed_ids [B, S] (pieces of one number see each other alone; instead of padding_mask, padding is 0), embedded [B, S, C]
        (instead of what `embed` makes of the ids) -> dict of sequence [B, S, H]; `queries` are rows of it, as of `Encoder`.
    Weights: `characters/...`, `embeddings/table`, `block_i/forward/...` and `block_i/backward/...` of layer i, and `lm/...`.
    """

    spec: TagLMSpec

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        serializable(cls)

    def build(self, shape: Shape | None = None) -> None:
        spec = self.spec
        about, policy = spec.embeddings, {"dtype": self.dtype_policy}
        self.characters = CharacterCNN(
            ROWS, about.characters, about.filters, 0, None, "tanh", name="characters", **policy
        )
        self.characters.build()
        self.table = Table(about.vocabulary, about.width, spec.initializer, name="embeddings", **policy)
        self.table.build()
        self.lm = elmo.ELMo(spec.lm, name="lm", **policy)
        self.lm.build()
        self.recurrent, self.dropouts, width = [], [], sum(about.filters) + about.width
        for i, units in enumerate(spec.units):
            layer = Bidirectional(units, spec.recurrence.cell, name=f"block_{i}", **policy)
            layer.build((None, None, width))
            self.recurrent.append(layer)
            self.dropouts.append(Dropout(spec.dropout, name=f"dropout_{i}", **policy))
            self.dropouts[-1].build()
            width = 2 * units + (0 if i else spec.lm.hidden)
        self.built = True

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """A token's characters and word, and the language model's state: [B, S, C], side by side."""
        parts = self.characters(inputs["char_ids"]), self.table(inputs["token_ids"]), self.lm(inputs)["sequence"]
        return ops.concatenate([ops.cast(each, self.compute_dtype) for each in parts], axis=-1)

    def call(self, inputs: Tensor, training: bool = False, queries: Queries = None) -> dict[str, Tensor]:
        if not hasattr(inputs, "keys"):  # Keras' export tries a call without a dict, and expects a TypeError
            raise TypeError(f"TagLM is called on a dict of arrays. Received: {type(inputs).__name__}")
        about = self.spec.embeddings
        own, (real, begins) = sum(about.filters) + about.width, borders(inputs)
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        x, told = ops.cast(x[..., :own], self.compute_dtype), ops.cast(x[..., own:], self.compute_dtype)
        for i, (layer, dropout) in enumerate(zip(self.recurrent, self.dropouts, strict=True)):
            x = layer(dropout(x, training=training), real, begins)
            x = x if i else ops.concatenate([x, told], axis=-1)
        return {"sequence": picked(x, queries)}


def of_elmo(model: "keras.Model", named: TagLMSpec | None) -> TagLM:
    """A tagger over an ELMo: its language model and its vocabulary, all else as new.

    Args:
        model: a built ELMo with `.tokenizer`.
        named: settings of the size that was asked for; None for `chunking`.
    """
    spec = named or cast(TagLMSpec, TAGLM.spec)
    if model.tokenizer is None:
        raise InputError(
            "the ELMo has no tokenizer, and a TagLM has a vector for each of its words: import it with one"
        )
    about = dataclasses.replace(spec.embeddings, vocabulary=model.tokenizer.size)
    made = TagLM(dataclasses.replace(spec, embeddings=about, lm=model.spec))
    made.build()
    had = names(model)
    for name, weight in names(made.lm).items():
        weight.assign(had[name])
    made.tokenizer, made.labels = model.tokenizer, None
    return made


def flops(spec: TagLMSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`: the filters, the layers, and the language model's way forward."""
    about, gates = spec.embeddings, CELLS[spec.recurrence.cell].gates
    per_token = sum(2 * n * k * about.characters * (WORD - k + 1) for k, n in enumerate(about.filters, 1))
    width = sum(about.filters) + about.width
    for i, units in enumerate(spec.units):
        per_token += 2 * 2 * gates * units * (width + units)
        width = 2 * units + (0 if i else spec.lm.hidden)
    return 3.0 * tokens * per_token + elmo.flops(spec.lm, tokens, sequences, 0.0) / 3


def kept(spec: TagLMSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`; nothing of a frozen language model."""
    about, gates = spec.embeddings, CELLS[spec.recurrence.cell].gates
    places = (WORD - k + 1 for k in range(1, len(about.filters) + 1))
    filters = zip(about.filters, places, strict=True)
    per_token = sum((n + k * about.characters) * left for k, (n, left) in enumerate(filters, 1) if n)
    width = sum(about.filters) + about.width
    for i, units in enumerate(spec.units):
        per_token += width + 2 * (gates + 2) * units
        width = 2 * units + (0 if i else spec.lm.hidden)
    return rows * length * (per_token + 3 * gates * max(spec.units))


NER = {
    "recurrence.cell": "gru",
    "hidden": 600,
    "dropout": 0.25,
    "embeddings.characters": 25,
    "embeddings.filters": (0, 0, 80),
}
TAGLM = register(
    Family(
        name="taglm",
        spec=TagLMSpec(  # pyright: ignore[reportArgumentType]  # no Spec
            hidden=400, dropout=0.5, recurrence=Recurrence(layers=2)
        ),
        sizes={"chunking": {}, "ner": NER},
        encoder=TagLM,
        inputs=(*TEXT[:2], CHARACTERS),
        readout="mean",
        tokenizer="word_characters",
        objective="",
        longest=lambda spec: None,
        flops=flops,  # pyright: ignore[reportArgumentType]  # of its own settings
        memory=kept,  # pyright: ignore[reportArgumentType]
        made_of={"elmo": of_elmo},
        paper="Peters et al., 2017, Semi-supervised Sequence Tagging with Bidirectional Language Models",
    )
)
