"""Relations between two marked spans, "entity start" (Soares et al., 2019, Matching the Blanks, section 3.2), of a third party.

A text has <e1> and <e2> before two spans; the head reads the first token of each marker. A SavedModel finds the markers in its
graph, a phone in Python.
"""

import dataclasses
from typing import Any

from kerasbert import answers
from kerasbert.answers.classification import ClassificationKind
from kerasbert.errors import InputError
from kerasbert.inputs import Input
from kerasbert.registry import register_task
from kerasbert.tasks import base

MARKERS = ("<e1>", "<e2>")


def _places(token_ids: Any, tokenizer: Any) -> list[int]:
    """Where each marker begins among the tokens of a row."""
    ids, found = list(token_ids), []
    for marker in MARKERS:
        wanted = list(tokenizer.encode(marker))
        starts = [i for i in range(len(ids)) if ids[i : i + len(wanted)] == wanted]
        if not starts:
            raise InputError(
                f"no {marker} among the first {len(ids)} tokens, expected both markers: give more --length"
            )
        found.append(starts[0])
    return found


def _graph(inputs: Any, tokenizer: Any) -> Any:
    """The same of a batch: int32 [B, 2]."""
    from keras import ops  # here: a phone has no Keras

    ids, columns = ops.cast(inputs["token_ids"], "int32"), []
    for marker in MARKERS:
        wanted = list(tokenizer.encode(marker))
        padded = ops.pad(ids, [[0, 0], [0, len(wanted)]], constant_values=-1)
        length = ops.shape(ids)[1]
        fits = [padded[:, j : j + length] == wanted[j] for j in range(len(wanted))]
        columns.append(ops.argmax(ops.cast(ops.all(ops.stack(fits), axis=0), "int32"), axis=1))
    return ops.cast(ops.stack(columns, axis=1), "int32")


PLACES = Input("marker_places", "BP", filled_by="kind", places=len(MARKERS), graph=_graph)


class RelationKind(ClassificationKind):
    """Probabilities [C] of the relations."""

    name, inputs = "relation", (PLACES,)

    def rows(self, tokenizer, parts, length):
        rows = super().rows(tokenizer, parts, length)
        return [
            dataclasses.replace(row, values={**row.values, PLACES.name: _places(row.token_ids, tokenizer)})
            for row in rows
        ]

    def example(self, made):
        words = made.split() or ["a", "b"]
        return " ".join(["<e1>", words[0], *words[1:-1], "<e2>", words[-1]])


def training():
    from keras import ops

    from kerasbert.layers.backend import pick
    from kerasbert.layers.heads import LabelHead
    from kerasbert.tasks.classification import Classification

    class Relations(Classification):
        """Its head reads two tokens side by side, [B, 2 H]."""

        name = "relation"

        def readout(self, task, encoder):
            return None  # `logits` picks

        def heads(self, encoder, task):
            spec, about = encoder.spec, {"name": "classifier", "dtype": encoder.dtype_policy}
            head = LabelHead(len(task.labels), spec.initializer, spec.dropout, **about)
            return {"classifier": head}, {"classifier": (None, len(MARKERS) * spec.hidden)}

        def logits(self, model, read, inputs, training=False):
            picked = pick(read, inputs[PLACES.name])
            flat = ops.reshape(picked, (-1, len(MARKERS) * picked.shape[-1]))
            return model.heads["classifier"](flat, training=training)

        def probes(self, texts, parts):
            return [f"<e1> {text} <e2> {text}" for text in texts[:3]]

    return Relations()


answers.register(RelationKind())
base.register("relation", training)
register_task("relations", base.Task("relations", kind="relation"))
