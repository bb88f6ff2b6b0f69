"""Batches of the texts of a task's rows."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.layers.encoder import Encoder
from kerasbert.tasks.batches import FIRST, LENGTH_STEP, MULTIPLES, Encoded, Lengths, training_batches
from kerasbert.tasks.length_buckets import halved, parted
from kerasbert.tasks.tables import Source
from kerasbert.tasks.task import Task
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.feed import Feed, Part
from kerasbert.training.step import distribute
from kerasbert.training.trainer import fuses


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
        lengths: Lengths = MULTIPLES,
    ) -> None:
        self.encoded, self.devices, self.path = encoded, devices, path
        self.targets = task.how.scaled(task, targets)
        self.shapes = lengths.shapes or encoded.shapes() * max(1, len(lengths.first))
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
        shapes: dict[str, tuple[int | None, ...]] = {name: x.shape for name, x in next(epoch).items()}
        every, first = self.arguments["lengths"]
        lengths = {"token_ids": every or (), f"{FIRST}token_ids": first}
        varying = {name for name, known in lengths.items() if name in shapes and len(known) != 1}
        for arrays in epoch if varying else ():
            if any(len(shapes[name]) != x.ndim for name, x in arrays.items()):
                return []
            pairs = {name: zip(shapes[name], x.shape, strict=True) for name, x in arrays.items()}
            shapes = {name: tuple(a if a == b else None for a, b in sizes) for name, sizes in pairs.items()}
            varying -= {name for name in varying if None in shapes[name]}
            if not varying:
                break
        return [shapes] if any(None in sizes for sizes in shapes.values()) else []

    def batch(self, step: int) -> tuple[dict[str, np.ndarray], list[tuple[str, int]]]:
        arrays = next(self.arrays(step))
        first = arrays["example"][:: self.rows_each]
        # rows that fill up the batch come from nowhere and weigh nothing
        return arrays, [(str(self.path), int(self.encoded.owners[row]) if row >= 0 else -1) for row in first]


def lengths_for(
    encoded: Encoded, task: Task, config: FinetuneConfig, encoder: Encoder, longest: int, strategy: str
) -> Lengths:
    """The lengths by which a training takes the least time: `length_buckets.parted`, but on a CPU multiples of LENGTH_STEP.

    Args:
        longest: int, tokens of a row at most. strategy: the devices, as `training.strategy` calls them.
    """
    tokens = encoded.longest_of_batches(config.batch, config.seed, task.how.together)
    if config.way is not None:  # what perturbs a batch takes all of its rows at once
        tokens = tokens.max(axis=1, keepdims=True).repeat(tokens.shape[1], axis=1)
    if not strategy.startswith("cpu"):
        return Lengths(None, halved(tokens, LENGTH_STEP))
    weights, rows = encoder.count_params(), config.batch * config.updates / len(tokens)
    choose = functools.partial(parted, tokens, rows=rows, weights=weights, most=longest)
    # one graph takes all lengths where nothing is compiled for each
    found, one = Lengths(*choose()), getattr(encoder, "open_lengths", False)
    return Lengths(*choose(graph=0.0)) if one and not fuses(config, weights, found.shapes) else found
