"""A third party's kind without a mistake: ordinal regression, K - 1 outputs for K labels."""

import dataclasses
from types import MappingProxyType

import numpy as np
from keras import ops

from kerasbert import answers
from kerasbert.answers import nearness
from kerasbert.answers.base import truncated_json
from kerasbert.errors import InputError
from kerasbert.layers.heads import LabelHead
from kerasbert.tasks import base
from kerasbert.tasks.classification import one_number


@dataclasses.dataclass(frozen=True)
class Grade:
    """The grade, and the expected number of grades above the lowest."""

    label: str
    expected: float
    truncated: bool = False

    def to_json(self):
        return {"label": self.label, "expected": self.expected, **truncated_json(self)}


class GradeKind(answers.Kind):
    """Ordinal regression (Cao et al., 2020, CORAL): probabilities [K - 1] of being more than each grade but the last."""

    name, output, agrees_by, focus = "grade", "exceeds", "labels", "text"
    labelled, label_scores = True, False
    columns = ("label", "expected")
    defaults = MappingProxyType({"margin": 0.5})

    def width(self, labels):
        return len(labels) - 1

    def probabilities(self, outputs):
        return 1 / (1 + np.exp(-outputs))

    def decode(self, parts, rows, outputs, labels):
        exceeds = np.asarray(outputs[0])
        return Grade(labels[int((exceeds > 0.5).sum())], float(exceeds.sum()), rows[0].truncated)

    def signal(self, outputs, owners=None, rows=()):
        return nearness.log_odds(np.stack(list(outputs)))

    def agreement(self, expected, received, owners=None, rows=(), ties=False):
        one, other = ((np.asarray(x) > 0.5).sum(-1) for x in (expected, received))
        return float(np.mean(one == other))


class Grading(base.TaskKind):
    """K - 1 questions: is it more than grade k?"""

    name, metrics_known = "grade", ("accuracy", "mean_absolute_error")

    def with_labels(self, task, source, lines, values):
        return (
            task if task.labels else dataclasses.replace(task, labels={value: value for value in sorted(set(values))})
        )

    def targets(self, task, source, lines, values, texts):
        number = {value: i for i, value in enumerate(task.labels)}
        wrong = [(line, value) for line, value in zip(lines, values) if value not in number]
        if wrong:
            raise InputError(f"{source}, line {wrong[0][0]}: no grade {wrong[0][1]!r}")
        return np.array([number[value] for value in values], "int32")

    def heads(self, encoder, task):
        spec, policy = encoder.spec, {"name": "classifier", "dtype": encoder.dtype_policy}
        head = LabelHead(len(task.labels) - 1, spec.initializer, spec.dropout, **policy)
        return {"classifier": head}, {"classifier": (None, spec.hidden)}

    def batch(self, task, rows, targets, count, length):
        return one_number(targets, count, "int32")

    def losses(self, task, logits, batch):
        above = ops.cast(ops.expand_dims(batch["label"], -1) > ops.arange(logits.shape[-1]), "float32")
        nats = ops.relu(logits) - logits * above + ops.log1p(ops.exp(-ops.abs(logits)))
        return {"label": ops.sum(ops.sum(nats, -1) * batch["label_weight"])}

    def metrics(self, task, outputs, targets, encoded=None):
        grade = (np.asarray(outputs) > 0).sum(-1)
        error = np.abs(grade - targets).mean()
        return {"accuracy": float((grade == targets).mean()), "mean_absolute_error": float(error)}

    def better(self, metric, new, old):
        return old is None or (new < old if metric == "mean_absolute_error" else new > old)

    def device(self, outputs, inputs):
        return ops.sigmoid(outputs["logits"])

    def from_exported(self, outputs):
        return np.log(np.asarray(outputs)) - np.log1p(-np.asarray(outputs))
