"""A number for a text or a pair."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType
from typing import Self

import numpy as np

from kerasbert.answers.base import Answer, Kind, Outputs, Parts, truncated_json
from kerasbert.errors import InputError
from kerasbert.inputs import Row
from kerasbert.storage.json_view import Json, JsonMap


@dataclasses.dataclass(frozen=True)
class Regression(Answer):
    """A number. `truncated` as of a Classification."""

    value: float
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"value": float(self.value), **truncated_json(self)}


class RegressionKind(Kind):
    """One value [1] in the unit of the targets.

    Options: `activation`, "sigmoid" where the value is that of the head's number, as a CrossEncoder's score; "" for the number.
    """

    name = "regression"
    focus = "text"
    output = "value"
    agrees_by = "correlation"
    columns = ("value",)
    named = False
    defaults = MappingProxyType({"activation": ""})

    def configured(self, options: JsonMap | None) -> Self:
        kind = super().configured(options)
        if kind.options["activation"] not in ("", "sigmoid"):
            raise InputError(f"activation must be sigmoid or empty. Received: {kind.options['activation']!r}")
        return kind

    def width(self, labels: Sequence[str]) -> int | None:
        return 1

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Regression:
        return Regression(float(np.ravel(outputs[0])[0]), rows[0].truncated)

    def agreement(
        self,
        expected: Outputs,
        received: Outputs,
        owners: np.ndarray | None = None,
        rows: Sequence[Row] = (),
        ties: bool = False,
    ) -> float:
        one, other = (np.array([np.ravel(row)[0] for row in rows]) for rows in (expected, received))
        if not np.isfinite(other).all():
            return 0.0
        if one.std() == 0 or other.std() == 0:
            return float(np.allclose(one, other, atol=1e-2))
        return float(np.corrcoef(one, other)[0, 1])

    def text(self, answer: Json) -> str:
        return f"{answer['value']:.4f}"

    def line(self, answer: Json, text: str) -> str:
        return f"{answer['value']:.6g}\t{text}"


KIND = RegressionKind()
