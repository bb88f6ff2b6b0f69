"""Objectives of recurrent networks: the next token with a carried state, and the sequence autoencoder."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.objectives.causal import LanguageModeling
from kerasbert.objectives.lm_loss import token_sums, writes
from kerasbert.objectives.segments import TextSegments
from kerasbert.registry import register_objective


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a recurrent language model.

    Args:
        segments: int k, of a row: records of k * S tokens are read S tokens at a time. The state is carried from one to the
            next, its gradient is not (truncated back-propagation through time).
        activation: float, what is added to the loss of the mean square of the last layer's states, after dropout.
        change: float, the same of the difference between neighbouring states, before dropout.
    """

    segments: int = 4
    activation: float = 0.0
    change: float = 0.0

    def __post_init__(self) -> None:
        if self.segments < 1:
            raise InputError(f"segments {self.segments}, expected at least 1 in a row")
        for name in ("activation", "change"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0. Received: {getattr(self, name)}")


class Recurrent(LanguageModeling):
    """What objectives of recurrent encoders share: a softmax of their own where the encoder's table is not the output's."""

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "read_from"):
            raise InputError(
                f"{type(encoder).__name__} carries no state from text to text: choose another objective (--objective)"
            )
        if writes(encoder):
            return {}, {}
        return {"mlm": encoder.new_softmax("mlm")}, {"mlm": (None, None, encoder.spec.hidden)}

    def dropped(self, x: Tensor, training: bool) -> Tensor:
        """What the softmax reads of the last layer's states."""
        body = self.model.body
        return body.last_dropout(x, training=training) if hasattr(body, "last_dropout") else x

    def sums(self, x: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """The loss of tokens, and how many are right: x [B, T, H]; [B, T]."""
        nats, right = token_sums(self.model.heads.get("mlm", self.model.body), x, labels, weights)
        return {"lm": nats, "lm/accuracy": right}


class RecurrentLM(Recurrent, TextSegments):
    """Each token of a row from those before it, the state carried through the row; the first token excepted.

    With `activation` and `change` it has the regularisation of Merity et al. (2017, section 4.6; theirs are 2 and 1), means over
    tokens and units. Differs: the papers carry the state from update to update through the corpus, as `segments` says.
    """

    settings_class = Settings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        extra = {name: getattr(self.settings, name) for name in ("activation", "change")}
        self.scales = {"lm": 1.0} | {name: scale for name, scale in extra.items() if scale}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        weights = batch["weights"]
        counts = {"lm": ops.sum(weights), "activation": ops.sum(weights), "change": ops.sum(self._pairs(weights))}
        return {name: counts[name] for name in self.scales}

    def _pairs(self, weights: Tensor) -> Tensor:
        """Of neighbouring places of a segment whether both predict: [B, k * S] -> [B, k, S - 1]."""
        parts = ops.reshape(weights, (weights.shape[0], self.settings.segments, -1))
        return parts[:, :, 1:] * parts[:, :, :-1]

    def segment(self, part: Mapping[str, Tensor], memory: Tensor, training: bool) -> tuple[dict[str, Tensor], Tensor]:
        inputs = {"token_ids": part["token_ids"]}
        if not training:  # nothing real sees the padding behind it; but what is carried on must not
            inputs["padding_mask"] = part["padding_mask"]
        raw, state = self.model.body.read_from(inputs, memory, training)
        x, weights = self.dropped(raw, training), part["weights"]
        sums = self.sums(x, part["labels"], weights)
        if training:
            if "activation" in self.scales:
                sums["activation"] = ops.sum(ops.mean(ops.square(ops.cast(x, "float32")), axis=-1) * weights)
            if "change" in self.scales:
                moved = ops.cast(raw[:, 1:], "float32") - ops.cast(raw[:, :-1], "float32")
                sums["change"] = ops.sum(ops.mean(ops.square(moved), axis=-1) * weights[:, 1:] * weights[:, :-1])
        return sums, {name: ops.stop_gradient(each) for name, each in state.items()}

    def empty_state(self, rows: int) -> dict[str, Tensor]:
        return self.model.body.empty_state(rows)

    def memory_of(self, state: Mapping[str, Tensor]) -> Tensor:
        return dict(state)

    def state_of(self, memory: Tensor) -> dict[str, Tensor]:
        return memory


class SequenceAutoencoder(Recurrent):
    """A text is read, and written again from the state alone, by the same weights (Dai and Le, 2015, section 2, figure 1).

    What is read ends before the separator; the separator is the first thing that the writing network reads, and the last that
    it writes.
    """

    packing = "doc"
    opened = True

    @classmethod
    def sequences(cls, settings: object) -> int:
        return 2

    @classmethod
    def predictions(cls, settings: object, length: int, tokens: float | None = None) -> float:
        return length - 1 if tokens is None else tokens

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask [B, S]; written_ids, labels, weights [B, S - 1]; row [B]."""
        ids, total = features["token_ids"], tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        place = tf.range(ids.shape[1])[None]
        first = tf.fill(tf.shape(ids[:, :1]), tf.cast(self.tokenizer.sep_id, ids.dtype))
        return {
            "token_ids": ids,
            "padding_mask": tf.cast(place + 1 < total, tf.int32),
            "written_ids": tf.concat([first, ids[:, 1:-1]], axis=1),
            "labels": ids[:, 1:],
            "weights": tf.cast(place[:, 1:] < total, tf.float32),
            "row": features["row"],
        }

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        body = self.model.body
        read = {"token_ids": batch["token_ids"], "padding_mask": batch["padding_mask"]}
        _, state = body.read_from(read, training=training)
        x, _ = body.read_from({"token_ids": batch["written_ids"]}, state, training)
        return self.sums(self.dropped(x, training), batch["labels"], batch["weights"])


register_objective("recurrent_lm", RecurrentLM)
register_objective("sequence_autoencoder", SequenceAutoencoder)
