"""A vector for every token, and texts compared by late interaction (Khattab and Zaharia, 2020, ColBERT, section 3), in one file.

A query's score for a document is the sum over the query's tokens of the largest cosine with a token of the document (equation 3);
it learns as `--task pairs` does, by a softmax over the positives and negatives of a batch. Every real token counts: nothing
lengthens a query by masks, and no punctuation is left out. Prompts ("query", "document") may be the paper's [Q] and [D].

kerasbert finetune DIR --plugin late_interaction.py --task late_interaction --data pairs.tsv --out RUN
asked, *told = kb.predict(RUN, [query, *documents])
scores = [max_sim(asked.values, each.values) for each in told]  # of this file
"""

import dataclasses
import json
from types import MappingProxyType
from typing import Any

import numpy as np

from kerasbert import answers
from kerasbert.answers.base import Answer, truncated_json
from kerasbert.answers.vector import VectorKind
from kerasbert.errors import InputError
from kerasbert.registry import register_task
from kerasbert.tasks import base

NAME = "late_interaction"
PROJECTION = MappingProxyType({"width": 128, "activation": "", "bias": False})  # section 3.2
FIXED = (
    "pooling",
    "normalize",
    "loss",
    "dims",
    "depths",
    "margin",
    "highest",
)  # options that say nothing of tokens' vectors


@dataclasses.dataclass(frozen=True)
class TokenVectors(Answer):
    """A vector for each token of a text, [CLS] and [SEP] among them: float32 [S, D]."""

    values: np.ndarray
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"values": np.asarray(self.values, float).tolist(), **truncated_json(self)}


def max_sim(query: np.ndarray, document: np.ndarray) -> float:
    """The sum over a query's tokens of the largest product with one of the document's: [S, D], [T, D] -> a number."""
    return float((np.asarray(query, "float64") @ np.asarray(document, "float64").T).max(axis=1).sum())


class LateInteractionKind(VectorKind):
    """Vectors [S, D] of length 1 of the tokens of a text."""

    name = output = NAME
    per_token = True
    defaults = MappingProxyType(
        {**VectorKind.defaults, "dense": (dict(PROJECTION),), "normalize": True, "loss": "ranking", "scale": 1.0}
    )

    def configured(self, options: Any) -> "LateInteractionKind":
        kind = super().configured(options)
        for name in FIXED:
            if kind.options[name] != self.defaults[name]:
                raise InputError(f"{name} is {kind.options[name]!r}, an option of other vectors: leave it out")
        return kind

    def compare(self, queries: Any, texts: Any) -> np.ndarray:
        return np.array([[max_sim(query, text) for text in texts] for query in queries])

    def decode(self, parts, rows, outputs, labels):
        return TokenVectors(outputs[0], rows[0].truncated)

    def agreement(self, expected, received, owners=None, rows=(), ties=False):
        one, other = (np.concatenate(list(each)) for each in (expected, received))
        if not np.isfinite(other).all():
            return 0.0
        return float((one * other).sum(-1).mean() / max(1e-12, (np.square(one).sum(-1)).mean()))

    def text(self, answer):
        return json.dumps(answer["values"])

    def line(self, answer, text):
        return self.text(answer)


def training():
    """The side of training."""
    from keras import ops

    from kerasbert.tasks.vector import Vector
    from kerasbert.tasks.vector_losses import compared, ranked, unit

    class LateInteraction(Vector):
        """Queries and documents are rows of their own, whose tokens meet in the loss."""

        name = NAME

        def readout(self, task, encoder):
            return None  # every token

        def trained(self, model, outputs, inputs, training=False):
            mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
            return unit(ops.cast(model.logits(outputs, inputs, training=training), "float32")) * mask

        def losses(self, task, logits, batch):
            texts = ops.reshape(logits, (batch["label_weight"].shape[0], -1, *ops.shape(logits)[1:]))
            others = compared(texts)
            real = ops.any(others != 0.0, axis=-1)  # a vector of length 1; of padding it is 0
            products = ops.einsum("qsd,ntd->qnst", texts[:, 0], others)
            nearest = ops.max(ops.where(real[None, :, None], products, -2.0), axis=-1)
            asked = ops.cast(ops.any(texts[:, 0] != 0.0, axis=-1), "float32")
            scores = ops.sum(nearest * ops.expand_dims(asked, 1), axis=-1)
            return ranked(scores * self.options["scale"], batch)

        def described(self):
            return f"`{NAME}` [B, S, D] float32: a vector of length 1 for every token; padding has vectors too"

    return LateInteraction()


answers.register(LateInteractionKind())
base.register(NAME, training)
register_task(NAME, base.Task(NAME, kind=NAME, text="anchor", text_b="positive", label="", metric="recall"))
