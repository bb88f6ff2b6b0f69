"""The loop around the step core: resume, logs, evaluation, checkpoints, signals."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError, NonFinite
from kerasbert.inputs import Tensor
from kerasbert.layers.naming import names
from kerasbert.objectives.base import Objective
from kerasbert.storage import folders
from kerasbert.storage.json_view import Json
from kerasbert.training import flops, interruption, multiworker, nonfinite, read_rows, slots
from kerasbert.training.callbacks import Callbacks
from kerasbert.training.checkpoints import Checkpoint, Checkpoints
from kerasbert.training.config import RunConfig
from kerasbert.training.constraints import Constraint
from kerasbert.training.feed import Feed, Part
from kerasbert.training.optimizers import averaged, make_optimizer
from kerasbert.training.progress import Means, Meter, Progress
from kerasbert.training.runs import Run
from kerasbert.training.step import Compilation, StepCore, number

if TYPE_CHECKING:
    from kerasbert.training.best_weights import Best
    from kerasbert.training.held_out import HeldOut

# as the next, of `by_element`: MiniLM's GELU, .06 s a length, saves .035 s of an update of 32 x 28 tokens
ELEMENTS_FROM = 6e7
COMPILE_FROM = 2e9  # updates x weights; compiling takes about 5 s and saves 10 ns a weight and update


class Trainer:
    """Trains a program for a number of updates; a killed run goes on from its last checkpoint with the same result.

    Args:
        program: Objective, made under the strategy's scope.
        config: RunConfig, with the steps settled.
        strategy: tf.distribute.Strategy.
        run: Run.
        feed: Feed, the data.
        evaluate: called after every `evaluate_every` updates and at the end with the step; returns metrics to log, and
            True where training should stop. Its state is saved in the checkpoints.
        loop: int, updates per call of the graph (TPU).
        constraint: what the weights must satisfy, or None.
    """

    def __init__(
        self,
        program: Objective,
        config: RunConfig,
        strategy: tf.distribute.Strategy,
        run: Run,
        feed: Feed,
        *,
        evaluate: "Best | HeldOut | None" = None,
        loop: int = 1,
        constraint: Constraint | None = None,
    ) -> None:
        self.program, self.config, self.strategy, self.run, self.feed = program, config, strategy, run, feed
        self.evaluate, self.loop, self.constraint = evaluate, loop, constraint
        with strategy.scope():
            optimizer = make_optimizer(config)
            if constraint is not None:
                constraint.install(program.model, config.updates)
        self.core = StepCore(
            program,
            optimizer,
            strategy,
            clip=config.clip,
            accumulate=config.accumulate,
            seed=config.seed,
            loss_scaling=config.precision == "mixed_float16",
            compilation=_compilation(program, config, feed, evaluate),
        )
        with strategy.scope():
            program.begin(optimizer, config.updates)
        callbacks = getattr(config, "callbacks", ())
        self.callbacks = Callbacks(callbacks, program.model, optimizer, feed.epoch, config.updates)
        self.checkpoints = Checkpoints(run.directory, keep_every=config.keep_every)
        self.chief = multiworker.is_chief(strategy)
        self.stopped, self.skipped, self.saved, self.means = False, 0, -1, Means()
        self.interrupted: int | None = None  # the number of a signal that came
        self.alone_until = 0  # updates before this one are made one by one, to find the one that is not finite
        self.tracing = False

    def train(self) -> None:
        """Make the updates that are left.

        Raises:
            Interrupted, KeyboardInterrupt: SIGTERM or Ctrl-C came; everything up to the update at hand is in the newest
                checkpoint.
            NonFinite: loss or gradient is not finite; the weights before that update are kept.
        """
        if not self.core.optimizer.built:
            self.core.prepare(next(iter(self.feed.batches(0))))
        step = self.began = self._restore()
        self._note()
        self.progress = Progress(self.config.updates, step, self.config.quiet)
        if step and self.chief:
            self.progress.say(f"going on from step {step}")
        if self.chief and (line := self.run.grow(self.config, step)):
            self.progress.say(line)
        if self.stopped and step < self.config.updates:
            self.progress.say(f"stopped at update {step} for want of a better metric: more steps change nothing")
        if self.chief and (left := self.config.updates - step) > 0:
            saved = (*names(self.program.model).values(), *slots.variables(self.core.optimizer).values())
            self.checkpoints.check_room(saved, left, self.config.save_every)
        self._open_writer()
        self.meter = Meter(self.feed.parts, self.config.peak or flops.peak(self.strategy))
        with interruption.noted(self), contextlib.closing(self.progress):
            try:
                self.callbacks.begin(step)
                self._train(step)
            except BaseException:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    self.checkpoints.wait()
                raise
            finally:
                self.callbacks.end()
                self.writer.close()
            self.checkpoints.wait()
            self.run.settle()
            self.checkpoints.move(self.run.directory)
        self._note()

    def _open_writer(self) -> None:
        self.writer = tf.summary.create_file_writer(folders.join(self.run.directory, "tensorboard"))

    def _settle(self) -> None:
        """Take the place of an older run, with the first complete checkpoint; not while a trace is written."""
        self.checkpoints.wait()
        self.writer.close()
        self.run.settle()
        self.checkpoints.move(self.run.directory)
        self._open_writer()

    def _train(self, step: int) -> None:
        config, steps, part = self.config, self.config.updates, None
        batches: Iterator[Mapping[str, Tensor]] | None = None
        if self.loop > 1 and step == 0:
            self._save(step)  # what to go back to where an update within the first call is not finite
        if step == steps and self.evaluate is None:
            self.progress.update(step, {})
        while step < steps and not self.stopped:
            if self.interrupted:
                self._leave(step)
            if part is None or part is not self.feed.part(step):
                part, batches = self.feed.part(step), None
                self.core.set_accumulate(part.accumulate)
                self.meter.begin()
            batches = batches or self.feed.batches(step)
            if self.constraint is not None:
                with self.strategy.scope():
                    self.constraint.begin(step)
            count = min(1 if step < self.alone_until else self.loop, self._until(step, part) - step)
            self.callbacks.before_updates(step)
            logs = self._updates(batches, count, step)
            if logs is None:  # made again one by one
                step, batches = self._restore(), None
                continue
            step += count
            self.meter.add(part, count)
            self.means.add(logs, count)
            self.callbacks.after_updates(step, logs, count)
            if step % config.log_every == 0 or step == steps:
                self._tell(step)
            elif self.progress.due(step):
                self.progress.update(step, self.means.read() | self.meter.read(again=False), self.meter.left(step))
            if self.evaluate and (step == steps or (config.evaluate_every and step % config.evaluate_every == 0)):
                self._evaluate(self.evaluate, step)
            self.stopped = self.callbacks.after_epoch(step) or self.stopped
            self.checkpoints.check()
            due = any(every and step % every == 0 for every in (config.save_every, config.keep_every))
            if due or step == steps or self.stopped:
                self._save(step)

    def _leave(self, step: int) -> None:
        """End as the signal asks; what was done is saved."""
        if step > self.began:
            self._save(step)
        self.checkpoints.wait()
        self._note()
        interruption.leave(self.interrupted or 0)

    def _note(self) -> None:
        """What to say of this run from now on when it is interrupted."""
        if self.chief:
            interruption.saved = interruption.at(self.saved) if self.saved > 0 else interruption.NOTHING
        else:
            interruption.saved = "the same command goes on from what the first machine saved"

    def _until(self, step: int, part: Part) -> int:
        """The next update before which something other than an update happens."""
        config, steps = self.config, self.config.updates
        found = [steps, self.callbacks.until(step), part.until if step < part.until else steps]
        for every in (
            config.save_every,
            config.keep_every,
            config.log_every,
            config.evaluate_every * bool(self.evaluate),
        ):
            if every:
                found.append((step // every + 1) * every)
        if config.profile:
            found += [edge for edge in (config.profile[0], sum(config.profile)) if edge > step]
        if self.constraint is not None and (change := self.constraint.until(step)) is not None:
            found.append(change)
        return min(found)

    def _updates(self, batches: Iterator[Mapping[str, Tensor]], count: int, step: int) -> Mapping[str, Tensor] | None:
        """Logs of `count` updates, their means; None where one of several is not finite: they are undone."""
        with self._traced(step, count):
            if count > 1:
                logs = self.core.loop(batches, tf.constant(count))
            else:
                logs = self.core.step(next(batches))
        if self.core.closed:
            self.progress.say(f"each length of a batch is traced by itself, which takes seconds: {self.core.closed}")
            self.core.closed = ""
        if not self.core.nonfinite(logs):
            return logs
        if count > 1:
            self.progress.say(f"not finite within updates {step + 1} to {step + count}: making them again one by one")
            self.alone_until = step + count
            return None
        return self._nonfinite(step, {name: float(value) for name, value in logs.items()})

    def _nonfinite(self, step: int, logs: Mapping[str, float]) -> Mapping[str, float]:
        """No weight has changed. Write the dump; stop, or go on where updates may be left out."""
        self.checkpoints.wait()
        state: Json = {"iterations": self._iterations(), "checkpoint": max(0, self.saved)}
        if self.core.scale is not None:
            state["scale"] = number(self.core.scale)
        line = "another process writes the dump"
        if self.chief:
            if self.skipped >= self.config.skip_bad_steps:
                self.run.part()  # what it left is to be looked at; an older run keeps its place
            path, origins = nonfinite.dump(self.run, self.program, self.feed, step, logs, state)
            line = nonfinite.describe(step + 1, logs, path, origins)
        self.skipped += 1
        if self.skipped > self.config.skip_bad_steps:
            raise NonFinite(f"{line}. {nonfinite.ADVICE}")
        self.progress.say(f"warning: {line} (left out, {self.skipped} of {self.config.skip_bad_steps} allowed)")
        self._log(step + 1, {"skipped": self.skipped})
        return logs

    @contextlib.contextmanager
    def _traced(self, step: int, count: int) -> Iterator[None]:
        """The updates within are part of the profile that was asked for."""
        profile = self.config.profile or (-1, 0)
        inside = profile[0] <= step < sum(profile)
        if inside and (step == profile[0] or not self.tracing):
            tf.profiler.experimental.start(folders.join(self.run.directory, "tensorboard"))
            self.tracing = True
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1) if inside else contextlib.nullcontext():
            yield
        if inside and step + count >= min(sum(profile), self.config.updates):
            tf.profiler.experimental.stop()
            self.tracing = False

    def _tell(self, step: int) -> None:
        logs = self.means.read() | self.meter.read()
        self.means.reset()
        self._log(step, logs)
        self.progress.update(step, logs, self.meter.left(step))

    def _evaluate(self, evaluate: "Best | HeldOut", step: int) -> None:
        with averaged(self.core.optimizer):
            found, self.stopped = evaluate(step)
        self._log(step, found)
        self.callbacks.evaluated(found)
        self.progress.say(f"step {step}: " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))
        self.meter.begin()

    def _log(self, step: int, logs: Mapping[str, float]) -> None:
        if not self.chief:
            return
        self.run.log({"step": step} | dict(logs))
        with self.writer.as_default(step):
            for name, value in logs.items():
                tf.summary.scalar(name, value)

    def _save(self, step: int) -> None:
        """Begin to write a checkpoint of this moment."""
        if step == self.saved or not self.chief:
            return
        self.checkpoints.wait()  # before the copies: at most one set of them is in memory
        self.feed.check_read()
        state = {"scale": None, "evaluation": getattr(self.evaluate, "state", None), "stopped": self.stopped}
        if self.core.scale is not None:
            state["scale"] = [number(self.core.scale), int(number(self.core.good_steps))]
        state["iterations"] = self._iterations()
        state["skipped"], state["means"] = self.skipped, dict(self.means.state())
        state["data"] = self.feed.position(step)
        state["average"] = self._averages()
        state["others"] = read_rows.factors(self.program.model, self.core.rows.values())
        groups: dict[str, Mapping[str, np.ndarray]] = {"weights": self.core.weights()}
        groups["optimizer"] = slots.values(self.core.optimizer)
        if self.constraint is not None:
            groups["constraint"] = self.constraint.tensors()
        self.checkpoints.begin(step, groups, state)
        self.run.flush()
        self.saved = step
        if step and self.run.beside is not None and not self.tracing:
            self._settle()

    def _averages(self) -> dict[str, str] | None:
        """Weight -> the tensor of `optimizer` that holds its moving average, for whoever opens the checkpoint as a model."""
        optimizer = self.core.optimizer
        if not optimizer.use_ema:
            return None
        held = {id(variable): name for name, variable in slots.variables(optimizer).items()}
        weights = {id(variable): name for name, variable in names(self.program.model).items()}
        pairs = zip(optimizer._trainable_variables, optimizer._model_variables_moving_average)
        return {weights[id(variable)]: held[id(average)] for variable, average in pairs}

    def _iterations(self) -> int:
        """The optimizer's own count. `int` of the variable itself fails under MultiWorkerMirroredStrategy."""
        return int(tf.convert_to_tensor(self.core.optimizer.iterations.value))

    def _restore(self) -> int:
        """Go to the newest checkpoint, if there is one; returns the number of updates made."""
        self.checkpoints.wait()
        self.checkpoints.move(self.run.directory)
        if self.chief:
            self.checkpoints.remove_unfinished()
        checkpoint = self.checkpoints.latest()
        if self.chief:
            self.run.rewind(checkpoint.step if checkpoint else -1)
        if checkpoint is None:
            return 0
        try:
            self._take(checkpoint)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, tf.errors.OpError) as error:
            raise InputError(
                f"checkpoint {checkpoint.path} does not fit this run ({type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]:.200}): remove it to go on from the one before, or start afresh "
                "with --overwrite"
            ) from error
        return checkpoint.step

    def _take(self, checkpoint: Checkpoint) -> None:
        """Give weights, optimizer and counters the values of a checkpoint."""
        state, step = checkpoint.state, checkpoint.step
        if state["data"] != self.feed.position(step):
            raise InputError(
                f"checkpoint {checkpoint.path} reads its data at {state['data']}, this run at {self.feed.position(step)}: "
                "the phases or the data are others. Choose another --out or pass --overwrite"
            )
        with self.strategy.scope():
            read = self.core.rows.values()
            read_rows.assign(self.program.model, read, checkpoint.tensors("weights"), state["others"])
            slots.assign(self.core.optimizer, checkpoint.tensors("optimizer"))
            self.core.optimizer.iterations.assign(int(state["iterations"]))
            if self.constraint is not None:
                self.constraint.restore(checkpoint.tensors("constraint"))
            if state["scale"]:
                self.core.scale.assign(float(state["scale"][0]))
                self.core.good_steps.assign(int(state["scale"][1]))
        if self.evaluate is not None:
            self.evaluate.state = state["evaluation"]
        self.stopped, self.skipped, self.saved = bool(state["stopped"]), int(state["skipped"]), step
        self.means.reset(state["means"])


def _compilation(program: Objective, config: RunConfig, feed: Feed, evaluate: "Best | HeldOut | None") -> Compilation:
    """What of this run's updates is worth compiling."""
    weights, encoder = program.model.count_params(), getattr(program.model, "encoder", None)
    return Compilation(
        update=config.updates * weights > COMPILE_FROM,
        fused=fuses(config, weights, feed.shapes),
        elements=config.updates * weights > ELEMENTS_FROM * feed.shapes,
        open_shapes=feed.open_shapes() if getattr(encoder, "open_lengths", False) else (),
        token_ids=functools.partial(read_rows.ids, program, config, feed, evaluate),
    )


def fuses(config: RunConfig, weights: int, shapes: int) -> bool:
    """Whether a CPU compiles what lies between the matrix products, for each shape of a batch.

    In float32 the products take nearly all of the time: with several shapes nothing was gained.
    """
    worth = config.updates * weights > COMPILE_FROM * shapes
    return worth and (shapes == 1 or config.precision == "mixed_bfloat16")


def assign(tensors: Safetensors, variables: Mapping[str, keras.Variable]) -> None:
    """Give every variable the tensor of its name."""
    for name, variable in variables.items():
        variable.assign(tensors.read(name))
