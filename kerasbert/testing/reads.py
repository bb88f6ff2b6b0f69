"""Which readings of a batch go into the network and which are targets alone: seen in the graph of an objective's losses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import optree
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives.base import Objective

Role = tuple[str, bool | None]  # a reading's name, and whether the network reads it; None: no loss depends on it


class Reads(Mapping[str, tf.Tensor]):
    """A batch that numbers its readings.

    Args:
        batch: name -> array.
    """

    def __init__(self, batch: Mapping[str, object]) -> None:
        self.batch = batch
        self.taken: list[tuple[str, tf.Tensor]] = []  # name and tensor of each reading

    def __getitem__(self, name: str) -> tf.Tensor:
        if name not in self.batch:
            raise KeyError(name)
        value = tf.identity(self.value(name, len(self.taken)))
        self.taken.append((name, value))
        return value

    def value(self, name: str, number: int) -> tf.Tensor:
        """What the reading of that number gets."""
        return tf.convert_to_tensor(self.batch[name])

    def __contains__(self, name: object) -> bool:
        return name in self.batch

    def __iter__(self) -> Iterator[str]:
        return iter(self.batch)

    def __len__(self) -> int:
        return len(self.batch)

    def __or__(self, other: Mapping[str, object]) -> dict[str, Tensor]:
        return dict(self) | dict(other)

    def __ror__(self, other: Mapping[str, object]) -> dict[str, Tensor]:
        return dict(other) | dict(self)

    @staticmethod
    def roles(program: Objective, batch: Mapping[str, object]) -> list[Role]:
        """For each reading of `losses`, in order: its name, and whether it meets a weight: the network reads it.

        None for a reading that no loss depends on.
        """
        reads = Reads(batch)

        def losses() -> dict[str, tf.Tensor]:
            with random.scope(tf.constant([0, 0], tf.uint32), tf.convert_to_tensor(batch["row"])):
                return program.losses(reads, training=True)

        traced = tf.function(losses, autograph=False).get_concrete_function()
        graph, taken = _Graph(traced.graph, traced.outputs), [tensor.name for _, tensor in reads.taken]
        variables = [inner.name for _, inner in traced.graph.captures if inner.dtype == tf.resource]
        weights = graph.reached(variables) - graph.reached(taken)
        return [
            (name, graph.meets(tensor, weights) if graph.needs(tensor) else None)
            for (name, _), tensor in zip(reads.taken, taken, strict=True)
        ]

    @staticmethod
    def counted(program: Objective, batch: Mapping[str, object]) -> set[str]:
        """Names of what `counts` reads."""
        reads = Reads(batch)
        program.counts(reads)
        return {name for name, _ in reads.taken}


class Split(Reads):
    """A batch whose inputs are those of one batch and whose targets are those of another.

    Args:
        inputs, targets: name -> array.
        roles: as `Reads.roles` gives them.
    """

    def __init__(self, inputs: Mapping[str, object], targets: Mapping[str, object], roles: Sequence[Role]) -> None:
        super().__init__(inputs)
        self.targets, self.told = targets, roles

    def value(self, name: str, number: int) -> tf.Tensor:
        """Of the inputs where the network reads it."""
        known, network = self.told[number]
        assert known == name, (
            f"losses read {name} where they read {known} before: they must not go by what a batch holds"
        )
        return tf.convert_to_tensor((self.targets if network is False else self.batch)[name])


def _children(reads: Any) -> tuple[tuple, tuple, tuple]:
    """What Keras' layers take a mapping apart into."""
    return tuple(reads[name] for name in reads), tuple(reads), tuple(reads)


def _joined(names: Any, values: Iterable[tf.Tensor]) -> dict[str, tf.Tensor]:
    return dict(zip(names, values, strict=True))


for _class in (Reads, Split):
    optree.register_pytree_node(_class, _children, _joined, namespace="keras")


class _Graph:
    """The operations that some tensors need, in the order of their making, by the names of their tensors."""

    def __init__(self, graph: tf.Graph, needed: Iterable[tf.Tensor]) -> None:
        found, names = [], {tensor.name for tensor in needed}
        for op in reversed(graph.get_operations()):
            outputs = [tensor.name for tensor in op.outputs]
            if not names.isdisjoint(outputs):
                inputs = [tensor.name for tensor in op.inputs]
                names |= {*inputs}
                found.append((op.type, inputs, outputs))
        self.operations = found[::-1]

    def reached(self, names: Iterable[str]) -> set[str]:
        """Tensors that depend on some, themselves among them."""
        reached = set(names)
        for kind, inputs, outputs in self.operations:
            if kind == "IdentityN":  # of a custom gradient: each output is one of the inputs
                reached |= {out for into, out in zip(inputs, outputs, strict=True) if into in reached}
            elif not reached.isdisjoint(inputs):
                reached |= {*outputs}
        return reached

    def meets(self, name: str, weights: set[str]) -> bool:
        """Whether an operation takes a tensor, or what depends on it, together with something of the weights alone."""
        reached = self.reached([name])
        return any(
            not weights.isdisjoint(inputs) and not reached.isdisjoint(inputs)
            for kind, inputs, _ in self.operations
            if kind != "IdentityN"
        )

    def needs(self, name: str) -> bool:
        """Whether one of the operations takes a tensor."""
        return any(name in inputs for _, inputs, _ in self.operations)
