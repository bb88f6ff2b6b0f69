"""One label for a text or a pair."""

import dataclasses

from kerasbert.answers.base import Kind, truncated_json


@dataclasses.dataclass(frozen=True)
class Classification:
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
    """Probabilities [C] of the labels."""

    name = "classification"
    output = "probabilities"
    labelled = True
    agrees_by = "labels"
    columns = ("label", "score")
    since = 1

    def decode(self, parts, rows, outputs, labels):
        values = [float(value) for value in outputs[0]]
        best = max(range(len(values)), key=values.__getitem__)
        return Classification(labels[best], values[best], dict(zip(labels, values, strict=True)), rows[0].truncated)

    def text(self, answer):
        return f"{answer['label']}\t{answer['score']:.4f}"


KIND = ClassificationKind()
