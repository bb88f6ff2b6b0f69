"""Classification and regression of a text or a pair: the model, its training program, its metrics."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.errors import InputError
from kerasbert.layers.heads import HeadedModel, LabelHead
from kerasbert.objectives.program import Program, correct, cross_entropy
from kerasbert.tasks.task import Task


@keras.saving.register_keras_serializable("kerasbert")
class LabelModel(HeadedModel):
    """An encoder with a label head on its first token.

    Args:
        encoder: Encoder. task: Task with its labels.
    Call: the encoder's inputs -> dict of logits [B, L] float32 (classification) or value [B] float32 (regression).
        The last layer is computed for the first token alone: the head reads nothing else.
    """

    def __init__(self, encoder: Any, task: Task, **kwargs):
        self_task, spec, dtype = task, encoder.spec, encoder.dtype_policy
        width = max(1, len(task.labels))
        hidden = not spec.pooler and task.hidden_layer is not False
        activation = getattr(encoder, "label_activation", None) if hidden else None
        head = LabelHead(width, spec.initializer, spec.dropout, activation, name="classifier", dtype=dtype)
        super().__init__(encoder, {"classifier": head}, {"classifier": (None, spec.hidden)}, dtype=dtype, **kwargs)
        self.task = self_task
        self.tokenizer = encoder.tokenizer
        self.labels = tuple(task.labels.values()) or None

    def call(self, inputs, training=False, queries="first", read="first"):  # read: the older name of queries
        queries = queries if isinstance(read, str) else read
        return self.answer(self.body(inputs, training=training, queries=queries), training=training)

    def get_config(self):
        config = {"name": self.name, "trainable": self.trainable, "task": self.task.to_json()}
        return config | {"encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        model = cls(encoder, Task.from_json(config["task"]), name=config["name"])
        model.trainable = config["trainable"]
        return model

    def answer(self, outputs, training=False):
        """Logits, or value in the unit of the targets, of the encoder's outputs."""
        logits, task = self.logits(outputs, training=training), self.task
        if task.kind == "classification":
            return {"logits": logits}
        value = logits[:, 0]
        return {"value": value if (task.mean, task.std) == (0.0, 1.0) else value * task.std + task.mean}

    def logits(self, outputs, training=False):
        """What the head says: float32 [B, L]; of a regression [B, 1], in standard deviations from the mean."""
        pooled = outputs["pooled"] if "pooled" in outputs else outputs["sequence"][:, 0]
        return self.heads["classifier"](pooled, training=training)


class LabelProgram(Program):
    """Cross-entropy of the label, or squared error of the number, which the batch holds standardised (`Task.standard`)."""

    def __init__(self, encoder: Any, task: Task):
        self.model = LabelModel(encoder, task, name="label_model")
        self.model.build()
        self.scales = {"label": 1.0}

    def weights(self, batch):
        return {"label": ops.sum(batch["label_weight"])}

    def losses(self, batch, training=True):
        labels, weights = batch["label"], batch["label_weight"]
        outputs = self.model.encoder(batch, training=training, queries="first")
        logits = self.model.logits(outputs, training=training)
        if self.model.task.kind == "regression":
            return {"label": ops.sum(ops.square(logits[:, 0] - labels) * weights)}
        return {
            "label": ops.sum(cross_entropy(logits, labels) * weights),
            "label/accuracy": ops.sum(correct(logits, labels) * weights),
        }


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def metrics(task: Task, outputs: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Metrics by name: accuracy, macro F1, Matthews correlation and loss, or Pearson, Spearman and mean squared error.

    Args:
        outputs: logits [n, L] or values [n]. targets: [n].
    """
    if task.kind == "regression":
        ranks = _correlation(_ranks(outputs), _ranks(targets))
        error = float(np.mean(np.square(outputs - targets)))
        return {"pearson": _correlation(outputs, targets), "spearman": ranks, "mean_squared_error": error}
    predicted = outputs.argmax(-1)
    table = np.zeros((outputs.shape[1],) * 2)  # [target, predicted]
    np.add.at(table, (targets, predicted), 1)
    hits, rows, columns = np.diag(table), table.sum(1), table.sum(0)
    present = rows + columns > 0
    f1 = (2 * hits[present] / (rows + columns)[present]).mean()
    n = table.sum()
    spread = np.sqrt((n**2 - (rows**2).sum()) * (n**2 - (columns**2).sum()))
    matthews = (hits.sum() * n - (rows * columns).sum()) / spread if spread else 0.0
    log = -np.log(np.maximum(softmax(outputs.astype("float64"))[np.arange(len(targets)), targets], 1e-300))
    accuracy = float((predicted == targets).mean())
    return {"accuracy": accuracy, "f1": float(f1), "matthews": float(matthews), "loss": float(log.mean())}


def remarks(task: Task, outputs: np.ndarray, targets: np.ndarray) -> list[str]:
    """What makes the metrics of these answers say little, a line each."""
    found, count = [], len(targets)
    if task.kind == "regression":
        if count > 1 and np.ptp(outputs) <= 1e-6 * max(task.std, float(np.abs(outputs).max())):
            found.append(f"all {count} answers are {outputs[0]:.4g}")
        return found
    names = list(task.labels.values())
    labelled, answered = np.unique(targets), np.unique(outputs.argmax(-1))
    if len(labelled) == 1:
        found.append(f"all {count} rows are labelled {names[labelled[0]]!r}: their metrics say little")
    if len(answered) == 1 and count > 1:
        found.append(f"all {count} answers are {names[answered[0]]!r}")
    return found


def better(task: Task, new: float, old: float | None) -> bool:
    """Whether a metric improved; larger is better, except for an error or a loss."""
    if old is None or not np.isfinite(old):
        return True
    return new < old if task.metric in ("loss", "mean_squared_error") else new > old


def check_metric(task: Task) -> None:
    """Refuse a metric that the kind does not have."""
    outputs = np.zeros((2, 2)) if task.kind == "classification" else np.zeros(2)
    known = metrics(task, outputs, np.array([0, 1]))
    if task.metric not in known:
        raise InputError(f"no metric {task.metric!r} for a {task.kind}. All: {', '.join(known)}")


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(dtype="float64"), y - y.mean(dtype="float64")
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / scale) if scale else 0.0


def _ranks(x: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[inverse]
