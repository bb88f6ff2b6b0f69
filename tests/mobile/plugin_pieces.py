"""A third party's kind of answer and an input of its family: a label for each token, and which tokens are neighbours.

What a phone needs is above, and imports no Keras; what training needs is made where Keras is.
"""

import dataclasses

import numpy as np

from kerasbert import answers, inputs
from kerasbert.tasks import base


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A label for each token. `truncated` as of a Classification."""

    labels: tuple[str, ...]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"labels": list(self.labels)} | ({"truncated": True} if self.truncated else {})


class PiecesKind(answers.Kind):
    """Probabilities [S, C] of the labels."""

    name, output, agrees_by = "pieces", "probabilities", "labels"
    per_token = labelled = True

    def decode(self, parts, rows, outputs, labels):
        return Pieces(tuple(labels[i] for i in outputs[0].argmax(-1)), rows[0].truncated)

    def text(self, answer):
        return " ".join(answer["labels"])


answers.register(PiecesKind())


def make(values):
    """Tokens at most one apart: bool [S, S]."""
    places = np.arange(len(values["token_ids"]))
    return np.abs(places[:, None] - places) < 2


def graph(batch):
    """The same of a batch."""
    from keras import ops

    places = ops.arange(ops.shape(batch["token_ids"])[1])
    near = ops.abs(places[:, None] - places) < 2
    seen = ops.cast(batch["padding_mask"], "bool")
    return near[None] & seen[:, :, None] & seen[:, None]


NEIGHBOURS = inputs.register(inputs.Input("neighbours", "BSS", "bool", filled_by="maker", make=make, graph=graph))


def task_kind():
    """The side of training."""
    from kerasbert.tasks.classification import label_head

    class PiecesTask(base.TaskKind):
        name = "pieces"

        def heads(self, encoder, task):
            heads, _ = label_head(encoder, task)
            return heads, {"classifier": (None, None, encoder.spec.hidden)}

        def metrics(self, task, outputs, targets, encoded=None):
            assert [len(row) for row in outputs] == [row.length for row in encoded.rows]
            hits = [np.mean(row.argmax(-1) == wanted[: len(row)]) for row, wanted in zip(outputs, targets)]
            return {"accuracy": float(np.mean(hits))}

    return PiecesTask()


base.register("pieces", task_kind)
