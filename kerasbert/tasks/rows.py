"""Rows of a task: what a file holds of a part, read."""

import dataclasses
from typing import Any

import numpy as np

from kerasbert.inputs import Tensor


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts and targets.

    Args:
        texts: str, pairs, or tuples of what the kind's parts are.
        targets: what the task's kind makes of the labels, [n] or a list; None where they were not read.
        labels: the labels as they stand in the file, or None.
    """

    texts: list[Any]
    targets: Any
    labels: list[Any] | None = None

    def take(self, indices: Tensor) -> "Rows":
        """Some of the rows."""
        raw = None if self.labels is None else [self.labels[i] for i in indices]
        whole = isinstance(self.targets, np.ndarray)
        targets = self.targets[indices] if whole else [self.targets[i] for i in indices]
        return Rows([self.texts[i] for i in indices], targets, raw)
