"""One label for a text or a pair."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType

from kerasbert.answers.base import Answer, Kind, Outputs, Parts, truncated_json
from kerasbert.inputs import Row
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class Classification(Answer):
    """A label: the best one, its probability, and the probability of each.

    `truncated`: bool, whether the text had more tokens than are read; in `to_json` only where it is true.
    """

    label: str
    score: float
    scores: dict[str, float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        scores = {k: float(v) for k, v in self.scores.items()}
        return {"label": self.label, "score": float(self.score), "scores": scores, **truncated_json(self)}


class ClassificationKind(Kind):
    """Probabilities [C] of the labels.

    Options:
        class_weights: what a row of a label counts in training: {label: number}, 1 where a label is not among them, or
            "balanced", by how rare a label is among the training rows; None for 1.
        pooling: what of a row the head reads, of `layers.readout`; empty for what the family reads.
        label_smoothing: float, share of a target that all labels have alike (Szegedy et al., 2016, section 7).
    """

    name = "classification"
    focus = "text"
    output = "probabilities"
    labelled = True
    agrees_by = "labels"
    columns = ("label", "score")
    learned = ("class_weights", "label_smoothing")
    defaults = MappingProxyType({"class_weights": None, "label_smoothing": 0.0, "pooling": ""})
    named = False

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Classification:
        values = [float(value) for value in outputs[0]]
        best = max(range(len(values)), key=values.__getitem__)
        return Classification(labels[best], values[best], dict(zip(labels, values, strict=True)), rows[0].truncated)

    def limited(self, answer: Classification, top: int | None, threshold: float | None) -> Classification:
        return dataclasses.replace(answer, scores=best(answer.scores, top, threshold))

    def text(self, answer: Json) -> str:
        return f"{answer['label']}\t{answer['score']:.4f}"


def best(scores: dict[str, float], top: int | None, threshold: float | None) -> dict[str, float]:
    """The `top` largest of at least `threshold`, largest first, equals in their order.

    >>> best({"a": 0.2, "b": 0.5, "c": 0.3}, 2, None), best({"a": 0.2, "b": 0.8}, None, 0.5)
    ({'b': 0.5, 'c': 0.3}, {'b': 0.8})
    """
    ordered = sorted(scores.items(), key=lambda item: -item[1])[:top]
    return {name: value for name, value in ordered if threshold is None or value >= threshold}


KIND = ClassificationKind()
