"""Several labels, or none, for a text or a pair."""

import dataclasses
from types import MappingProxyType

import numpy as np

from kerasbert.answers.base import Kind, truncated_json
from kerasbert.answers.classification import best
from kerasbert.errors import InputError


@dataclasses.dataclass(frozen=True)
class MultiLabel:
    """The labels whose probability reaches their threshold, in the order of the labels; and the probability of each.

    `truncated` as of a Classification.
    """

    labels: tuple[str, ...]
    scores: dict[str, float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        scores = {name: float(value) for name, value in self.scores.items()}
        return {"labels": list(self.labels), "scores": scores, **truncated_json(self)}


class MultiLabelKind(Kind):
    """Probabilities [C] of the labels, each on its own.

    Options:
        thresholds: of each label; 0.5 where there are none.
    """

    name = "multi_label"
    focus = "text"
    output = "probabilities"
    labelled = True
    agrees_by = "sets of labels"
    columns = ("labels",)
    defaults = MappingProxyType({"thresholds": []})

    def thresholds(self, labels: int) -> np.ndarray:
        """The threshold of each label: float32 [labels].

        Raises:
            InputError: another number of them than labels.
        """
        values = list(self.options["thresholds"]) or [0.5] * labels
        if len(values) != labels:
            raise InputError(f"{len(values)} thresholds, expected one for each of the {labels} labels")
        return np.asarray(values, "float32")

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Which labels are answered: bool [..., C]."""
        return np.asarray(probabilities) >= self.thresholds(np.shape(probabilities)[-1])

    def probabilities(self, outputs):
        return sigmoid(outputs)

    def decode(self, parts, rows, outputs, labels):
        scores = dict(zip(labels, map(float, outputs[0]), strict=True))
        chosen = tuple(label for label, there in zip(labels, self.chosen(outputs[0])) if there)
        return MultiLabel(chosen, scores, rows[0].truncated)

    def agreement(self, expected, received, owners=None, rows=()):
        if not all(np.isfinite(row).all() for row in received):
            return 0.0
        same = [bool((self.chosen(a) == self.chosen(b)).all()) for a, b in zip(expected, received)]
        return float(np.mean(same)) if same else 1.0

    def limited(self, answer, top, threshold):
        """The labels too are those of `threshold` then, in the place of the task's own."""
        scores = best(answer.scores, top, threshold)
        labels = tuple(scores) if threshold is not None else tuple(name for name in answer.labels if name in scores)
        return dataclasses.replace(answer, labels=labels, scores=scores)

    def text(self, answer):
        return ", ".join(f"{label} {answer['scores'][label]:.4f}" for label in answer["labels"]) or "-"


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without an overflow.

    >>> sigmoid(np.array([-1000.0, 0.0])).tolist()
    [0.0, 0.5]
    """
    small = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1 / (1 + small), small / (1 + small))


KIND = MultiLabelKind()
