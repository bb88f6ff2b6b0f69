"""Several labels, or none, for a text or a pair."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from kerasbert.answers import nearness
from kerasbert.answers.base import Answer, Kind, Outputs, Parts, truncated_json
from kerasbert.answers.classification import best
from kerasbert.errors import InputError
from kerasbert.inputs import Row
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class MultiLabel(Answer):
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
    agrees_by = "labels"
    columns = ("labels",)
    defaults = MappingProxyType({"thresholds": []})

    def label_columns(self, label: str) -> tuple[str, ...]:
        """Several names with commas between them are of columns of 0 and 1."""
        return tuple(name.strip() for name in label.split(",")) if label else ()

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

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return sigmoid(outputs)

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> MultiLabel:
        scores = dict(zip(labels, map(float, outputs[0]), strict=True))
        chosen = tuple(label for label, there in zip(labels, self.chosen(outputs[0])) if there)
        return MultiLabel(chosen, scores, rows[0].truncated)

    def signal(self, outputs: Outputs, owners: np.ndarray | None = None, rows: Sequence[Row] = ()) -> np.ndarray:
        return nearness.log_odds(np.stack(list(outputs))) if len(outputs) else np.zeros((0, 1))

    def agreement(
        self,
        expected: Outputs,
        received: Outputs,
        owners: np.ndarray | None = None,
        rows: Sequence[Row] = (),
        ties: bool = False,
    ) -> float:
        """The share of labels, each of each text, that both answer or neither; a set has as many chances to differ as labels."""
        if not all(np.isfinite(row).all() for row in received):
            return 0.0
        if not len(expected):
            return 1.0
        differ = self.chosen(np.stack(list(expected))) != self.chosen(np.stack(list(received)))
        if ties and differ.any():
            own, theirs = self.signal(expected), self.signal(received)
            margins = np.abs(own - nearness.log_odds(self.thresholds(own.shape[1])))
            differ &= margins > nearness.rounding(theirs - own, own)
        return float(1 - differ.mean())

    def limited(self, answer: MultiLabel, top: int | None, threshold: float | None) -> MultiLabel:
        """The labels too are those of `threshold` then, in the place of the task's own."""
        scores = best(answer.scores, top, threshold)
        labels = tuple(scores) if threshold is not None else tuple(name for name in answer.labels if name in scores)
        return dataclasses.replace(answer, labels=labels, scores=scores)

    def text(self, answer: Json) -> str:
        return ", ".join(f"{label} {answer['scores'][label]:.4f}" for label in answer["labels"]) or "-"


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without an overflow.

    >>> sigmoid(np.array([-1000.0, 0.0])).tolist()
    [0.0, 0.5]
    """
    small = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1 / (1 + small), small / (1 + small))


KIND = MultiLabelKind()
