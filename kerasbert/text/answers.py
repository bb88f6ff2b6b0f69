"""What a task answers for one text: the same objects from `kb.predict` and from the phone's runtime.

`truncated`: bool, whether the text had more tokens than are read, so that its end had no say; in `to_json` only where it is true.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Classification:
    """A label: the best one, its probability, and the probability of each."""

    label: str
    score: float
    scores: dict[str, float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {
            "label": self.label,
            "score": float(self.score),
            "scores": {k: float(v) for k, v in self.scores.items()},
            **_truncated(self),
        }


@dataclasses.dataclass(frozen=True)
class Regression:
    """A number."""

    value: float
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"value": float(self.value), **_truncated(self)}


@dataclasses.dataclass(frozen=True)
class Vector:
    """A text as a vector."""

    values: Sequence[float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"values": [float(value) for value in self.values], **_truncated(self)}


def _truncated(answer: Classification | Regression | Vector) -> dict:
    return {"truncated": True} if answer.truncated else {}
