"""The step core, shared by CPU, GPU and TPU, pretraining and fine-tuning.

counts -> all-reduce -> gradients of sum(scale * loss / count) over micro-batches -> all-reduce -> global clip -> update.
Keras' own loop divides by the replica's count, clips before the all-reduce and repeats dropout masks on every replica;
here one replica equals N replicas equals any accumulation.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.layers.backend import fusion
from kerasbert.layers.backend_fused import silence_compiler
from kerasbert.objectives.base import Objective
from kerasbert.training import read_rows, whole_batch
from kerasbert.training.batch_shapes import local_shapes, opened
from kerasbert.training.optimizers import AdamW

SUM = tf.distribute.ReduceOp.SUM
SMALL = 2**18  # elements of an array: compiling what is done to fewer takes longer than 100,000 updates gain by it
ABSENT = float("nan")  # what a loss that nothing counted for logs: `progress.Means` leaves it out
WHOLE = ("loss", "gradient_norm", "learning_rate")  # of every update; a nan there is one


@dataclasses.dataclass(frozen=True)
class Compilation:
    """What of an update is compiled, for which shapes it is traced, and of which rows it is.

    Args:
        update: bool, compile an optimizer of many operations on one device: half of its time, seconds to compile.
        fused: bool, on CPU compile what lies between the matrix products (layers.backend.fused).
        elements: bool, where a graph of open lengths is made, compile in it what works element by element.
        open_shapes: of global batches (`Feed.open_shapes`): on a CPU, with nothing fused, one graph takes all batches of these
            names, for any replicas and micro-batches alike.
        token_ids: gives int [r], all that are read (`read_rows.ids`): on a CPU AdamW updates only these rows of word vectors.
    """

    update: bool = False
    fused: bool = False
    elements: bool = False
    open_shapes: Sequence[Mapping[str, tuple[int | None, ...]]] = ()
    token_ids: Callable[[], np.ndarray | None] = lambda: None


class StepCore:
    """One optimizer update on one global batch.

    Args:
        program: Objective, made under `strategy.scope()`.
        optimizer: Keras optimizer, made there too.
        strategy: tf.distribute.Strategy.
        clip: float, largest global norm of the gradient; 0 for none.
        accumulate: int, micro-batches per update; divides the rows of a replica.
        seed: int, of dropout.
        loss_scaling: bool, dynamic loss scaling for float16 (Micikevicius et al., 2018, section 3.2).
        compilation: Compilation; by default nothing is compiled.
    """

    def __init__(
        self,
        program: Objective,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        *,
        clip: float = 1.0,
        accumulate: int = 1,
        seed: int = 0,
        loss_scaling: bool = False,
        compilation: Compilation = Compilation(),
    ) -> None:
        self.program, self.optimizer, self.strategy = program, optimizer, strategy
        self.clip, self.accumulate, self.seed = clip, accumulate, seed
        self.fused = compilation.fused and on_cpu(strategy)
        # The gradients are summed here, before the clip; a second sum would multiply them by the replica count.
        optimizer._all_reduce_sum_gradients = list
        self.variables_of_model = program.model.trainable_variables
        self.variables = [variable.value for variable in self.variables_of_model]
        traced = on_cpu(strategy) and not tf.config.functions_run_eagerly()
        ids = compilation.token_ids() if traced and type(optimizer).update_step is AdamW.update_step else None
        with strategy.scope():
            self.scale: Tensor = tf.Variable(2.0**15, trainable=False) if loss_scaling else None
            self.good_steps: Tensor = tf.Variable(0, trainable=False) if loss_scaling else None
            self.rows = read_rows.found(self.variables_of_model, ids)
        plain = traced and not self.fused
        self.open_shapes, self.closed = compilation.open_shapes if plain else (), ""  # why they are not taken
        self.elements = compilation.elements and bool(self.open_shapes)
        # One graph per shape of a batch for the gradients, or one of open lengths; one in all for the optimizer
        self.backward: dict[tuple, Callable] = {}
        alone = strategy.num_replicas_in_sync == 1 and not loss_scaling and not getattr(optimizer, "one_kernel", False)
        # partials: TensorFlow counts traces by the code of a function and would warn of too many, of several runs too
        compiled = alone and compilation.update
        if compiled or self.fused or self.elements:
            silence_compiler()
        # by itself a product with 1 is a pass over all gradients; in a compiled program it costs nothing
        self.clips_first = on_cpu(strategy) and not compiled
        self.clipped = tf.function(functools.partial(self._clipped), autograph=False)
        update = functools.partial(self._update, clip=not self.clips_first)
        self.update = tf.function(update, autograph=False, jit_compile=compiled or None)
        self.loop = tf.function(functools.partial(self._loop), autograph=False)
        if not self.rows:
            self._build()

    def prepare(self, batch: Mapping[str, Tensor]) -> None:
        """Make the optimizer's variables; where `rows` are known behind a trace, which shows what else uses their table."""
        if not self.optimizer.built:
            self.optimizer.settle(self.variables_of_model)
            self._graph(batch).get_concrete_function(batch)
            self.optimizer.rows = self.rows
            self._build()

    def _build(self) -> None:
        with self.strategy.scope():
            self.optimizer.build(self.variables_of_model)

    def weights(self) -> dict[str, np.ndarray]:
        """Weight name -> a copy of its value, float32."""
        return read_rows.weights(self.program.model, self.rows.values())

    def step(self, batch: Mapping[str, Tensor]) -> dict[str, tf.Tensor]:
        """One update on a (distributed) batch -> log name -> float32 scalar.

        Where loss or gradient is not finite no weight changes; see `nonfinite`.
        """
        self.prepare(batch)
        gradients, logs = self._graph(batch)(batch)
        if self.scale is not None or finite(logs):  # loss scaling leaves an update out by itself
            norm = logs["gradient_norm"]
            if self.clips_first and self.clip and number(norm) > self.clip:
                gradients = self.clipped(gradients, norm)
            self.update(gradients, norm)
        return logs

    def _graph(self, batch: Mapping[str, Tensor]) -> Callable:
        """The function that gives the gradients of such a batch: of open lengths where it can be traced so."""
        shapes = next((each for each in self.open_shapes if each.keys() == batch.keys()), None)
        if shapes is not None:
            specs = opened(batch, shapes)
            key: tuple = tuple(specs.items())
            if key not in self.backward:
                function = tf.function(functools.partial(self._backward), [specs], autograph=False)
                try:
                    function.get_concrete_function()
                except Exception as error:  # whatever a layer raises that must know its length: below it knows it
                    self.open_shapes, self.closed = (), f"{type(error).__name__}: {str(error).strip()[:200]}"
                    return self._graph(batch)
                self.backward[key] = function
            return self.backward[key]
        key = local_shapes(batch)  # batches of several tasks differ in their names
        if key not in self.backward:
            self.backward[key] = tf.function(functools.partial(self._backward), autograph=False)
        return self.backward[key]

    def nonfinite(self, logs: Mapping[str, Tensor]) -> bool:
        """Whether loss or gradient is not finite.

        A float16 overflow that loss scaling can still recover from does not count.
        """
        if finite(logs):
            return False
        return self.scale is None or not math.isfinite(float(logs["loss"])) or number(self.scale) <= 1.0

    def set_accumulate(self, accumulate: int) -> None:
        """From now on so many micro-batches per update."""
        if accumulate != self.accumulate:
            self.accumulate = accumulate
            self.backward.clear()
            self.loop = tf.function(functools.partial(self._loop), autograph=False)

    def _loop(self, iterator: Iterator, steps: Tensor) -> dict[str, Tensor]:
        """`steps` updates in one call; the means of their logs over the updates that have them, and the last learning rate."""

        def one(
            total: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None,
        ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            logs = self.update_once(next(iterator))
            present = {name: tf.cast(name in WHOLE or ~tf.math.is_nan(x), x.dtype) for name, x in logs.items()}
            sums = {name: x if name in WHOLE else tf.where(present[name] > 0, x, 0.0) for name, x in logs.items()}
            if total is not None:
                sums, present = tf.nest.map_structure(tf.add, total, (sums, present))
            return sums | {"learning_rate": logs["learning_rate"]}, present

        sums, counts = tf.while_loop(
            lambda done, _: done < steps, lambda done, total: (done + 1, one(total)), (1, one())
        )[1]
        means = {name: value / counts[name] for name, value in sums.items()}  # 0 / 0 is ABSENT
        return means | {"learning_rate": sums["learning_rate"]}

    def update_once(self, batch: Mapping[str, Tensor]) -> dict[str, tf.Tensor]:
        """Gradients and update in the graph that is being traced."""
        gradients, logs = self._backward(batch)
        self._update(gradients, logs["gradient_norm"])
        return logs

    def _backward(self, batch: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Each replica's gradients, and the logs of the global batch."""
        gradients, logs = self.strategy.run(self._gradients, args=(batch,))
        logs = {name: self.strategy.experimental_local_results(value)[0] for name, value in logs.items()}
        return gradients, logs | {"learning_rate": tf.convert_to_tensor(self.optimizer.learning_rate)}

    def _clipped(self, gradients: Sequence[Tensor], norm: Tensor) -> list[Tensor]:
        """Each replica's gradients, of the largest norm that is allowed."""
        return self.strategy.run(self._scaled, args=(gradients, norm))

    def _update(self, gradients: Sequence[Tensor], norm: Tensor, clip: bool = True) -> None:
        def apply() -> Tensor:
            self.strategy.run(functools.partial(self._apply, clip=clip), args=(gradients, norm))
            self.program.updated(self.strategy, tf.convert_to_tensor(self.optimizer.iterations.value))
            return tf.no_op()

        if self.scale is None:
            apply()
        else:
            # here, in the cross-replica context: an update inside a replica's cond is a merge_call, which fails
            finite = tf.math.is_finite(norm)
            tf.cond(finite, apply, tf.no_op)
            self._rescale(finite)

    def _apply(self, gradients: Sequence[Tensor], norm: Tensor, clip: bool) -> None:
        """In a replica: the global clip and the optimizer's update."""
        gradients = self._scaled(gradients, norm) if clip and self.clip else gradients
        self.optimizer.apply(gradients, self.variables_of_model)

    def _scaled(self, gradients: Sequence[Tensor], norm: Tensor) -> list[Tensor]:
        scale = self.clip / tf.maximum(norm, self.clip)
        return [gradient * scale for gradient in gradients]

    def _rescale(self, finite: Tensor) -> None:
        """Halve after an overflow, double after 2,000 good steps."""
        good = tf.where(finite, self.good_steps + 1, 0)
        grow = good >= 2000
        scale = tf.where(finite, tf.where(grow, self.scale * 2.0, self.scale), self.scale / 2.0)
        self.scale.assign(tf.clip_by_value(scale, 1.0, 2.0**24))
        self.good_steps.assign(tf.where(grow, 0, good))

    def _gradients(self, batch: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """In a replica: the gradients of the global batch, and logs."""
        counts = self._sum(self.program.counts(batch))
        parts = self.strategy.num_replicas_in_sync * self.accumulate
        if parts > 1 and self.program.gathered(batch):
            gradients, sums = whole_batch.gradients(self, batch, counts)
        else:
            gradients, sums = self._accumulated(batch, counts)
        gradients = self._sum(gradients)
        if self.scale is not None:
            gradients = [gradient / self.scale for gradient in gradients]
        if hasattr(self.optimizer, "begun"):
            gradients = self.optimizer.begun(gradients)
        norm = tf.linalg.global_norm(gradients)
        sums = self._sum(sums)
        logs = {name: mean(value, counts[name.partition("/")[0]]) for name, value in sums.items()}
        logs["loss"] = tf.add_n([scale * logs[name] for name, scale in self.program.scales.items()])
        logs |= {name: tf.where(counts[name.partition("/")[0]] > 0, logs[name], ABSENT) for name in sums}
        logs["gradient_norm"] = norm
        return gradients, logs

    def _sum(self, tensors: Any) -> Any:
        if self.strategy.num_replicas_in_sync == 1:
            return tensors
        flat = tf.nest.flatten(tensors)
        return tf.nest.pack_sequence_as(tensors, tf.distribute.get_replica_context().all_reduce(SUM, flat))

    def _accumulated(
        self, batch: Mapping[str, Tensor], counts: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Sums of gradients and of losses over the replica's micro-batches."""
        if self.accumulate == 1:
            return self._micro(batch, counts)
        micros = self.parted(batch)

        def micro(index: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
            return self._micro({name: x[index] for name, x in micros.items()}, counts)

        def body(index: Tensor, *total: Any) -> tuple:
            return index + 1, *tf.nest.map_structure(tf.add, total, micro(index))

        # the first outside of the loop: it tells the names of the sums
        loop = tf.while_loop(lambda index, *_: index < self.accumulate, body, (1, *micro(0)), parallel_iterations=1)
        return loop[1:]

    def parted(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The replica's micro-batches: name -> [micro-batches, rows, ...]."""
        count = self.accumulate
        sizes = {name: [tf.shape(x)[i] if n is None else n for i, n in enumerate(x.shape)] for name, x in batch.items()}
        return {name: tf.reshape(x, (count, x.shape[0] // count, *sizes[name][1:])) for name, x in batch.items()}

    @contextlib.contextmanager
    def scope(self, rows: Tensor) -> Iterator[None]:
        """Where the losses of these rows are computed: with the update's random numbers, fused where that is asked for."""
        words = random.key(self.seed, "dropout", tf.cast(self.optimizer.iterations.value, tf.int32))
        with fusion(self.fused, SMALL, self.elements), random.scope(words, rows):
            yield

    def weighed(self, sums: Mapping[str, Tensor], counts: Mapping[str, Tensor]) -> Tensor:
        """What is differentiated: the sum of scale * loss / count, times the loss scale."""
        loss = tf.add_n([scale * mean(sums[name], counts[name]) for name, scale in self.program.scales.items()])
        return loss if self.scale is None else loss * self.scale

    def dense(self, gradients: Iterable[Tensor]) -> list[Tensor]:
        """Gradients of the variables as float32 tensors, those of a table of word vectors of its `rows`."""
        return [self._dense(i, gradient) for i, gradient in enumerate(gradients)]

    def shapes(self) -> list[tuple[int, ...]]:
        """Those of `dense`."""
        return [self.rows[i].shape if i in self.rows else tuple(x.shape) for i, x in enumerate(self.variables)]

    def _dense(self, number: int, gradient: Tensor) -> Tensor:
        if number in self.rows:
            if isinstance(gradient, tf.IndexedSlices):
                return self.rows[number].gradient(gradient)
            if self.optimizer.built:
                raise ValueError(
                    f"{self.variables_of_model[number].path} is used in another way than by the first batch"
                )
            del self.rows[number]
        return tf.cast(tf.convert_to_tensor(gradient), tf.float32)

    def _micro(
        self, batch: Mapping[str, Tensor], counts: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Gradients (dense, float32) of sum(scale * loss / count), and the sums, of one micro-batch."""

        def differentiate(
            batch: Mapping[str, Tensor], watched: Sequence[Tensor] = ()
        ) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
            with self.scope(batch["row"]), tf.GradientTape() as tape:
                tape.watch(watched)
                sums = self.program.losses(batch)
                loss = self.weighed(sums, counts)
            every = [*self.variables, *watched]
            gradients = self.dense(tape.gradient(loss, every, unconnected_gradients=tf.UnconnectedGradients.ZERO))
            return gradients[: len(self.variables)], gradients[len(self.variables) :], sums

        with self.scope(batch["row"]):
            batch = self.program.perturbed(batch)
        return self.program.passes(batch, differentiate)


def on_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Whether every replica is a CPU (the default strategy is used on machines without anything else)."""
    try:
        return all(":CPU:" in device.upper() for device in strategy.extended.worker_devices)
    except RuntimeError:
        return True


def mean(total: Tensor, count: Tensor) -> Tensor:
    """A sum over what it is of; of nothing the sum itself. Weights of rows may sum to any number above 0."""
    return total / tf.where(count > 0, count, 1.0)


def number(variable: Tensor) -> float:
    """The value of a variable; `float` of one that replicas mirror fails."""
    return float(tf.convert_to_tensor(variable))


def finite(logs: Mapping[str, Tensor]) -> bool:
    """Whether loss and gradient norm are numbers."""
    return math.isfinite(float(logs["loss"]) + float(logs["gradient_norm"]))


def check_batch(batch: int, accumulate: int, replicas: int) -> None:
    """Refuse a global batch that replicas and micro-batches cannot divide."""
    if batch % (replicas * accumulate):
        raise InputError(
            f"batch {batch} is not a multiple of {replicas} replica(s) x {accumulate} micro-batch(es): "
            "change --batch or --accumulate"
        )


def distribute(batch: Mapping[str, Tensor], strategy: tf.distribute.Strategy) -> Tensor:
    """A global batch of arrays [B, ...] -> what `StepCore.step` takes: replica i gets the i-th part of the rows."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return {name: tf.convert_to_tensor(value) for name, value in batch.items()}

    def part(context: Any) -> dict[str, Tensor]:
        index = context.replica_id_in_sync_group
        return {
            name: tf.convert_to_tensor(value[len(value) * index // replicas : len(value) * (index + 1) // replicas])
            for name, value in batch.items()
        }

    return strategy.experimental_distribute_values_from_function(part)
