"""Batches of the texts of a task's rows."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.tasks.batches import Encoded, training_batches
from kerasbert.tasks.tables import Source
from kerasbert.tasks.task import Task
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.feed import Feed, Part
from kerasbert.training.step import distribute


class Texts(Feed):
    """Batches of encoded texts."""

    def __init__(
        self,
        encoded: Encoded,
        task: Task,
        targets: Sequence[object] | np.ndarray,
        config: FinetuneConfig,
        longest: int,
        devices: tf.distribute.Strategy,
        path: Source,
        lengths: Sequence[int] = (),
    ) -> None:
        self.encoded, self.devices, self.path = encoded, devices, path
        self.targets, self.shapes = task.how.scaled(task, targets), len(lengths) or encoded.shapes()
        self.arguments: dict[str, Any] = {"batch": config.batch, "longest": longest, "seed": config.seed}
        self.arguments |= {"task": task, "lengths": lengths}
        units, self.rows_each = encoded.units(task.how.together).shape
        self.epoch, mean = -(-units // config.batch), sum(row.length for row in encoded.rows) / units
        self.parts = [Part(config.updates, config.batch, config.accumulate, tokens=config.batch * mean)]

    def arrays(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        """The global batches from update `step` on."""
        return training_batches(self.encoded, self.targets, start=step, **self.arguments)

    def batches(self, step: int) -> Iterator[Mapping[str, Tensor]]:
        return (distribute(arrays, self.devices) for arrays in self.arrays(step))

    def open_shapes(self) -> list[dict[str, tuple[int | None, ...]]]:
        epoch = itertools.islice(self.arrays(0), self.epoch)  # of the first epoch: the same where a run goes on
        first = next(epoch)
        width = first["token_ids"].shape
        other = next((arrays for arrays in epoch if arrays["token_ids"].shape != width), first)
        if any(first[name].ndim != x.ndim for name, x in other.items()) or other is first:
            return []
        pairs = {name: zip(x.shape, other[name].shape, strict=True) for name, x in first.items()}
        return [{name: tuple(a if a == b else None for a, b in sizes) for name, sizes in pairs.items()}]

    def batch(self, step: int) -> tuple[dict[str, np.ndarray], list[tuple[str, int]]]:
        arrays = next(self.arrays(step))
        first = arrays["example"][:: self.rows_each]
        # rows that fill up the batch come from nowhere and weigh nothing
        return arrays, [(str(self.path), int(self.encoded.owners[row]) if row >= 0 else -1) for row in first]
