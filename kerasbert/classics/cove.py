"""Learned in Translation: Contextualized Word Vectors (McCann et al., 2017), CoVe.

- Section 3: the encoder of an attentional LSTM translation model, MT-LSTM: word vectors, which stay as they are, and two
  bidirectional LSTMs of 300 units a direction. The decoder is `layers.attentional`'s, of two LSTMs of 600 units: it reads the
  token before and the context-adjusted state before, attends to the encoder's states, and a table says the next token.
- Section 4: CoVe(w) = MT-LSTM(GloVe(w)); a task reads [GloVe(w); CoVe(w)], 900 numbers a token.
- Section 6: dropout of 0.2 on what all layers of both read and give.

It is trained by `--task translation` over pairs, with `--freeze '^source/'`, and fine-tuned for what else there is as every
encoder is: `--freeze encoder` leaves its vectors as they are. `kerasbert import VECTORS --model cove/base --out DIR` makes one
that begins with GloVe's vectors, or others; its words are the vocabulary of both languages.

Differs: one vocabulary for source and target, as everywhere here, so that vectors are of the texts of both languages, or a
tokenizer of pieces is (no vectors then). The decoder's layers begin with the encoder's last states of both directions, as
OpenNMT's do; between its layers a row has one dropout mask for all places. Tasks have the toolkit's heads on the mean, not the
biattentive classification network (section 5), and the released model's character n-gram vectors are not here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from kerasbert.checkpoints.vectors import WordVectors
from kerasbert.classics.layers.attentional import AttentionalDecoder
from kerasbert.classics.layers.recurrent_encoder import Recurrence, Softmax, picked
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.bidirectional import Bidirectional, borders
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET
from kerasbert.layers.heads import tied_logits
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import Queries
from kerasbert.models.average import of_vectors as average_of_vectors
from kerasbert.registry import Family, register
from kerasbert.text.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Words:
    """Args: vocabulary: int V, rows of all tables. width: int E, of source and target."""

    vocabulary: int = 30522
    width: int = 300


LAYERS = Recurrence(layers=2, units=300)


@dataclasses.dataclass(frozen=True)
class CoVeSpec:
    """The settings of CoVe.

    Args:
        dropout: float, on what layers read and give, and in the head of a task.
        initializer: float, standard deviation of tables and heads.
        embeddings: Words.
        recurrence: Recurrence; `units` are those of each direction of the encoder, the decoder has twice as many.
    """

    dropout: float = 0.2
    initializer: float = 0.02
    embeddings: Words = Words()
    recurrence: Recurrence = LAYERS

    def validate(self) -> "CoVeSpec":
        """Check what no single field can tell; returns self."""
        about = self.recurrence
        if about.cell != "lstm":
            raise InputError(f"recurrence.cell must be lstm, as the decoder's. Received: {about.cell!r}")
        if about.layers < 1 or not about.units or about.units < 1:
            raise InputError(f"recurrence must have layers and units. Received: {about.layers} and {about.units}")
        return self

    @property
    def units(self) -> int:
        """U, what the encoder gives of both directions, and of each layer of the decoder."""
        return 2 * (self.recurrence.units or 0)

    @property
    def hidden(self) -> int:
        """H, numbers of a token for a task: its vector and the encoder's state."""
        return self.embeddings.width + self.units


class CoVe(SpecModel):
    """Word vectors, bidirectional LSTMs, and the decoder that they are trained with.

    Args:
        spec: CoVeSpec.
    Call: dict of token_ids [B, S] int, padding_mask [B, S] (all real by default), packed_ids [B, S] (pieces of one number see
        each other alone; instead of padding_mask) -> dict of sequence [B, S, H], vectors and states side by side; with
        decoder_token_ids [B, T] too, what has been written so far from the start token on -> dict of sequence [B, T, U] of the
        decoder and encoder_sequence [B, S, H]. `queries` are rows of the sequence, as of `Encoder`.
    Weights: `source/table`, `target/table`, `block_i/forward/...` and `block_i/backward/...`, `decoder/...`, `output/...`.
    """

    prompt = "decoder_"
    first_token = "pad"
    label_smoothing = 0.0

    spec: CoVeSpec

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        serializable(cls)

    def build(self, shape: Shape | None = None) -> None:
        spec = self.spec
        about, layers, policy = spec.embeddings, spec.recurrence.layers, {"dtype": self.dtype_policy}
        sizes = about.vocabulary, about.width, spec.initializer
        self.source, self.target = (Table(*sizes, name=name, **policy) for name in ("source", "target"))
        self.recurrent = [Bidirectional(spec.units // 2, name=f"block_{i}", **policy) for i in range(layers)]
        self.dropouts = [Dropout(spec.dropout, name=f"dropout_{i}", **policy) for i in range(layers + 1)]
        self.decoder = AttentionalDecoder(spec.units, layers, spec.dropout, name="decoder", **policy)
        self.decoder_dropouts = [
            Dropout(spec.dropout, name=f"decoder_dropout_{part}", **policy) for part in ("in", "out")
        ]
        self.softmax = Softmax(about.vocabulary, spec.units, spec.initializer, name="output", **policy)
        for layer in (self.source, self.target, *self.dropouts, *self.decoder_dropouts, self.softmax):
            layer.build()
        for i, layer in enumerate(self.recurrent):
            layer.build((None, None, spec.units if i else about.width))
        self.decoder.build((about.width, spec.units))
        self.built = True

    def encode(self, inputs: Mapping[str, Tensor], training: bool = False) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The vectors of the tokens [B, S, E], the encoder's states [B, S, U], and what each layer ends with, (h, c) [B, U]."""
        real, begins = borders(inputs)
        vectors = ops.cast(self.source(inputs["token_ids"]), self.compute_dtype)
        x, ends = vectors, []
        for layer, dropout in zip(self.recurrent, self.dropouts[:-1], strict=True):
            x, states = layer.read(dropout(x, training=training), real, begins)
            ends.append(tuple(ops.concatenate(pair, axis=-1) for pair in zip(*states, strict=True)))
        return vectors, self.dropouts[-1](x, training=training), ends

    def decode(self, inputs: Mapping[str, Tensor], states: Tensor, ends: Tensor, training: bool = False) -> Tensor:
        """What the decoder gives of the target, decoder_token_ids [B, T]: [B, T, U]."""
        into, out = self.decoder_dropouts
        x = ops.cast(self.target(inputs["decoder_token_ids"]), self.compute_dtype)
        mask = inputs.get("padding_mask")
        return out(self.decoder(into(x, training=training), states, mask, ends, training=training), training=training)

    def call(self, inputs: Tensor, training: bool = False, queries: Queries = None) -> dict[str, Tensor]:
        if not hasattr(inputs, "keys"):  # Keras' export tries a call without a dict, and expects a TypeError
            raise TypeError(f"CoVe is called on a dict of arrays. Received: {type(inputs).__name__}")
        vectors, states, ends = self.encode(inputs, training)
        sequence = ops.concatenate([vectors, states], axis=-1)
        if "decoder_token_ids" not in inputs:
            return {"sequence": picked(sequence, queries)}
        written = self.decode(inputs, states, ends, training)
        return {"sequence": picked(written, queries), "encoder_sequence": sequence}

    def start(self, inputs: Mapping[str, Tensor], places: int) -> dict[str, Tensor]:
        """As `EncoderDecoder.start`; the state holds that of the decoder before each place."""
        _, states, ends = self.encode(inputs)
        state = self.decoder.start(states, inputs.get("padding_mask"), ends, places)
        ids = inputs.get("decoder_token_ids")
        if ids is None:
            return state
        for place in range(ids.shape[1] - 1):
            _, state = self._advanced(ids[:, place], place, state)
        return state

    def _advanced(
        self, token_ids: Tensor, column: Tensor, state: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return self.decoder.step(ops.cast(self.target(token_ids), self.compute_dtype), column, state)

    def step(self, token_ids: Tensor, column: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """As `EncoderDecoder.step`: int [B], int [B] or a scalar, state -> (logits float32 [B, V], the state)."""
        x, state = self._advanced(token_ids, column, state)
        return self.logits(x), state

    def logits(self, x: Tensor) -> Tensor:
        """Which token comes next: [..., U] -> float32 [..., V]."""
        return tied_logits(self.scaled(x), self.output_rows)

    def scaled(self, x: Tensor) -> Tensor:
        """What the rows of `output_rows` are multiplied with."""
        return self.softmax.scaled(x)

    @property
    def output_rows(self) -> Tensor:
        """[V, U + 1], the bias as one column more."""
        return self.softmax.output_rows


def of_vectors(vectors: WordVectors, about: Mapping[str, object]) -> tuple[CoVeSpec, dict[str, np.ndarray], Tokenizer]:
    """What a model begins with: the vectors as the source's table, whole words as tokens (as `average` has them)."""
    _, arrays, tokenizer = average_of_vectors(vectors, about)
    table = arrays["embeddings/table"]
    if tokenizer.sep_id is None:
        raise InputError("these vectors are of MediaPipe's words, which have no end token: learn them without --words")
    return CoVeSpec(embeddings=Words(*table.shape)), {"source/table": table}, tokenizer


def _per_token(spec: CoVeSpec) -> tuple[float, float, float]:
    """Multiplications of a source token, of a target token, and of a pair of both."""
    units, width, source = spec.units // 2, spec.embeddings.width, 0.0
    for i in range(spec.recurrence.layers):
        source += 2 * 4 * units * ((spec.units if i else width) + units)
    target = 4 * spec.units * (width + 2 * spec.units + 2 * spec.units * (spec.recurrence.layers - 1))
    return source, target + 3 * spec.units**2, 2 * spec.units


def flops(spec: CoVeSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`; a predicted token is one of the target."""
    source, target, pair = _per_token(spec)
    attended = predictions * pair * tokens / max(1.0, sequences)
    return 6.0 * (tokens * source + predictions * (target + spec.units * spec.embeddings.vocabulary) + attended)


def kept(spec: CoVeSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`: states and gates of both, as of an LSTM."""
    layers, units = spec.recurrence.layers, spec.units
    source = spec.embeddings.width + layers * (units + (4 + 2) * units)
    target = spec.embeddings.width + (1 + 2 * layers) * units + 2 * 4 * units
    return rows * length * (source + predictions * target) + rows * length * units + 3 * 4 * units * rows


register(
    Family(
        name="cove",
        spec=CoVeSpec(),  # pyright: ignore[reportArgumentType]  # settings of its own, no Spec
        sizes={"base": {}},
        encoder=CoVe,
        kind="seq2seq",
        inputs=SOURCE_AND_TARGET,
        of_text=SOURCE_AND_TARGET[:2],
        readout="mean",
        objective="",
        longest=lambda spec: None,
        flops=flops,  # pyright: ignore[reportArgumentType]
        memory=kept,  # pyright: ignore[reportArgumentType]
        of_vectors=of_vectors,
        paper="McCann et al., 2017, Learned in Translation: Contextualized Word Vectors",
    )
)
