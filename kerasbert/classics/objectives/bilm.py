"""Language models of two directions (Peters et al., 2018, section 3.1), trained with a sampled softmax.

Forward each word from those before it, backward each from those behind it; both by one softmax, and the loss is the mean of the
two. A text ends with </S>, which is predicted as a word is: forward behind the last word, backward before the first of the next
text.

Rows are k consecutive segments of a text; a direction reads them in its own order, and its state is carried from one to the next,
its gradient is not. Differs: bilm-tf and AllenNLP's stateful training carry it from update to update through the whole corpus;
then a batch would depend on more than (records, seed, step), see `objectives.segments`. Held-out evaluation carries the forward
state through the whole text, the backward one through a row: rows come from left to right. A word that the vocabulary lacks is
read as the characters of <UNK>, for records hold the numbers of words; bilm-tf reads its own.
"""

import dataclasses
import math
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import gather
from kerasbert.layers.random import key, shared_key, uniform
from kerasbert.objectives.lm_loss import token_sums
from kerasbert.objectives.segments import TextSegments, segments
from kerasbert.registry import register_objective

WAYS = ("forward", "backward")
NEVER = -1e9  # a logit, in float32


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a language model of two directions.

    Args:
        segments: int k, of a row: records of k * S words are read S words at a time.
        candidates: int C, of a step: words that each predicted one is compared with in training (bilm-tf's
            n_negative_samples_batch); 0 for all words, as where there are no more.
    """

    segments: int = 4
    candidates: int = 8192

    def __post_init__(self) -> None:
        if self.segments < 1:
            raise InputError(f"segments {self.segments}, expected at least 1 in a row")
        if self.candidates < 0:
            raise InputError(f"candidates {self.candidates}, expected at least 1 word, or 0 for all of them")


class BiLM(TextSegments):
    """Losses `forward` and `backward`; perplexities are those of the full softmax."""

    settings_class = Settings
    scales: Mapping[str, float] = {"forward": 0.5, "backward": 0.5}
    token_losses = WAYS
    cut = ("char_ids", "padding_mask", "labels", "weights", "labels_before", "weights_before")

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "new_softmax") or not hasattr(encoder, "read"):
            raise InputError(
                f"{type(encoder).__name__} does not read a text in two directions: choose another objective (--objective)"
            )
        return {"mlm": encoder.new_softmax("mlm")}, {"mlm": (None, None, encoder.spec.width)}

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As `TextSegments`, with char_ids [B, k * S, 50], and labels_before, weights_before of the other direction."""
        table = getattr(self.tokenizer, "table", None)
        if table is None:
            raise InputError(
                f"the records' tokenizer is of kind {self.tokenizer.kind}, expected word_characters (kerasbert vocab --kind ...)"
            )
        batch = super().prepare(features)
        ids, real = batch["token_ids"], tf.cast(batch["padding_mask"], tf.float32)
        return batch | {
            "char_ids": tf.cast(tf.gather(tf.constant(table), ids), tf.int32),
            "labels_before": tf.concat([ids[:, :1], ids[:, :-1]], axis=1),
            "weights_before": tf.concat([tf.zeros_like(real[:, :1]), real[:, 1:]], axis=1),
        }

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"forward": ops.sum(batch["weights"]), "backward": ops.sum(batch["weights_before"])}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return self._sums(batch, None, training)[0]

    def losses_from(
        self, batch: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self._sums(batch, state, False)

    def empty_state(self, rows: int) -> dict[str, Tensor]:
        return self.model.body.empty_state(rows)

    def _sums(self, batch: Mapping[str, Tensor], state: Tensor, training: bool) -> tuple[dict[str, Tensor], Tensor]:
        """Sums of both directions, and the forward state at the end of the rows."""
        parts = segments(batch, self.settings.segments, self.cut)
        words = [self.model.body.embed(part, training) for part in parts]
        candidates = self.candidates() if training else None
        total: dict[str, Tensor] = {}
        ended = state
        for way, order in enumerate((range(len(parts)), reversed(range(len(parts))))):
            carried = None if way else state
            for i in order:
                sums, carried = self._segment(words[i], parts[i], way, carried, candidates, training)
                total |= {name: total[name] + value if name in total else value for name, value in sums.items()}
            ended = ended if way else carried
        return total, ended

    def _segment(
        self, x: Tensor, part: Mapping[str, Tensor], way: int, state: Tensor, candidates: Tensor, training: bool
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Sums of one direction over a segment, and the state at its end in that direction."""
        body, name, suffix = self.model.body, WAYS[way], "_before" if way else ""
        # forward, nothing real sees the padding behind it; but what is carried on must not
        mask = part["padding_mask"] if way or not training else None
        found, state = body.read(x, way, mask, state, training=training)
        x, (labels, weights) = found[-1], (part["labels" + suffix], part["weights" + suffix])
        x = body.last_dropout(x, way, training)
        state = {name: ops.stop_gradient(each) for name, each in state.items()}
        if candidates is None:
            nats, right = token_sums(self.model.heads["mlm"], x, labels, weights)
            return {name: nats, f"{name}/accuracy": right}, state
        softmax = self.model.heads["mlm"]
        nats = sampled_nats(x, softmax.table, softmax.bias, labels, candidates)
        return {name: ops.sum(nats * weights)}, state

    def candidates(self) -> Tensor | None:
        """The words that a step's are compared with, int32 [C]; None for all."""
        count, vocabulary = self.settings.candidates, self.model.body.spec.embeddings.vocabulary
        if not 0 < count < vocabulary:
            return None
        drawn = shared_key("bilm/candidates")
        return log_uniform(key(0, "bilm/candidates") if drawn is None else drawn, count, vocabulary)


def log_uniform(key: Tensor, count: int, vocabulary: int) -> Tensor:
    """Words drawn by their rank, with replacement: int32 [count], k with probability log((k + 2) / (k + 1)) / log(V + 1).

    Args:
        key: uint32 [2]. vocabulary: int V; words are numbered from the commonest on.
    """
    drawn = ops.floor(ops.exp(uniform(key, (count,)) * np.float32(math.log(vocabulary + 1)))) - 1
    return ops.cast(ops.clip(drawn, 0, vocabulary - 1), "int32")


def expected_logs(words: Tensor, count: int, vocabulary: int) -> Tensor:
    """The logarithm of how often a word is expected among `count` that `log_uniform` draws: int [...] -> float32 [...]."""
    rank = ops.cast(words, "float32")
    share = ops.log1p(1.0 / (rank + 1.0)) / np.float32(math.log(vocabulary + 1))
    return ops.log(share * np.float32(count))


def sampled_nats(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor, candidates: Tensor) -> Tensor:
    """Cross-entropy of words among their label and the candidates, logits less `expected_logs` (Jean et al., 2015, section 3.2).

    That makes the sum over candidates stand for the sum over all words. A candidate that is the label is left out.
    Differs: tf.nn.sampled_softmax_loss, which no TPU compiles, draws words once each.

    Args:
        x: [..., P]. table: float32 [V, P]. bias: float32 [V]. labels: int32 [...]. candidates: int32 [C].

    Returns:
        float32 [...].
    """
    count, vocabulary = candidates.shape[0], table.shape[0]
    rows, flat = ops.reshape(x, (-1, x.shape[-1])), ops.reshape(labels, (-1,))

    def biased(logits: Tensor, words: Tensor) -> Tensor:
        return ops.cast(logits, "float32") + gather(bias, words) - expected_logs(words, count, vocabulary)

    of_label = ops.cast(gather(table, flat), rows.dtype)
    right = biased(ops.sum(ops.cast(rows * of_label, "float32"), axis=-1), flat)
    of_others = ops.cast(gather(table, candidates), rows.dtype)
    others = biased(ops.matmul(rows, ops.transpose(of_others)), candidates)
    same = ops.cast(ops.equal(ops.expand_dims(flat, 1), ops.expand_dims(candidates, 0)), "float32")
    every = ops.concatenate([ops.expand_dims(right, 1), others + same * np.float32(NEVER)], axis=1)
    return ops.reshape(ops.logsumexp(every, axis=-1) - right, ops.shape(labels))


register_objective("bilm", BiLM)
