"""Quick-Thoughts (Logeswaran and Lee, 2018): the sentences around a sentence are chosen among candidates, not written.

- Section 3: encoders f and g, each with words of its own; the probability that a candidate stands in the context of a sentence is
  a softmax of f(sentence) . g(candidate) over the candidates. The classifier is the inner product alone, so that the encoders
  must do the work. The loss is the sum of the log-probabilities of the sentences of the context.
- Section 3: a text's vector is f's and g's side by side.
- Section 4.1: the candidates are the sentences of a minibatch of contiguous text, 400 of them; the context is the sentence before
  and the one behind; uni-QT, bi-QT (as Skip-Thought's) of 2,400 numbers, combine-QT of 4,800; GRUs.

The candidates of a sentence are the other ones of its row, so rows of 400 sentences are the paper's minibatches
(`tpu_scripts/recipes/quick_thoughts.yaml`), and an update is the same for any replicas and micro-batches.

Differs: tokens are pieces; a sentence is no candidate of itself (the released code gives that a score of 0); a row has fewer
sentences where its document ends; combine-QT's two models learn in one run; no MultiChannel-QT, which reads GloVe's vectors too.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, cast

import keras
from keras import ops

from kerasbert.classics.layers import sentence_encoder
from kerasbert.classics.layers.recurrent_encoder import Words
from kerasbert.classics.layers.sentence_encoder import SentenceEncoder, SentenceSpec
from kerasbert.classics.objectives import sentences
from kerasbert.classics.objectives.sentences import Sentences, flat
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.objectives.contrastive import NEVER, candidate_logs
from kerasbert.registry import Family, register, register_objective

if TYPE_CHECKING:
    from kerasbert.data.records import Records


@dataclasses.dataclass(frozen=True)
class QuickThoughtsSpec(SentenceSpec):
    """The settings of Quick-Thoughts: those of an encoder of sentences, with two readers for each of `directions`."""

    ROLES: ClassVar[tuple[str, ...]] = ("f", "g")


class QuickThoughts(SentenceEncoder):
    """A sentence's vector by f, and that by g.

    Args and call: as SentenceEncoder. Trainable weights: 2(V E + 3U(E + U + 1)) of uni-QT, U = H / 2.
    """


@dataclasses.dataclass(frozen=True)
class Settings(sentences.Settings):
    """Settings of the choice of neighbours.

    Args:
        sentences: int N, of a row.
        context: int, sentences on each side that are to be chosen.
    """

    context: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.context < self.sentences:
            raise InputError(f"context {self.context}, expected 1 to {self.sentences - 1} sentences on each side")


class Neighbours(Sentences):
    """The sentences around a sentence, chosen among those of its row (section 3).

    Loss `context`: the mean over pairs of a sentence and one of its context, of all directions. Its accuracy is the share of
    pairs whose sentence has one of its context as the best candidate.
    """

    settings_class = Settings
    scales: Mapping[str, float] = MappingProxyType({"context": 1.0})

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        found = super().heads(encoder)
        if getattr(encoder.spec, "ROLES", ()) != QuickThoughtsSpec.ROLES:
            raise InputError(
                f"{type(encoder).__name__} has no encoders f and g, which score a sentence and a candidate: choose another "
                "objective (--objective)"
            )
        return found

    @classmethod
    def predictions(cls, settings: object, length: int, tokens: float | None = None) -> float:
        return 0

    def pairs(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Of [B, N, T]: which sentences are candidates of each, and which are its context: bool [B, N, N]."""
        there, place = ops.cast(mask[:, :, 0], "bool"), ops.arange(mask.shape[1], dtype="int32")
        far = ops.abs(ops.expand_dims(place, 0) - ops.expand_dims(place, 1))
        both = ops.logical_and(ops.expand_dims(there, 1), ops.expand_dims(there, 2))
        candidates = ops.logical_and(both, far > 0)
        return candidates, ops.logical_and(candidates, far <= self.settings.context)

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        spec = cast(QuickThoughtsSpec, self.model.body.spec)
        context = self.pairs(batch["padding_mask"])[1]
        return {"context": len(spec.directions) * ops.sum(ops.cast(context, "float32"))}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        body, ids, mask = self.model.body, batch["token_ids"], batch["padding_mask"]
        candidates, context = self.pairs(mask)
        wanted = ops.cast(context, "float32")
        vectors = body.sentences(body.embed({"token_ids": flat(ids)}, training), flat(mask), training)
        vectors = ops.reshape(vectors, (-1, ids.shape[1], vectors.shape[-1]))
        parts, nats, right = ops.split(vectors, len(body.spec.readers), axis=-1), 0.0, 0.0
        for f, g in zip(parts[::2], parts[1::2], strict=True):
            logs = candidate_logs(ops.matmul(f, ops.transpose(g, (0, 2, 1))), candidates)
            nats -= ops.sum(logs * wanted)
            of_context = ops.max(ops.where(context, logs, 2 * NEVER), axis=-1)
            best = ops.cast(of_context >= ops.max(logs, axis=-1), "float32")
            right += ops.sum(best * ops.sum(wanted, axis=-1))
        dropped = len(parts) / 2 * ops.sum(batch["dropped"])
        return {"context": nats, "context/accuracy": right, "context/dropped": dropped}

    @classmethod
    def baseline(cls, records: "Records") -> dict[str, float] | None:
        return None  # of candidates, which differ from row to row


register_objective("quick_thoughts", Neighbours)

QUICK_THOUGHTS = register(
    Family(
        name="quick-thoughts",
        spec=QuickThoughtsSpec(embeddings=Words(vocabulary=50000, width=620)),  # pyright: ignore[reportArgumentType]  # no Spec
        sizes={
            "uni": {},
            "bi": {"directions": ("bi",)},
            "combine": {"hidden": 4800, "directions": ("uni", "bi")},
        },
        encoder=QuickThoughts,
        readout="last",
        objective="quick_thoughts",
        longest=lambda spec: None,
        flops=lambda spec, tokens, rows, predictions: 3.0 * sentence_encoder.flops(spec, tokens),  # pyright: ignore[reportArgumentType]
        memory=lambda spec, rows, length, predictions: float(sentence_encoder.kept(spec, rows, length)),  # pyright: ignore[reportArgumentType]
        paper="Logeswaran and Lee, 2018, An Efficient Framework for Learning Sentence Representations",
    )
)
