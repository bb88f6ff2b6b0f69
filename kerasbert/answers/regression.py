"""A number for a text or a pair."""

import dataclasses

import numpy as np

from kerasbert.answers.base import Kind, truncated_json


@dataclasses.dataclass(frozen=True)
class Regression:
    """A number. `truncated` as of a Classification."""

    value: float
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"value": float(self.value), **truncated_json(self)}


class RegressionKind(Kind):
    """One value [1] in the unit of the targets."""

    name = "regression"
    focus = "text"
    output = "value"
    agrees_by = "correlation"
    columns = ("value",)
    since = 1

    def width(self, labels):
        return 1

    def decode(self, parts, rows, outputs, labels):
        return Regression(float(np.ravel(outputs[0])[0]), rows[0].truncated)

    def agreement(self, expected, received, owners=None, rows=()):
        one, other = (np.array([np.ravel(row)[0] for row in rows]) for rows in (expected, received))
        if not np.isfinite(other).all():
            return 0.0
        if one.std() == 0 or other.std() == 0:
            return float(np.allclose(one, other, atol=1e-2))
        return float(np.corrcoef(one, other)[0, 1])

    def text(self, answer):
        return f"{answer['value']:.4f}"

    def line(self, answer, text):
        return f"{answer['value']:.6g}\t{text}"


KIND = RegressionKind()
