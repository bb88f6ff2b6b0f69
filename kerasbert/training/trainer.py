"""The loop around the step core: resume, logs, evaluation, checkpoints, signals."""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names, values
from kerasbert.training.checkpoints import Checkpoints
from kerasbert.training.optimizers import check_optimizer, make_optimizer
from kerasbert.training.progress import Progress
from kerasbert.training.runs import Run
from kerasbert.training.schedules import make_schedule
from kerasbert.training.step import StepCore, local_shape

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
COMPILE_FROM = 2e9  # updates x weights; compiling takes about 5 s and saves 10 ns a weight and update
INTERRUPTED = 75  # EX_TEMPFAIL: run the same command again


class Interrupted(SystemExit):
    """SIGTERM came; the checkpoint is written and the process ends with status 75."""

    def __init__(self):
        super().__init__(INTERRUPTED)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train; all of it is in run.json.

    Args:
        steps: int, updates. batch: int, rows of the global batch. accumulate: int, micro-batches per update.
        learning_rate, warmup, weight_decay, clip: of the optimizer, its schedule and the global-norm clip.
        optimizer, schedule: names, see `training.optimizers` and `training.schedules`; with their options.
        precision: one of PRECISIONS. seed: int, of initialisation, shuffling, masking and dropout.
    """

    steps: int
    batch: int
    learning_rate: float
    accumulate: int = 1
    warmup: int = 0
    weight_decay: float = 0.01
    clip: float = 1.0
    precision: str = "float32"
    seed: int = 0
    optimizer: str = "adamw"
    optimizer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    schedule: str = "linear"
    schedule_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in ("steps", "batch", "accumulate"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InputError(f"{name} must be a whole number of at least 1. Received: {getattr(self, name)!r}")
        if self.precision not in PRECISIONS:
            raise InputError(f"no precision {self.precision!r}. Expected one of: {', '.join(PRECISIONS)}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed must be a whole number of at least 0. Received: {self.seed!r}")
        if not 0 <= self.warmup <= self.steps:
            raise InputError(f"warmup must be between 0 and steps ({self.steps}). Received: {self.warmup}")
        for name in ("learning_rate", "weight_decay", "clip"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name} must be a number of at least 0. Received: {getattr(self, name)!r}")
        check_optimizer(self.optimizer, self.optimizer_options)
        make_schedule(self.schedule, self.learning_rate, self.steps, self.warmup, self.schedule_options)

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return dataclasses.asdict(self)


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Layers made within it compute in that precision."""
    old = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(old)


class Trainer:
    """Trains a program for a number of updates; a killed run goes on from its last checkpoint with the same result.

    Args:
        program: Program, made under the strategy's scope. settings: Settings. strategy: tf.distribute.Strategy. run: Run.
        batches: start step -> iterator of (distributed) batches from that update on.
        evaluate: called after every `evaluate_every` updates and at the end with the step; returns metrics to log, and
            True where training should stop. Its state is saved in the checkpoints.
        save_every, log_every: int, updates. loop: int, updates per call of the graph (TPU).
    """

    def __init__(
        self,
        program: Any,
        settings: Settings,
        strategy: tf.distribute.Strategy,
        run: Run,
        batches: Callable[[int], Iterator[Any]],
        *,
        evaluate: Any = None,
        evaluate_every: int = 0,
        save_every: int = 1000,
        log_every: int = 10,
        loop: int = 1,
        quiet: bool = False,
    ):
        self.program, self.settings, self.strategy, self.run = program, settings, strategy, run
        self.batches, self.evaluate, self.evaluate_every = batches, evaluate, evaluate_every
        self.save_every, self.log_every, self.loop, self.quiet = save_every, log_every, loop, quiet
        with strategy.scope():
            optimizer = make_optimizer(settings)
        self.core = StepCore(
            program,
            optimizer,
            strategy,
            clip=settings.clip,
            accumulate=settings.accumulate,
            seed=settings.seed,
            loss_scaling=settings.precision == "mixed_float16",
            compile_update=settings.steps * program.model.count_params() > COMPILE_FROM,
        )
        self.checkpoints = Checkpoints(run.directory)
        self.stopped = False

    def train(self) -> None:
        """Make the updates that are left."""
        step, self.interrupted = self._restore(), False
        progress = Progress(self.settings.steps, step, self.quiet)
        writer = tf.summary.create_file_writer(str(self.run.directory / "tensorboard"))
        with _terminated(self), contextlib.closing(progress), contextlib.closing(writer):
            self._train(step, progress, writer)

    def _train(self, step: int, progress: Progress, writer: Any) -> None:
        steps, batches, mark = self.settings.steps, None, (time.monotonic(), 0)
        while step < steps and not self.stopped:
            batches = batches or self.batches(step)
            until = min(self._next(step, every) for every in (self.save_every, self.log_every, self.evaluate_every))
            count = min(self.loop, until - step)
            logs, tokens = self._updates(batches, count)
            step, mark = step + count, (mark[0], mark[1] + tokens * count)
            if step % self.log_every == 0 or step == steps:
                logs = {name: float(value) for name, value in logs.items()}
                self._check_finite(step, logs)
                now = time.monotonic()
                logs["tokens_per_second"], mark = mark[1] / max(now - mark[0], 1e-9), (now, 0)
                self._log(step, logs, writer)
                progress.update(step, logs)
            if self.evaluate and (step == steps or (self.evaluate_every and step % self.evaluate_every == 0)):
                found, self.stopped = self.evaluate(step)
                self._log(step, found, writer)
                progress.say(f"step {step}: " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))
                mark = (time.monotonic(), 0)
            if step % self.save_every == 0 or step == steps or self.stopped or self.interrupted:
                self._save(step)
            if self.interrupted and step < steps and not self.stopped:
                raise Interrupted
        if not batches and self.evaluate is None:
            progress.update(step, {})

    def _next(self, step: int, every: int) -> int:
        """The next multiple of `every` after `step`, or the end."""
        return min(self.settings.steps, (step // every + 1) * every if every else self.settings.steps)

    def _updates(self, batches: Iterator[Any], count: int) -> tuple[Mapping[str, Any], int]:
        """Logs of the last of `count` updates, and the tokens of one."""
        if count > 1:
            length = batches.element_spec["token_ids"].shape[-1]
            return self.core.loop(batches, tf.constant(count)), self.settings.batch * length
        batch = next(batches)
        return self.core.step(batch), self.settings.batch * local_shape(batch)[1]

    def _check_finite(self, step: int, logs: Mapping[str, float]) -> None:
        if not math.isfinite(logs["loss"]):
            raise InputError(
                f"the loss is {logs['loss']} at step {step} (learning rate {logs['learning_rate']:.3g}, gradient norm "
                f"{logs['gradient_norm']:.3g}): lower --learning-rate or raise --warmup; the last checkpoint is kept"
            )

    def _log(self, step: int, logs: Mapping[str, float], writer: Any) -> None:
        self.run.log({"step": step} | dict(logs))
        with writer.as_default(step):
            for name, value in logs.items():
                tf.summary.scalar(name, value)

    def _save(self, step: int) -> None:
        state = {"scale": None, "evaluation": getattr(self.evaluate, "state", None), "stopped": self.stopped}
        if self.core.scale is not None:
            state["scale"] = [float(self.core.scale), int(self.core.good_steps)]
        state["iterations"] = int(tf.convert_to_tensor(self.core.optimizer.iterations.value))
        slots = {f"{i:05d}": tf.convert_to_tensor(variable.value).numpy() for i, variable in self._slot_variables()}
        self.checkpoints.save(step, {"weights": values(self.program.model), "optimizer": slots}, state)

    def _slot_variables(self) -> list[tuple[int, Any]]:
        iterations = self.core.optimizer.iterations
        return [(i, v) for i, v in enumerate(self.core.optimizer.variables) if v is not iterations]

    def _restore(self) -> int:
        """Go to the newest checkpoint, if there is one; returns the number of updates made."""
        self.checkpoints.remove_unfinished()
        checkpoint = self.checkpoints.latest()
        if checkpoint is None:
            self.run.rewind(-1)
            return 0
        state = checkpoint.state
        with self.strategy.scope():
            assign(checkpoint.tensors("weights"), names(self.program.model))
            slots = checkpoint.tensors("optimizer")
            for i, variable in self._slot_variables():
                variable.assign(slots.read(f"{i:05d}"))
            self.core.optimizer.iterations.assign(state["iterations"])
            if state["scale"]:
                self.core.scale.assign(state["scale"][0])
                self.core.good_steps.assign(state["scale"][1])
        if self.evaluate is not None:
            self.evaluate.state = state["evaluation"]
        self.stopped = state["stopped"]
        self.run.rewind(checkpoint.step)
        return checkpoint.step


def assign(tensors: Safetensors, variables: Mapping[str, Any]) -> None:
    """Give every variable the tensor of its name."""
    for name, variable in variables.items():
        variable.assign(tensors.read(name))


@contextlib.contextmanager
def _terminated(trainer: Trainer) -> Iterator[None]:
    """On SIGTERM the trainer saves after the update at hand. Outside of the main thread signals are left alone."""

    def note(*_: Any) -> None:
        trainer.interrupted = True

    try:
        old = signal.signal(signal.SIGTERM, note)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
