"""A number for a text or a pair: squared error of the standardised number."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.data.numbers import number as of_cell
from kerasbert.errors import InputError
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.tasks import labels, metrics, tables
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.classification import label_head, one_number
from kerasbert.tasks.exported_kind import READERS
from kerasbert.tasks.judging import Judged, Numbers, scatter
from kerasbert.tasks.rows import Targets

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.tables import Source

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")


class Regression(TaskKind):
    """Squared error in standard deviations from the mean; Pearson, Spearman and the mean squared error.

    With the option `activation` the answer is the sigmoid of the head's number, and the error is the answer's.
    """

    name = "regression"
    examples = "regress"
    taught = ("labels", "logits")
    metrics_known = ("pearson", "spearman", "mean_squared_error")

    @property
    def program(self) -> str:
        return self.options["activation"]

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray:
        return np.array([number(value, source, line) for value, line in zip(values, lines)], "float32")

    def fitted(self, task: Task, source: "Source", targets: Targets) -> Task:
        """The task with the mean and the standard deviation of the training targets.

        Raises:
            InputError: all targets are the same number.
        """
        numbers = targets.astype("float64").tolist()
        if self.options["activation"] and not (min(numbers) >= 0 and max(numbers) <= 1):
            raise InputError(
                f"{source}: numbers of {min(numbers):g} to {max(numbers):g} in column {task.label!r}, expected 0 to 1, which the "
                "activation sigmoid gives: scale them, or leave task.activation out"
            )
        mean = math.fsum(numbers) / len(numbers)  # exact: the same on every machine
        std = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / len(numbers))
        if min(numbers) == max(numbers):
            raise InputError(
                f"{source}: all {len(numbers)} numbers in column {task.label!r} of the training rows are {numbers[0]:g}, "
                "expected different ones"
            )
        return task if self.options["activation"] else dataclasses.replace(task, mean=mean, std=std)

    def scaled(self, task: Task, targets: Targets) -> np.ndarray:
        if (task.mean, task.std) == (0.0, 1.0):
            return targets
        return ((targets.astype("float64") - task.mean) / task.std).astype("float32")

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        return one_number(targets, count, "float32")

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        return label_head(encoder, task)

    def outputs(self, task: Task, logits: Tensor) -> dict[str, Tensor]:
        value = self._activated(ops.squeeze(logits, -1))
        return {"value": value if (task.mean, task.std) == (0.0, 1.0) else value * task.std + task.mean}

    def _activated(self, value: Tensor) -> Tensor:
        return ops.sigmoid(value) if self.options["activation"] else value

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        error = self._activated(logits[:, 0]) - batch["label"]
        return {"label": ops.sum(ops.square(error) * batch["label_weight"])}

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        outputs, targets = (np.asarray(values, "float64") for values in (outputs, targets))
        error = float(np.mean(np.square(outputs - targets)))
        correlations = {"pearson": metrics.pearson(outputs, targets), "spearman": metrics.spearman(outputs, targets)}
        return correlations | {"mean_squared_error": error}

    def collapsed(self, task: Task, outputs: Tensor, targets: Targets) -> str:
        count = len(targets)
        if count > 1 and np.ptp(outputs) <= 1e-6 * max(task.std, float(np.abs(outputs).max())):
            return f"all {count} answers are {outputs[0]:.4g}"
        return ""

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        outputs, targets = (np.asarray(values, "float64") for values in (outputs, targets))

        def sampled(numbers: Numbers) -> dict[str, float]:
            return self.metrics(task, outputs[numbers], targets[numbers])

        picture = scatter("Answers beside targets", targets, outputs)
        answer = [float(f"{value:.6g}") for value in outputs]
        return Judged(sampled, answer.__getitem__, np.abs(outputs - targets), graded=True, picture=picture)

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of the mean of these targets."""
        return {"mean_squared_error": float(np.var(np.asarray(targets, "float64"))), "pearson": 0.0, "spearman": 0.0}

    def from_exported(self, outputs: Tensor) -> Tensor:
        return np.asarray(outputs)[:, 0]

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        labels.untargeted(self.name, target)
        return 0, "the number", lambda values: self._activated(values[:, 0]) * task.std + task.mean

    def device(self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
        return ops.expand_dims(outputs["value"], -1)

    def exported(
        self, model: "keras.Model", outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {"value": outputs["value"]}

    def of_examples(self, served: Mapping[str, Tensor], labels: Sequence[str]) -> dict[str, Tensor]:
        return {"outputs": served["value"]}

    def pipeline_tag(self, task: Task) -> str:
        return "sentence-similarity" if task.pair else "text-classification"

    def described(self) -> str:
        return "`value` [B] float32"

    def check_target(self, target: str) -> None:
        reader, answers = READERS[target]
        raise InputError(f"the model is for a regression, expected {answers}: {reader} has no other")


def number(value: Any, source: "Source", line: int) -> float:
    place = tables.where(source, line)
    result = of_cell(value, source, place)
    if not abs(result) <= float(np.finfo("float32").max):  # nor is nan
        raise InputError(f"{place}: {value!r} is not a number, as a regression's label must be")
    return result


KIND = Regression()
