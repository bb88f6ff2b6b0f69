"""Rows of a task: what a file holds of a part, read."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasbert.inputs import Tensor

RowText = str | tuple[str | tuple[str, ...], ...]  # one input of a row: a text by itself, or its parts

# what a kind makes of the labels, one for each input: an array [n, ...], or a list of what it alone knows
Targets = Any


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts and targets.

    Args:
        texts: str, pairs, or tuples of what the kind's parts are.
        targets: what the task's kind makes of the labels, [n] or a list; None where they were not read.
        labels: the labels as they stand in the file, or None.
    """

    texts: Sequence[RowText]
    targets: Targets
    labels: list[object] | None = None

    def take(self, indices: Tensor) -> "Rows":
        """Some of the rows."""
        numbers: list[int] = np.asarray(indices, int).tolist()
        raw = None if self.labels is None else [self.labels[i] for i in numbers]
        whole = isinstance(self.targets, np.ndarray)
        targets = self.targets[indices] if whole else [self.targets[i] for i in numbers]
        return Rows([self.texts[i] for i in numbers], targets, raw)
