"""Sparse lexical vectors, SPLADE (Formal et al., 2021, v2, section 3.1), in one file: a weight for every token of the vocabulary.

The weight of a token is the largest over the places of a text of log(1 + relu(logit)), the logits of the masked-LM head
that pretraining left (equation 2 with max). It learns as `--task pairs` does, by products of the vectors of a batch, with what
an inverted index would have to do, FLOPS (Paria et al., 2020), added for queries and for documents (equation 4); the papers
raise both from 0, here they are constant.

kerasbert finetune BERT_RUN --plugin sparse.py --task sparse --data pairs.tsv --out RUN
kerasbert predict RUN --plugin sparse.py "who wrote it"  # {"wrote": 1.21, "author": 0.87, ...}
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

NAME = "sparse"
FIXED = ("pooling", "dense", "normalize", "loss", "dims", "depths", "margin", "highest", "dimensions")


@dataclasses.dataclass(frozen=True)
class Weights(Answer):
    """The tokens of the vocabulary that a text stands for, the heaviest first, each with its weight above 0."""

    weights: dict[str, float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"weights": self.weights, **truncated_json(self)}


class SparseKind(VectorKind):
    """Weights [V] of the tokens of the vocabulary, most of them 0, compared by their product.

    Options beside those of vectors: query_flops, document_flops, how much of FLOPS the loss has.
    """

    name = output = NAME
    columns = ("weights",)
    learned = (*VectorKind.learned, "query_flops", "document_flops")
    defaults = MappingProxyType(
        {**VectorKind.defaults, "loss": "ranking", "scale": 1.0, "query_flops": 3e-4, "document_flops": 1e-4}
    )

    def configured(self, options: Any) -> "SparseKind":
        kind = super().configured(options)
        for name in FIXED:
            if kind.options[name] != self.defaults[name]:
                raise InputError(f"{name} is {kind.options[name]!r}, an option of other vectors: leave it out")
        for name in ("query_flops", "document_flops"):
            if not kind.options[name] >= 0:
                raise InputError(f"{name} must be at least 0. Received: {kind.options[name]}")
        return kind

    def rows(self, tokenizer, parts, length):
        rows = super().rows(tokenizer, parts, length)
        return [dataclasses.replace(rows[0], about=tokenizer)] if len(parts) == 1 else rows

    def compare(self, queries: Any, texts: Any) -> np.ndarray:
        return np.asarray(queries, "float64") @ np.asarray(texts, "float64").T

    def decode(self, parts, rows, outputs, labels):
        known = outputs[0][: rows[0].about.size]
        order = np.argsort(-known, kind="stable")[: np.count_nonzero(known > 0)]
        weights = {rows[0].about.vocabulary[i]: round(float(known[i]), 6) for i in order}
        return Weights(weights, rows[0].truncated)

    def text(self, answer):
        return json.dumps(answer["weights"], ensure_ascii=False)

    def line(self, answer, text):
        return self.text(answer)


def training():
    """The side of training."""
    from keras import ops

    from kerasbert.tasks.tokens import KIND as fill_mask
    from kerasbert.tasks.vector import Vector
    from kerasbert.tasks.vector_losses import compared, ranked

    class Sparse(Vector):
        """The masked-LM head at every place of a text."""

        name, head = NAME, "mlm"

        def goes_on(self, held):
            return ("mlm",)

        def heads(self, encoder, task):
            return fill_mask.heads(encoder, task)

        def readout(self, task, encoder):
            return None  # every token

        def logits(self, model, read, inputs, training=False):
            mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
            found = model.heads["mlm"](read, model.encoder.embeddings.tokens.table)
            return ops.max(ops.log1p(ops.relu(found)) * mask, axis=1)

        def losses(self, task, logits, batch):
            vectors, weight = ops.cast(logits, "float32"), batch["label_weight"]
            vectors = ops.reshape(vectors, (weight.shape[0], -1, vectors.shape[-1]))
            others = compared(vectors)
            found = ranked(ops.matmul(vectors[:, 0], ops.transpose(others)) * self.options["scale"], batch)
            asked = self.options["query_flops"] * flops(vectors[:, 0], weight)
            there = ops.cast(batch["label_texts"][:, 1:] >= 0, "float32") * ops.expand_dims(weight, 1)
            told = self.options["document_flops"] * flops(others, ops.reshape(ops.transpose(there), (-1,)))
            return found | {"label": found["label"] + (asked + told) * ops.sum(weight)}

        def described(self):
            return f"`{NAME}` [B, V] float32: a weight of at least 0 for every token of the vocabulary"

    def flops(vectors, weight):
        """The sum over the vocabulary of the squared mean weight of texts: [N, V], [N] which of them are there -> scalar."""
        mean = ops.sum(vectors * ops.expand_dims(weight, -1), axis=0) / ops.maximum(ops.sum(weight), 1.0)
        return ops.sum(ops.square(mean))

    return Sparse()


answers.register(SparseKind())
base.register(NAME, training)
register_task(NAME, base.Task(NAME, kind=NAME, text="anchor", text_b="positive", label="", metric="recall"))
