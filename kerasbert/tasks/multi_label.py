"""Several labels, or none, for a text or a pair: a sigmoid for each label, as transformers' multi_label_classification.

A cell of the label's column holds labels with `|` between them, else with commas, or a json list, which holds any text:
`["Albany, NY"]`. A jsonl file may hold lists. An empty cell is a text without a label. Or each label has a column of 0
and 1 (Jigsaw's layout): the label's column is then their names with commas between them.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerasbert.answers.multi_label import MultiLabelKind
from kerasbert.errors import InputError
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import labels, metrics, tables
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.classification import label_head
from kerasbert.tasks.judging import Judged, Numbers
from kerasbert.tasks.rows import Rows, Targets

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.tables import Source

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")


class MultiLabel(TaskKind):
    """Binary cross-entropy of each label; F1 over all answers (micro) and over labels (macro), exact match, ROC AUC, loss.

    After training a threshold for each label is chosen on the dev rows, by its F1; metrics during training are at 0.5.
    """

    name = "multi_label"
    metrics_known = ("f1_micro", "f1_macro", "exact_match", "roc_auc", "loss")

    def with_labels(self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any]) -> Task:
        if task.labels:
            return task
        if len(task.label_columns) > 1:
            return dataclasses.replace(task, labels={label: label for label in task.label_columns})
        names = {label for line, value in zip(lines, values) for label in split(value, source, line)}
        if not names:
            raise InputError(
                f"{source} has no label in column {task.label!r}, expected labels with | or , between them"
            )
        if len(names) > labels.MOST:
            raise InputError(
                f"{source} has {len(names)} different labels in column {task.label!r}: is it the label column?"
            )
        return dataclasses.replace(task, labels={label: label for label in labels.ordered(names)})

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray:
        index = {value: i for i, value in enumerate(task.labels)}
        index |= {name: i for i, name in enumerate(task.labels.values())}
        targets = np.zeros((len(values), len(task.labels)), "float32")
        for row, (line, value) in enumerate(zip(lines, values)):
            for label in split(value, source, line):
                if label not in index:
                    raise labels.unknown(source, line, label, task)
                targets[row, index[label]] = 1
        return targets

    def continued(self, task: Task, begun: JsonMap) -> Task:
        return task if task.labels else dataclasses.replace(task, labels=begun.get("labels") or {})

    def absent(self, task: Task, train: Rows, dev: Rows) -> list[str]:
        names = list(task.labels.values())
        missing = [names[i] for i in np.flatnonzero((train.targets.max(0) > 0) & (dev.targets.max(0) == 0))]
        return labels.absent(missing)

    def group(self, target: Any) -> tuple[float, ...]:
        return tuple(target)

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        label = np.zeros((count, len(task.labels)), "float32")
        label[: len(targets)] = targets
        return {"label": label, "label_weight": (np.arange(count) < len(targets)).astype("float32")}

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        return label_head(encoder, task)

    def unlabelled(self, task: Task, texts: Sequence[Any]) -> np.ndarray:
        return np.zeros((len(texts), len(task.labels)), "float32")

    def compared(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Each label against its absence, [B, L, 2]: the softmax is the sigmoid."""
        return ops.stack([logits, ops.zeros_like(logits)], axis=-1)

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        label, weights = batch["label"], batch["label_weight"]
        # of a row the mean over its labels (torch's BCEWithLogitsLoss)
        errors = ops.maximum(logits, 0.0) - logits * label + ops.log1p(ops.exp(-ops.abs(logits)))
        right = ops.cast(ops.equal(logits >= 0, label > 0), "float32")
        return {
            "label": ops.sum(ops.mean(errors, axis=-1) * weights),
            "label/accuracy": ops.sum(ops.mean(right, axis=-1) * weights),
        }

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        chosen, wanted = self._chosen(outputs), np.asarray(targets) > 0
        areas = [area for area, count in zip(_areas(outputs, targets), wanted.sum(0)) if 0 < count < len(targets)]
        return _measured(chosen, wanted, metrics.binary_log_loss(outputs, targets), areas)

    def details(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> Json:
        hits, answered, wanted = self._counts(outputs, targets)
        columns = metrics.precision_recall_f1(hits, answered, wanted)
        return {"labels": labels.told(task, [*columns, _areas(outputs, targets), wanted])}

    def collapsed(self, task: Task, outputs: Tensor, targets: Targets) -> str:
        if len(outputs) > 1 and not self._chosen(outputs).any() and np.asarray(targets).any():
            return f"none of the {len(outputs)} answers has a label: no probability reaches its threshold"
        return ""

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        chosen, wanted = self._chosen(outputs), np.asarray(targets) > 0
        away = np.abs(self.answers.probabilities(np.asarray(outputs)) - wanted)
        names = list(task.labels.values())

        def answer(number: int) -> list[str]:
            return [names[i] for i in np.flatnonzero(chosen[number])]

        each = np.array([metrics.binary_log_loss(*row) for row in zip(np.asarray(outputs), np.asarray(targets))])
        areas = [metrics.roc_auc_of(*columns) for columns in zip(np.asarray(outputs).T, wanted.T)]

        def sampled(numbers: Numbers) -> dict[str, float]:
            drawn, there = np.bincount(numbers, minlength=len(wanted)), wanted[numbers]
            found = [area(drawn) for area, count in zip(areas, there.sum(0)) if 0 < count < len(numbers)]
            return _measured(chosen[numbers], there, float(each[numbers].mean()), found)

        return Judged(sampled, answer, (away * (chosen != wanted)).sum(-1))

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of the commonest set of labels; F1 of answering the labels of the commonest rows, the best number of them."""
        wanted = np.asarray(targets) > 0
        sets, counts = np.unique(wanted, axis=0, return_counts=True)
        each = np.sort(wanted.mean(0))[::-1]  # of the k commonest labels: 2 * hits / (answered + wanted)
        micro = 2 * np.cumsum(each) / (np.arange(1, len(each) + 1) + each.sum())
        macro = (2 * each / (1 + each)).mean()
        return {
            "f1_micro": float(micro.max()),
            "f1_macro": float(macro),
            "exact_match": float(counts.max() / len(wanted)) if len(sets) else 0.0,
            "roc_auc": 0.5,
        }

    def shown(self, task: Task, text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        names = list(task.labels.values())
        expected = [names[i] for i in np.flatnonzero(np.asarray(target) > 0)]
        return ", ".join(expected) or labels.NO_LABEL, ", ".join(answer) or labels.NO_LABEL

    def tuned(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Task:
        probabilities = self.answers.probabilities(np.asarray(outputs))
        thresholds = [best_threshold(*columns) for columns in zip(probabilities.T, np.asarray(targets).T > 0)]
        return task.optioned({"thresholds": thresholds})

    def from_exported(self, outputs: Tensor) -> Tensor:
        values = np.clip(np.stack(outputs).astype("float64"), 1e-30, 1 - 2**-24)  # the largest below 1 in float32
        return np.log(values) - np.log1p(-values)

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        number = labels.number(task, logits, target)
        return 0, f"log-odds of {list(task.labels.values())[number]}", lambda values: values[:, number]

    def exported(
        self, model: "keras.Model", outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        import tensorflow as tf

        probabilities = self.device(outputs, inputs)
        kind = cast(MultiLabelKind, self.answers)
        chosen = probabilities >= kind.thresholds(len(model.labels))
        names = tf.broadcast_to(tf.constant(list(model.labels)), tf.shape(chosen))
        answered = tf.ragged.boolean_mask(names, chosen)
        counts = tf.cast(answered.row_lengths(), tf.int32)
        return {"probabilities": probabilities, "labels": answered.to_tensor(""), "label_counts": counts}

    def pipeline_tag(self, task: Task) -> str:
        return "text-classification"

    def described(self) -> str:
        return (
            "`probabilities` [B, L] float32, `labels` [B, most of a text] string, those that are answered, and `label_counts` "
            "[B] int32, how many they are"
        )

    def device(self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
        return ops.sigmoid(outputs["logits"])

    def _chosen(self, outputs: Tensor) -> np.ndarray:
        kind = cast(MultiLabelKind, self.answers)
        return kind.chosen(kind.probabilities(np.asarray(outputs)))

    def _counts(self, outputs: Tensor, targets: Tensor) -> tuple[np.ndarray, ...]:
        """Of each label: rightly answered, answered, wanted."""
        chosen, wanted = self._chosen(outputs), np.asarray(targets) > 0
        return tuple(values.sum(0).astype("float64") for values in (chosen & wanted, chosen, wanted))


def _measured(chosen: np.ndarray, wanted: np.ndarray, loss: float, areas: Sequence[float]) -> dict[str, float]:
    """The metrics of labels that are answered and of those that are wanted, bool [n, L], a loss and areas of labels."""
    counts = [values.sum(0).astype("float64") for values in (chosen & wanted, chosen, wanted)]
    return {
        "f1_micro": float(metrics.precision_recall_f1(*(each.sum() for each in counts))[2]),
        "f1_macro": float(metrics.precision_recall_f1(*counts)[2].mean()),
        "exact_match": float((chosen == wanted).all(-1).mean()),
        "roc_auc": float(np.mean(areas)) if areas else 0.0,
        "loss": loss,
    }


def _areas(outputs: Tensor, targets: Tensor) -> list[float]:
    return [metrics.roc_auc(*columns) for columns in zip(np.asarray(outputs).T, np.asarray(targets).T > 0)]


def split(value: object, source: "Source", line: int) -> list[str]:
    """The labels of a cell, or of a json list."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise InputError(f"{tables.where(source, line)}: {value!r:.60} is no json list of labels") from error
        else:
            value = value.split("|" if "|" in value else ",")
    if not isinstance(value, list | tuple) or any(isinstance(each, list | tuple | dict) for each in value):
        raise InputError(f"{tables.where(source, line)}: {value!r:.60} are no labels, expected a list of texts")
    return [label for label in (str(each).strip() for each in value) if label]


def best_threshold(scores: np.ndarray, wanted: np.ndarray) -> float:
    """The threshold with the best F1: in the middle between two scores; of equally good ones that nearest to 0.5.

    0.5 where no row has the label, or every one. Where float32 has no number between two scores it is the upper one: a
    probability that equals its threshold reaches it.

    Args:
        scores: [n] probabilities. wanted: bool [n].

    >>> best_threshold(np.array([0.1, 0.2, 0.4]), np.array([False, True, True]))
    0.15
    """
    if wanted.all() or not wanted.any():
        return 0.5
    scores = scores.astype("float64")
    values = np.unique(scores)
    thresholds = np.unique([0.5, values[0] / 2, *(values[1:] + values[:-1]) / 2])
    order = np.sort(scores), np.sort(scores[wanted])
    answered, hits = (len(each) - np.searchsorted(each, thresholds) for each in order)
    f1 = 2 * hits / (answered + wanted.sum())
    best = thresholds[f1 >= f1.max() - 1e-12]
    chosen = float(best[np.abs(best - 0.5).argmin()])
    above = int(np.searchsorted(values, chosen))  # the first score that reaches it
    if chosen == 0.5 or above == len(values):
        return chosen
    low, high = float(values[above - 1]) if above else 0.0, float(values[above])
    return metrics.between(low, high, otherwise=high)


KIND = MultiLabel()
