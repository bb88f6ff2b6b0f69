"""What the trainer asks of its data: any update's batch, and where the batch came from."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from kerasbert import progress
from kerasbert.data.records import Records
from kerasbert.inputs import Tensor
from kerasbert.objectives.base import Objective
from kerasbert.training.phases import Phase, phase_at, stream_step

if TYPE_CHECKING:
    from kerasbert.tasks.batches import Encoded

Prepare = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]  # rows of records -> a batch


@dataclasses.dataclass(frozen=True)
class Part:
    """Updates whose batches are of one shape: a phase.

    Attributes:
        until: int, the update after its last.
        batch: int, rows.
        accumulate: int, micro-batches.
        tokens, flops: useful tokens of an update and its arithmetic, on average; 0 where they are not known.
    """

    until: int
    batch: int
    accumulate: int = 1
    tokens: float = 0.0
    flops: float = 0.0


class Feed:
    """Batches by update.

    Attributes:
        parts: the run's parts in order.
        shapes: int, how many the batches of a part have: each is a program of its own.
        epoch: int, updates of an epoch; 1 where there are none.
        encoded: Encoded, what batches of texts are made of; others have none.
    """

    parts: Sequence[Part]
    shapes = 1
    epoch = 1
    encoded: "Encoded"

    def batches(self, step: int) -> Iterator[Mapping[str, Tensor]]:
        """(Distributed) batches from update `step` on, at least to the end of its part."""
        raise NotImplementedError

    def batch(self, step: int) -> tuple[dict[str, np.ndarray], list[tuple[str, int]]]:
        """The global batch of one update, and each row's origin: (file, index in it)."""
        raise NotImplementedError

    def open_shapes(self) -> Sequence[Mapping[str, tuple[int | None, ...]]]:
        """Of each sort of batches that differ in their lengths: name -> shape of a global one, None where lengths differ."""
        return ()

    def token_ids(self) -> np.ndarray | None:
        """All token ids that batches hold, each once, ascending: int [r]; None where nobody knows them beforehand."""
        return self.encoded.token_ids() if hasattr(self, "encoded") else None

    def part(self, step: int) -> Part:
        """The part of update `step`."""
        return next((part for part in self.parts if step < part.until), self.parts[-1])

    def position(self, step: int) -> object:
        """Where in the data update `step` reads, as json: what a checkpoint holds of it."""
        return step

    def check_read(self) -> None:
        """Before a checkpoint is kept: refuse files that others took the place of while they were read.

        Raises:
            InputError: naming them.
        """


class RecordsFeed(Feed):
    """Records, one set for each phase.

    Args:
        phases: the run's phases.
        records: of each phase.
        program: Objective.
        steps: int, updates of the run.
        seed: int.
        devices: tf.distribute.Strategy.
        flops: of an update, by phase.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        records: Sequence[Records],
        program: Objective,
        *,
        steps: int,
        seed: int,
        devices: tf.distribute.Strategy,
        flops: Sequence[float] = (),
    ) -> None:
        self.phases, self.records, self.program = phases, records, program
        self.seed, self.devices = seed, devices
        ends = np.cumsum([phase.steps or 0 for phase in phases])
        ends[-1] = steps
        self.parts = [
            Part(int(end), phase.batch, phase.accumulate, phase.batch * held.tokens / held.examples, work)
            for end, phase, held, work in zip(ends, phases, records, flops or [0.0] * len(phases), strict=True)
        ]

    def batches(self, step: int) -> Iterator[Mapping[str, Tensor]]:
        return distributed(self._dataset(step, self._prepare(step)), self.devices)

    def batch(self, step: int) -> tuple[dict[str, np.ndarray], list[tuple[str, int]]]:
        records = self.records[phase_at(self.phases, step)[0]]
        features = next(iter(self._dataset(step)))
        examples = features["example"].numpy()
        first = np.cumsum([0] + [shard.examples for shard in records.shards])
        places = np.searchsorted(first, examples, side="right") - 1
        origins = [
            (records.path(records.shards[place]), int(example - first[place]))
            for place, example in zip(places, examples)
        ]
        return {name: value.numpy() for name, value in self._prepare(step)(features).items()}, origins

    def check_read(self) -> None:
        for held in self.records:
            held.check_read()

    def position(self, step: int) -> list[int]:
        return [phase_at(self.phases, step)[0], stream_step(self.phases, step)]

    def _prepare(self, step: int) -> Prepare:
        return self.phases[phase_at(self.phases, step)[0]].prepare(self.program)

    def _dataset(self, step: int, prepare: Prepare = lambda features: features) -> tf.data.Dataset:
        phase, start = self.phases[phase_at(self.phases, step)[0]], stream_step(self.phases, step)
        records = self.records[phase_at(self.phases, step)[0]]
        later = step - start  # masks are drawn by the run's update, not by the phase's

        def updated(features: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            return prepare({**features, "step": features["step"] + later})

        return records.dataset(phase.batch, seed=self.seed, start_step=start, prepare=updated)


def distributed(batches: tf.data.Dataset, devices: tf.distribute.Strategy) -> Iterator[Mapping[str, Tensor]]:
    """Global batches -> what the step core takes: replica i gets the i-th part of the rows, of a static shape."""
    replicas = devices.num_replicas_in_sync
    if replicas == 1:
        return iter(batches.prefetch(2))

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """The parts of this host's replicas, in their order."""
        count = replicas // context.num_input_pipelines
        here = slice(context.input_pipeline_id * count, (context.input_pipeline_id + 1) * count)

        @tf.autograph.experimental.do_not_convert
        def parts(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {name: _split(value, replicas)[here] for name, value in batch.items()}

        return batches.map(parts).unbatch().prefetch(2 * count)

    return iter(devices.distribute_datasets_from_function(of_host))


def _split(x: tf.Tensor, replicas: int) -> tf.Tensor:
    return tf.reshape(x, (replicas, x.shape[0] // replicas, *x.shape[1:]))


def verify(records: Iterable[Records], quiet: bool = False) -> None:
    """Compare every shard with the hash it was written with, once per run; says so where it takes seconds.

    Raises:
        InputError: naming the damaged shard.
    """
    for held in {held.directory: held for held in records}.values():
        if held.bytes > 2e9:
            progress.say(f"checking {held.bytes / 1e9:.1f} GB of records in {held.directory}", quiet=quiet)
        held.verify()
