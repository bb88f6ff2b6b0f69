"""Fine-tuning that asks for the same answer nearby: SMART, FreeLB, virtual adversarial training, R-Drop.

What is added to the word embeddings stands in the batch, as `CHANGE`, and the random numbers are those of dropout, so that one
replica = N replicas = any accumulation and a killed run goes on as if it had not been killed. Each row is changed by itself:
a norm is of the row's real tokens, as the papers' codes have it.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.layers.embeddings import Table, adding
from kerasbert.layers.encoder import Encoder
from kerasbert.tasks.model import TaskObjective
from kerasbert.tasks.task import Task
from kerasbert.training.adversarial import FreeLB, RDrop, Smart, Vat, Way

CHANGE = "change"  # in a batch: what is added to the word embeddings, float32 [B, S, E]


class Nearby(TaskObjective):
    """A task's losses, and others of how far answers are from each other.

    Attributes:
        penalty: name of the loss that weighs `way.weight`.
    """

    penalty: ClassVar[str] = ""

    def __init__(self, encoder: Encoder, task: Task, way: Way) -> None:
        super().__init__(encoder, task)
        self.way: Any = way  # of a class of its own in each
        self.scales = {**self.scales, **self.penalties()}
        if not self.kind.taught:
            raise InputError(f"adversarial is for answers of labels or numbers, received a {task.kind}: leave it out")

    def penalties(self) -> dict[str, float]:
        """Names of the losses beside the task's, and their scales."""
        return {self.penalty: self.way.weight}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return super().counts(batch) | dict.fromkeys(self.penalties(), ops.sum(batch["label_weight"]))

    def apart(self, batch: Mapping[str, Tensor], one: Tensor, other: Tensor, both: bool = True) -> Tensor:
        """How far two passes' logits are from each other, the sum over the batch: KL(one || other) and, with `both`, the other
        way round; of answers that are numbers the squared difference.
        """
        one, other = (self.kind.compared(self.model.declaration, logits, batch) for logits in (one, other))
        weights = batch["label_weight"]
        if "soft" not in self.kind.taught:
            values = ops.sum(ops.square(one - other), axis=-1)
        else:
            logs, others = ops.log_softmax(one, axis=-1), ops.log_softmax(other, axis=-1)
            values = ops.sum((ops.exp(logs) - (ops.exp(others) if both else 0.0)) * (logs - others), axis=-1)
        # several answers of a row, such as its labels, count by their mean
        values = ops.mean(values, axis=tuple(range(len(weights.shape), len(values.shape))))
        return ops.sum(values * weights)


class Perturbed(Nearby):
    """One whose word embeddings are changed.

    Raises:
        InputError: an encoder without word embeddings of its own.
    """

    def __init__(self, encoder: Encoder, task: Task, way: Way) -> None:
        super().__init__(encoder, task, way)
        words = getattr(getattr(encoder, "embeddings", None), "tokens", None)
        if not isinstance(words, Table):
            raise InputError(f"adversarial changes word embeddings, and {type(encoder).__name__} has none: take r_drop")
        self.words = words

    def read(self, batch: Mapping[str, Tensor], training: bool = True) -> tuple[dict[str, Tensor], Tensor]:
        with adding(self.words, batch.get(CHANGE)):
            return super().read(batch, training)

    def real(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Which tokens are no padding: float32 [B, S, 1]."""
        ids = batch["token_ids"]
        mask = ops.cast(batch["padding_mask"], "float32") if "padding_mask" in batch else ops.ones(ids.shape)
        return ops.expand_dims(mask, -1)

    def drawn(self, batch: Mapping[str, Tensor], draw: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Tensor:
        """Random numbers for the real tokens' embeddings, by the rows' keys: float32 [B, S, E]."""
        rows, length = batch["token_ids"].shape
        return draw(random.rows_key("adversarial", rows), (length, self.words.width)) * self.real(batch)

    def slope(self, batch: Mapping[str, Tensor], change: Tensor, clean: Tensor, both: bool) -> Tensor:
        """The gradient by the change of how far its answers are from the clean ones."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(change)
            far = self.apart(batch, clean, self.read({**batch, CHANGE: change})[1], both)
        return tape.gradient(far, change, unconnected_gradients=tf.UnconnectedGradients.ZERO) * self.real(batch)


class SmartObjective(Perturbed):
    """SMART (Jiang et al., 2020): the answers of the worst small change, and those of the weights' recent mean, are near.

    The distance is the symmetric KL divergence, the squared difference of numbers (section 3.1). Every pass drops other
    numbers out, as in the authors' code; the mean's answers are without dropout. Differs from that code and follows
    algorithm 1: the change is projected, its gradient is divided by the largest of the row, and both answers have a gradient.
    """

    penalty = "smoothness"

    def penalties(self) -> dict[str, float]:
        return super().penalties() | ({"proximity": self.way.proximal} if self.way.proximal else {})

    def begin(self, optimizer: keras.optimizers.Optimizer, steps: int) -> None:
        self.weights, self.earlier, self.steps = self.model.trainable_variables, [], steps
        for weight in self.weights if self.way.proximal else ():
            self.earlier.append(optimizer.add_variable_from_reference(weight, name="earlier"))
            self.earlier[-1].assign(weight)

    def updated(self, strategy: tf.distribute.Strategy, step: Tensor) -> None:
        # beta of section 5.1: 0.99 for a tenth of the updates, then 0.999
        share = tf.where(step * 10 <= self.steps, 0.01, 0.001)

        def move(mean: Tensor, weight: Tensor) -> Tensor:
            return mean.assign_add((weight - mean) * tf.cast(share, mean.dtype))

        for mean, weight in zip(self.earlier, self.weights):
            strategy.extended.update(mean.value, move, args=(weight.value,))

    def perturbed(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        way, clean = self.way, self.read(batch)[1]
        change = way.noise * self.drawn(batch, random.normal)
        for _ in range(way.steps):
            slope = self.slope(batch, change, clean, both=True)
            step = way.step_size * divided(slope, ops.max(ops.abs(slope), axis=(1, 2), keepdims=True))
            change = ops.clip(change + step, -way.radius, way.radius)
        return {**batch, CHANGE: ops.stop_gradient(change)}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        plain = unchanged(batch)
        outputs, logits = self.read(plain, training)
        sums = self.sums(batch, outputs, logits)
        sums |= {"smoothness": self.apart(batch, logits, self.read(batch, training)[1])}
        if not self.way.proximal:
            return sums
        earlier = [(weight, ops.convert_to_tensor(mean)) for weight, mean in zip(self.weights, self.earlier)]
        with keras.StatelessScope(state_mapping=earlier):
            old = ops.stop_gradient(self.read(plain, training=False)[1])
        return sums | {"proximity": self.apart(batch, logits, old)}


class FreeLBObjective(Perturbed):
    """FreeLB (Zhu et al., 2020, algorithm 1): the mean gradient at K places, each a step up the loss from the one before.

    All passes drop the same numbers out (section 3.3).
    """

    def penalties(self) -> dict[str, float]:
        return {}

    def perturbed(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        numbers = ops.sum(self.real(batch), axis=1, keepdims=True) * self.words.width
        uniform = 2.0 * self.drawn(batch, random.uniform) - self.real(batch)
        return {**batch, CHANGE: self.way.radius * uniform / ops.sqrt(numbers)}

    def passes(
        self,
        batch: Mapping[str, Tensor],
        differentiate: Callable[..., tuple[list[Tensor], list[Tensor], dict[str, Tensor]]],
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        change, total = batch[CHANGE], None
        for last in [False] * (self.way.steps - 1) + [True]:
            gradients, slope, sums = differentiate({**batch, CHANGE: change}, [change])
            found = gradients, sums
            total = found if total is None else tf.nest.map_structure(tf.add, total, found)
            if not last:
                change = change + self.way.step_size * divided(slope[0], length(slope[0]))
                change = change * ops.minimum(1.0, divided(self.way.radius, length(change)))
        return tf.nest.map_structure(lambda value: value / self.way.steps, total)


class VatObjective(Perturbed):
    """Virtual adversarial training (Miyato et al., 2017, section 3; 2018, algorithm 1), on normalised word embeddings.

    Both passes drop the same numbers out: the divergence is 0 where nothing is added, as the power iteration needs. Differs:
    mean and deviation of a word embedding's numbers are over the vocabulary, not over its words in the texts.
    """

    penalty = "smoothness"

    def perturbed(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        way = self.way
        with random.recorded() as draws:
            clean = ops.stop_gradient(self.read(batch)[1])
        scale = ops.std(ops.convert_to_tensor(self.words.table), axis=0)
        change = self.drawn(batch, random.normal)
        for _ in range(way.steps):
            change = divided(change, length(change))
            with random.replayed(draws):
                # by the chain rule: of the normalised embedding
                change = scale * self.slope(batch, way.noise * scale * change, clean, both=False)
        return {**batch, CHANGE: ops.stop_gradient(way.radius * scale * divided(change, length(change)))}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        plain = unchanged(batch)
        with random.recorded() as draws:
            outputs, logits = self.read(plain, training)
        with random.replayed(draws):
            other = self.read(batch, training)[1]
        sums = self.sums(batch, outputs, logits)
        return sums | {"smoothness": self.apart(batch, ops.stop_gradient(logits), other, both=False)}


class RDropObjective(Nearby):
    """R-Drop (Liang et al., 2021, equations 2 to 4): two passes with other numbers dropped out, near each other.

    The task's loss is logged as the mean of the two passes and counts twice, for the paper adds them up.

    Raises:
        InputError: a model without dropout.
    """

    penalty = "consistency"

    def __init__(self, encoder: Encoder, task: Task, way: Way) -> None:
        super().__init__(encoder, task, way)
        doubled = {name: 2.0 * scale for name, scale in self.scales.items() if name != self.penalty}
        self.scales = {**self.scales, **doubled}
        layers = self.model._flatten_layers()
        if not any(isinstance(layer, random.Dropout) and layer.rate for layer in layers):
            raise InputError("r_drop compares passes with other dropout, and the model has none: --set dropout=0.1")

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        first, second = self.read(batch, training), self.read(batch, training)
        sums = tf.nest.map_structure(lambda *each: sum(each) / 2, self.sums(batch, *first), self.sums(batch, *second))
        halved = 0.5 if "soft" in self.kind.taught else 1.0
        return sums | {"consistency": halved * self.apart(batch, first[1], second[1])}


def unchanged(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch without what is added to its word embeddings."""
    return {name: value for name, value in batch.items() if name != CHANGE}


def length(x: Tensor) -> Tensor:
    """The norm of each row: [B, S, E] -> [B, 1, 1]."""
    return ops.sqrt(ops.sum(ops.square(x), axis=(1, 2), keepdims=True))


def divided(x: Tensor, by: Tensor) -> Tensor:
    """x / by, and 0 for a row where that is 0, such as one that fills up a batch."""
    return ops.where(by > 0, x / ops.where(by > 0, by, 1.0), 0.0)


OBJECTIVES: Mapping[type[Way], type[Nearby]] = {
    Smart: SmartObjective,
    FreeLB: FreeLBObjective,
    Vat: VatObjective,
    RDrop: RDropObjective,
}


def objective(encoder: Encoder, task: Task, way: Way | None) -> TaskObjective:
    """A task's objective, trained that way."""
    return TaskObjective(encoder, task) if way is None else OBJECTIVES[type(way)](encoder, task, way)
