"""A text as a vector."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kerasbert.answers.base import Kind, truncated_json


@dataclasses.dataclass(frozen=True)
class Vector:
    """A text as a vector. `truncated` as of a Classification."""

    values: Sequence[float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"values": [float(value) for value in self.values], **truncated_json(self)}


class VectorKind(Kind):
    """An encoder's mean over the tokens [H]."""

    name = "vector"
    aliases = ("embedding",)
    output = "vector"
    agrees_by = "cosine"
    columns = ("values",)
    since = 1

    def decode(self, parts, rows, outputs, labels):
        return Vector([float(value) for value in outputs[0]], rows[0].truncated)

    def agreement(self, expected, received, owners=None, rows=()):
        one, other = np.stack(expected), np.stack(received)
        if not np.isfinite(other).all():
            return 0.0
        norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
        return float(((one * other).sum(-1) / np.maximum(norms, 1e-12)).mean())

    def line(self, answer, text):
        return "\t".join(f"{value:.6g}" for value in answer["values"])


KIND = VectorKind()
