"""Classification of a text or a pair (Devlin et al., 2019, section 4.1)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import spec as specs
from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.poolings import readouts_of, reads_pooler
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import labels, metrics
from kerasbert.tasks.base import Task, TaskKind
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
objectives = Module("kerasbert.objectives.base")
head_layers = Module("kerasbert.layers.heads")


def label_head(encoder: "Encoder", task: Task) -> "Heads":
    """A head with an output for each label, or one; where it reads no pooler encoders may bring a hidden layer."""
    spec = encoder.spec
    hidden = not reads_pooler(encoder, specs.maybe(spec, "pooler"), task.how.name) and task.hidden_layer is not False
    activation = getattr(encoder, "label_activation", None) if hidden else None
    policy = {"name": "classifier", "dtype": encoder.dtype_policy}
    rates = specs.head_deviation(spec), specs.maybe(spec, "dropout", 0.0)
    if not getattr(encoder, "label_bias", True):
        policy["use_bias"] = False
    width = getattr(encoder, "label_width", None)
    kind = getattr(encoder, "label_head", head_layers.LabelHead)
    head = kind(max(1, len(task.labels)), *rates, activation, width, **policy)
    return {"classifier": head}, {"classifier": (None, spec.hidden)}


BALANCED, POSITIVE = "balanced", "f1_positive"


class Classification(TaskKind):
    """Cross-entropy of the label; accuracy, F1 (macro, and of the second of two labels), Matthews, ROC AUC and loss."""

    name = "classification"
    examples = "classify"
    few_shot = True
    metrics_known = ("accuracy", "f1_macro", POSITIVE, "matthews", "roc_auc", "loss")

    def with_labels(self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any]) -> Task:
        if task.labels:
            return task
        cleaned = labels.clean(source, task.label, lines, values)
        labels.check_classes(source, task.label, cleaned)
        return dataclasses.replace(task, labels={value: value for value in labels.ordered(set(cleaned))})

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray:
        index = {value: i for i, value in enumerate(task.labels)}
        index |= {name: i for i, name in enumerate(task.labels.values())}
        if task.metric == POSITIVE and len(task.labels) != 2:
            raise InputError(
                f"{POSITIVE} is of the second of two labels, {source} has {len(task.labels)}: take f1_macro"
            )
        cleaned = labels.clean(source, task.label, lines, values, known=index)
        wrong = next((i for i, value in enumerate(cleaned) if value not in index), None)
        if wrong is not None:
            raise labels.unknown(source, lines[wrong], cleaned[wrong], task)
        return np.array([index[value] for value in cleaned], "int32")

    def fitted(self, task: Task, source: "Source", targets: Targets) -> Task:
        """The task with the weight of each label, which `balanced` takes from the training rows."""
        weights = self.options["class_weights"]
        if self.options["label_smoothing"] >= 1 or self.options["label_smoothing"] < 0:
            raise InputError(
                f"label_smoothing must be at least 0 and below 1. Received: {self.options['label_smoothing']}"
            )
        if weights == BALANCED:
            counts = np.bincount(targets, minlength=len(task.labels))
            each = len(targets) / (len(counts) * np.maximum(counts, 1))
            return task.optioned({"class_weights": dict(zip(task.labels.values(), map(float, each)))})
        if weights is not None:
            _check_weights(task, weights)
        return task

    def continued(self, task: Task, begun: JsonMap) -> Task:
        return task if task.labels else dataclasses.replace(task, labels=begun.get("labels") or {})

    def told(self, source: "Source", rows: Rows) -> list[str]:
        found = rows.labels or ()
        return labels.remarks(source, found) + labels.contradictions(
            source, rows.texts, [str(x).strip() for x in found]
        )

    def absent(self, task: Task, train: Rows, dev: Rows) -> list[str]:
        present, known = set(dev.targets.tolist()), set(train.targets.tolist())
        return labels.absent([name for i, name in enumerate(task.labels.values()) if i in known - present])

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        arrays, weights = one_number(targets, count, "int32"), self.options["class_weights"]
        if weights == BALANCED:
            raise InputError("class_weights are 'balanced' where a head is kept: give the numbers, {label: weight}")
        if weights:
            each = [weights.get(name, weights.get(value, 1.0)) for value, name in task.labels.items()]
            arrays["label_weight"] *= np.asarray(each, "float32")[arrays["label"]]
        return arrays

    @property
    def pooler(self) -> bool:
        return not self.options.get("pooling")

    def readout(self, task: Task, encoder: "Encoder") -> str | None:
        if not (pooling := self.options.get("pooling")):
            return super().readout(task, encoder)
        readouts_of(pooling)
        return pooling

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        return label_head(encoder, task)

    def unlabelled(self, task: Task, texts: Sequence[Any]) -> np.ndarray:
        return np.zeros(len(texts), "int32")

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        labelled, weights, smoothing = batch["label"], batch["label_weight"], self.options["label_smoothing"]
        errors = objectives.cross_entropy(logits, labelled)
        if smoothing:
            errors = (1 - smoothing) * errors - smoothing * ops.mean(ops.log_softmax(logits, axis=-1), axis=-1)
        return {
            "label": ops.sum(errors * weights),
            "label/accuracy": ops.sum(objectives.correct(logits, labelled) * weights),
        }

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        table = metrics.confusion(targets, outputs.argmax(-1), outputs.shape[1])
        scores, rows = _scores(outputs), table.sum(1)
        areas = [metrics.roc_auc(scores[i], targets == i) for i in _parted(rows)]
        return _measured(table, metrics.log_loss(outputs, targets), areas)

    def details(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> Json:
        table = metrics.confusion(targets, outputs.argmax(-1), outputs.shape[1])
        columns = metrics.precision_recall_f1(np.diag(table), table.sum(0), table.sum(1))
        areas = [metrics.roc_auc(scores, targets == i) for i, scores in enumerate(_scores(outputs))]
        told = labels.told(task, [*columns, areas, table.sum(1)])
        return {"labels": told, "confusion": table.astype(int).tolist()}

    def remarks(self, task: Task, outputs: Tensor, targets: Targets) -> list[str]:
        lines, count, names = [], len(targets), list(task.labels.values())
        labelled, answered = np.unique(targets), np.unique(outputs.argmax(-1))
        if len(labelled) == 1:
            lines.append(f"all {count} rows are labelled {names[labelled[0]]!r}: their metrics say little")
        if len(answered) == 1 and count > 1:
            return [*lines, f"all {count} answers are {names[answered[0]]!r}"]
        return [*lines, *super().remarks(task, outputs, targets)]

    def collapsed(self, task: Task, outputs: Tensor, targets: Targets) -> str:
        return labels.nearly_one(targets, outputs.argmax(-1), list(task.labels.values()))

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        answers, names = outputs.argmax(-1), list(task.labels.values())
        sure = softmax(outputs.astype("float64")).max(-1)

        width, each = outputs.shape[1], metrics.nats(outputs, targets)
        areas = [metrics.roc_auc_of(scores, targets == i) for i, scores in enumerate(_scores(outputs))]

        def sampled(numbers: Numbers) -> dict[str, float]:
            cells = targets[numbers].astype(int) * width + answers[numbers]
            table = np.bincount(cells, minlength=width * width).reshape(width, width).astype("float64")
            drawn = np.bincount(numbers, minlength=len(targets))
            found = [areas[i](drawn) for i in _parted(table.sum(1))[: 1 if width == 2 else None]]
            return _measured(table, float(each[numbers].mean()), found)

        def answer(number: int) -> Json:
            return {"label": names[answers[number]], "score": round(float(sure[number]), 4)}

        return Judged(sampled, answer, np.where(answers == targets, 0.0, sure))

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of the commonest label, and for F1 of any label by chance where that is better."""
        shares = np.bincount(targets, minlength=len(task.labels)) / max(1, len(targets))
        there = int((shares > 0).sum())
        if there < 2:  # nothing is to be told apart
            return {}
        chance = float((2 * shares / (1 + there * shares)).sum() / there)
        constant = float(2 * shares.max() / (1 + shares.max()) / there)
        found = {"accuracy": float(shares.max()), "f1_macro": max(constant, chance)}
        found |= {"matthews": 0.0, "roc_auc": 0.5}
        return found | ({POSITIVE: float(2 * shares[1] / (1 + shares[1]))} if len(shares) == 2 else {})

    def shown(self, task: Task, text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        return list(task.labels.values())[target], f"{answer['label']} ({answer['score']:.2f})"

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        number = labels.number(task, logits, target)
        return 0, f"log-odds of {list(task.labels.values())[number]}", lambda values: log_odds(values, number)

    def exported(
        self, model: "keras.Model", outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        import tensorflow as tf

        probabilities = self.device(outputs, inputs)
        label_ids = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        labelled = tf.gather(list(model.labels), label_ids)
        return {"probabilities": probabilities, "label_ids": label_ids, "labels": labelled}

    def of_examples(self, served: Mapping[str, Tensor], labels: Sequence[str]) -> dict[str, Tensor]:
        scores = served["probabilities"]
        import tensorflow as tf

        return {"classes": tf.tile(tf.constant([list(labels)]), [tf.shape(scores)[0], 1]), "scores": scores}

    def pipeline_tag(self, task: Task) -> str:
        return "text-classification"

    def described(self) -> str:
        return "`probabilities` [B, L] float32, `label_ids` [B] int32, `labels` [B] string"

    def check_target(self, target: str) -> None:
        pass


def _parted(rows: np.ndarray) -> np.ndarray:
    """The labels that some rows have and others have not: those with an ROC curve. Args: rows: of each label."""
    return np.flatnonzero((rows > 0) & (rows < rows.sum()))


def _measured(table: Tensor, loss: float, areas: Sequence[float]) -> dict[str, float]:
    """The metrics of a confusion table [target, answer], a loss and the areas of the labels that have one."""
    hits, rows, columns = np.diag(table), table.sum(1), table.sum(0)
    f1 = metrics.precision_recall_f1(hits, columns, rows)[2]
    found = {
        "accuracy": float(hits.sum() / table.sum()),
        "f1_macro": float(f1[rows + columns > 0].mean()),
        "matthews": metrics.matthews(table),
        "loss": loss,
        "roc_auc": float(np.mean(areas)) if areas else 0.0,
    }
    return found | ({POSITIVE: float(f1[1])} if len(f1) == 2 else {})


def log_odds(logits: Tensor, number: Tensor) -> Tensor:
    """The log of a label's probability over that of all others: [B, L] -> [B]."""
    others = ops.concatenate([logits[:, :number], logits[:, number + 1 :]], axis=-1)
    return logits[:, number] - (ops.logsumexp(others, axis=-1) if others.shape[-1] else 0.0)


def _scores(outputs: np.ndarray) -> np.ndarray:
    """What tells a row with a label from one without: probabilities [L, n]; of two labels one is the other's complement."""
    values = outputs.astype("float64")
    if values.shape[1] == 2:
        return np.stack([values[:, 0] - values[:, 1], values[:, 1] - values[:, 0]])
    return softmax(values).T


def _check_weights(task: Task, weights: Any) -> None:
    """Refuse class weights that are no numbers by label."""
    known = {*task.labels, *task.labels.values()}
    numbers = isinstance(weights, dict) and all(
        isinstance(value, int | float) and 0 <= value < float("inf") for value in weights.values()
    )
    if not numbers or not set(weights) <= known or not sum(weights.values()):
        raise InputError(
            f'class_weights are {weights!r:.80}, expected "{BALANCED}", or a number of at least 0 for labels among '
            f"{', '.join(task.labels.values())}, such as {{{next(iter(task.labels.values()))!r}: 2.0}}"
        )


def one_number(targets: Sequence[float], count: int, dtype: str) -> dict[str, np.ndarray]:
    """A target for each row: label [count] and its weight."""
    label = np.zeros(count, dtype)
    label[: len(targets)] = targets
    return {"label": label, "label_weight": (np.arange(count) < len(targets)).astype("float32")}


KIND = Classification()
