"""What a task answers for one text: the same objects from `kb.predict` and from the phone's runtime."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Classification:
    """A label: the best one, its probability, and the probability of each."""

    label: str
    score: float
    scores: dict[str, float]

    def to_json(self) -> dict:
        """A plain dict."""
        return {
            "label": self.label,
            "score": float(self.score),
            "scores": {k: float(v) for k, v in self.scores.items()},
        }


@dataclasses.dataclass(frozen=True)
class Regression:
    """A number."""

    value: float

    def to_json(self) -> dict:
        """A plain dict."""
        return {"value": float(self.value)}


@dataclasses.dataclass(frozen=True)
class Vector:
    """A text as a vector."""

    values: Sequence[float]

    def to_json(self) -> dict:
        """A plain dict."""
        return {"values": [float(value) for value in self.values]}
