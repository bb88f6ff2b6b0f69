"""Gradients of a loss that compares all rows of the global batch, whatever replicas and micro-batches read them.

GradCache (Gao et al., 2021, section 3.2): read all micro-batches and keep a vector a row; gather the vectors of all replicas; the
gradient of the loss by each vector; read each micro-batch once more and go back from its vectors' gradients. Random numbers
are of the row, so that both readings have the same dropout. Memory is that of one micro-batch, and of the comparison.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from kerasbert.inputs import Tensor

if TYPE_CHECKING:
    from kerasbert.training.step import StepCore

ZERO = tf.UnconnectedGradients.ZERO


def gradients(
    core: "StepCore", batch: Mapping[str, Tensor], counts: Mapping[str, Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """In a replica: its part of the gradients (dense, float32), and its share of the sums of losses.

    Args:
        core: whose program names what `gathered` says are compared. batch: of the replica. counts: of the global batch.
    """
    if core.accumulate == 1:
        with core.scope(batch["row"]), tf.GradientTape() as tape:
            vectors = core.program.vectors(batch)
        by_vectors, sums = _compared(core, vectors, batch, counts)
        found = tape.gradient(vectors, core.variables, by_vectors, unconnected_gradients=ZERO)
        return core.dense(found), sums
    micros = core.parted(batch)
    by_vectors, sums = _compared(core, _read(core, micros), batch, counts)
    by_vectors = tf.reshape(by_vectors, tf.concat([(core.accumulate, -1), tf.shape(by_vectors)[1:]], 0))

    def micro(index: Tensor) -> list[Tensor]:
        part = {name: x[index] for name, x in micros.items()}
        with core.scope(part["row"]), tf.GradientTape() as tape:
            vectors = core.program.vectors(part)
        return core.dense(tape.gradient(vectors, core.variables, by_vectors[index], unconnected_gradients=ZERO))

    def body(index: Tensor, *total: Any) -> tuple:
        return index + 1, *tf.nest.map_structure(tf.add, total, tuple(micro(index)))

    # from the first on: outside of the loop its reading would not wait for the comparison, and lie in memory beside the others
    none = [tf.zeros(shape) for shape in core.shapes()]
    loop = tf.while_loop(lambda index, *_: index < core.accumulate, body, (0, *none), parallel_iterations=1)
    return list(loop[1:]), sums


def _read(core: "StepCore", micros: Mapping[str, Tensor]) -> Tensor:
    """What the program compares, of all rows of the replica: [rows, H], or [rows, S, D] of tokens."""

    def read(index: Tensor) -> Tensor:
        part = {name: x[index] for name, x in micros.items()}
        with core.scope(part["row"]):
            return core.program.vectors(part)

    first = read(0)
    every = tf.TensorArray(first.dtype, core.accumulate, element_shape=first.shape).write(0, first)

    def body(index: Tensor, every: tf.TensorArray) -> tuple[Tensor, tf.TensorArray]:
        return index + 1, every.write(index, read(index))

    every = tf.while_loop(lambda index, _: index < core.accumulate, body, (1, every), parallel_iterations=1)[1]
    return tf.ensure_shape(every.concat(), (core.accumulate * first.shape[0], *first.shape[1:]))


def _compared(
    core: "StepCore", vectors: Tensor, batch: Mapping[str, Tensor], counts: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Of the replica's vectors: the gradient of the global batch's loss by each, and a replica's share of its sums."""
    replicas = core.strategy.num_replicas_in_sync
    every, targets = vectors, {name: batch[name] for name in core.program.gathered(batch)}
    if replicas > 1:
        every, targets = tf.distribute.get_replica_context().all_gather((vectors, targets), axis=0)
    with tf.GradientTape() as tape:
        tape.watch(every)
        sums = core.program.losses_of(every, targets)
        loss = core.weighed(sums, counts)
    found = tape.gradient(loss, every, unconnected_gradients=ZERO)
    if replicas > 1:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group * vectors.shape[0]
        found = tf.slice(found, (first, *[0] * (vectors.shape.rank - 1)), tf.shape(vectors))
    return found, {name: value / replicas for name, value in sums.items()}
