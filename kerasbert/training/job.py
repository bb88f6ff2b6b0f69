"""One skeleton for whatever is trained: build it, open its run or go on with it, train, keep the weights, write the model."""

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from kerasbert import children, progress
from kerasbert.checkpoints import ModelParts
from kerasbert.errors import InputError
from kerasbert.objectives.base import Objective
from kerasbert.storage.aside import newest
from kerasbert.storage.json_view import Json
from kerasbert.storage.remote import is_remote
from kerasbert.tasks.load import load
from kerasbert.training import freezing, model_files, multiworker, read_rows
from kerasbert.training.best_weights import Best
from kerasbert.training.config import RunConfig
from kerasbert.training.constraints import Constraint
from kerasbert.training.feed import Feed
from kerasbert.training.held_out import HeldOut
from kerasbert.training.optimizers import check_rules, take_average
from kerasbert.training.precision import told
from kerasbert.training.run_lock import RunLock
from kerasbert.training.runs import DataPlaces, Run, open_run, say_finished
from kerasbert.training.step import check_batch
from kerasbert.training.strategy import described
from kerasbert.training.trainer import Trainer
from kerasbert.within import within

if TYPE_CHECKING:
    import keras

_unloaded: contextvars.ContextVar[bool] = contextvars.ContextVar("unloaded", default=False)


def unloaded() -> contextlib.AbstractContextManager[object]:
    """Within it a training leaves its model where it wrote it and gives back None: a command does not load it once more."""
    return within(_unloaded, True)


class Job:
    """A training: what `run` asks of pretraining, fine-tuning and distillation.

    A subclass reads and checks in its constructor, where a mistake costs nothing, and sets the attributes.

    Attributes:
        kind: str, as run.json says it.
        config: RunConfig, with the steps settled.
        strategy: str, resolved.
        devices: tf.distribute.Strategy.
        constraint: what the weights must satisfy, or None.
        loop: int, updates in a call of the graph.
        temporary: bool, whether the run is deleted when it ends: no command can go on with it.
    """

    kind: str
    config: RunConfig
    strategy: str
    devices: tf.distribute.Strategy
    constraint: Constraint | None = None
    loop = 1
    temporary = False

    def batches(self) -> Iterable[tuple[int, int]]:
        """(rows, micro-batches) of the updates: what must divide among the replicas."""
        return [(self.config.batch, self.config.accumulate)]

    def build(self) -> Objective:
        """The program, built under the strategy's scope, from the seed or trained weights."""
        raise NotImplementedError

    def frozen(self) -> Sequence[str]:
        """Patterns of the weights that are left as they are (`training.freezing`); called after `build`."""
        return self.config.freeze or ()

    def description(self) -> Json:
        """What the result depends on beside the options, as json; called after `build`."""
        raise NotImplementedError

    def rows(self) -> DataPlaces:
        """Where the rows lie."""
        return DataPlaces()

    def model(self) -> ModelParts:
        """What the run's model directory is written of; called after `build`."""
        raise NotImplementedError

    def begin(self, run: Run) -> None:
        """Before the first update: make the directory of the run one whose checkpoints are models."""
        model_files.begin(run, self.model())

    def lines(self) -> Iterable[str]:
        """What is said before the first update; not asked for where the run is quiet."""
        return ()

    def feed(self, program: Objective, run: Run) -> Feed:
        """The data."""
        raise NotImplementedError

    def evaluation(self, program: Objective, run: Run) -> Best | HeldOut | None:
        """What evaluates (see `Trainer`), or None. Of a Best the run leaves the best weights, else the last ones."""
        return None

    def trained(self, evaluation: Best | HeldOut | None) -> None:
        """After the last update."""

    def finish(self, run: Run) -> None:
        """Write what the run leaves beside its model, whose weights are final now."""

    def result(self, run: Run) -> "keras.Model":
        """What the training function returns."""
        return self.left(run)

    def left(self, run: Run) -> Any:
        """What it returns of a run that was finished before; None within `unloaded`."""
        if _unloaded.get() and not self.temporary:
            return None
        with run.local() as folder:
            return load(folder)


def run(job: Job) -> "keras.Model":
    """Do a job, or what is left of it.

    Raises:
        InputError: before anything is written: what does not fit the devices, another run at `out`.
        NonFinite: loss or gradient is not finite.
    """
    children.computing()
    with job.devices.scope():
        for rows, accumulate in job.batches():
            check_batch(rows, accumulate, job.devices.num_replicas_in_sync)
        program = job.build()
        frozen = freezing.freeze(program.model, job.frozen())
    try:
        return _trained(job, program)
    finally:
        for variable in frozen:  # the caller's encoder may be trained again
            variable.trainable = True


def _trained(job: Job, program: Objective) -> Any:
    """What `run` returns: open the run of a built program and train it."""
    config, quiet = job.config, job.config.quiet  # what is built may settle its steps
    check_rules(config, program.model.trainable_variables)
    lock = RunLock(config.out if multiworker.is_chief(job.devices) else None)
    try:
        with job.devices.scope():
            opened = _open(job, program, lock)
        if opened.finished:
            say_finished(opened.directory, config.steps, quiet)
            return job.left(opened)
        first = f"{described(job.strategy)} {told(config.precision, job.strategy)}"
        for line in () if quiet else (first, *freezing.told(program.model), *job.lines()):
            progress.say(line)
        with contextlib.nullcontext() if job.temporary else opened.kept():
            return _go_on(job, program, opened)
    finally:
        lock.release()


def _go_on(job: Job, program: Objective, opened: Run) -> "keras.Model":
    """Train what an open run has left, and write its model."""
    try:
        feed, evaluation = job.feed(program, opened), job.evaluation(program, opened)
        trainer = Trainer(
            program,
            job.config,
            job.devices,
            opened,
            feed,
            evaluate=evaluation,
            loop=job.loop,
            constraint=job.constraint,
        )
        if isinstance(evaluation, Best):
            evaluation.weights = functools.partial(read_rows.weights, evaluation.model, trainer.core.rows.values())
        trainer.train()
    finally:
        opened.abandon()  # what has not taken the place of an older run by now
    if isinstance(evaluation, Best):
        evaluation.take(Path(opened.directory))
    else:
        take_average(trainer.core.optimizer)
    job.trained(evaluation)
    if trainer.chief:
        job.finish(opened)
        model_files.write(opened, job.model())
    multiworker.barrier(job.devices)
    return job.result(opened)


def _open(job: Job, program: Objective, lock: RunLock) -> Run:
    """The run at `out`, begun or gone on with; the other machines of several wait for the first."""
    config, chief = job.config, multiworker.is_chief(job.devices)
    description = config.to_json() | job.description()
    if job.constraint is not None:
        description["constraint"] = job.constraint.describe(program.model.encoder, config.updates)
    where = {"strategy": job.strategy, "data": job.rows()}
    if chief:
        opened = open_run(config.out, job.kind, description, overwrite=config.overwrite, quiet=config.quiet, **where)
        try:
            lock.take()  # of a folder that was not there before
            opened.lock = lock
            if not opened.finished:
                job.begin(opened)
        except BaseException:
            opened.abandon()
            raise
    multiworker.barrier(job.devices)
    if not chief:
        beside = newest(Path(os.path.realpath(config.out))) if config.overwrite and not is_remote(config.out) else None
        opened = open_run(beside or config.out, job.kind, description, quiet=True, **where)
        opened.place, opened.beside = Path(config.out) if beside else opened.place, beside
    return opened


def check_local(kind: str, out: str | os.PathLike) -> None:
    """Refuse a run at an address."""
    if is_remote(out):
        raise InputError(f"{kind} writes to a local folder, received {out}: copy the finished run to the address")
