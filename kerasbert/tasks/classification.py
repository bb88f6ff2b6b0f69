"""Classification of a text or a pair (Devlin et al., 2019, section 4.1)."""

import dataclasses

import numpy as np
from keras import ops

from kerasbert import spec as specs
from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.layers.heads import LabelHead
from kerasbert.objectives.base import correct, cross_entropy
from kerasbert.tasks import labels, tables
from kerasbert.tasks.base import TaskKind


def label_head(encoder, task):
    """A head with an output for each label, or one; encoders without a pooler bring a hidden layer."""
    spec = encoder.spec
    hidden = not specs.maybe(spec, "pooler") and task.hidden_layer is not False
    activation = getattr(encoder, "label_activation", None) if hidden else None
    policy = {"name": "classifier", "dtype": encoder.dtype_policy}
    rates = specs.maybe(spec, "initializer", 0.02), specs.maybe(spec, "dropout", 0.0)
    head = LabelHead(max(1, len(task.labels)), *rates, activation, **policy)
    return {"classifier": head}, {"classifier": (None, spec.hidden)}


class Classification(TaskKind):
    """Cross-entropy of the label; accuracy, macro F1, Matthews correlation and loss."""

    name = "classification"
    metrics_known = ("accuracy", "f1", "matthews", "loss")

    def with_labels(self, task, source, lines, values):
        if task.labels:
            return task
        cleaned = labels.clean(source, task.label, lines, values)
        labels.check_classes(source, task.label, cleaned)
        values = set(cleaned)
        try:
            order = sorted(values, key=lambda value: (float(value), value))
        except ValueError:
            order = sorted(values)
        return dataclasses.replace(task, labels={value: value for value in order})

    def targets(self, task, source, lines, values, texts):
        index = {value: i for i, value in enumerate(task.labels)}
        index |= {name: i for i, name in enumerate(task.labels.values())}
        cleaned = labels.clean(source, task.label, lines, values, known=index)
        wrong = next((i for i, value in enumerate(cleaned) if value not in index), None)
        if wrong is not None:
            known = ", ".join(list(task.labels)[:20])
            raise InputError(
                f"{tables.where(source, lines[wrong])}: label {cleaned[wrong]!r} is unknown. Expected one of: {known}"
            )
        return np.array([index[value] for value in cleaned], "int32")

    def continued(self, task, begun):
        return task if task.labels else dataclasses.replace(task, labels=begun.get("labels") or {})

    def told(self, source, rows):
        return labels.remarks(source, rows.labels)

    def absent(self, task, train, dev):
        present, known = set(dev.targets.tolist()), set(train.targets.tolist())
        names = [name for i, name in enumerate(task.labels.values()) if i in known - present]
        if not names:
            return []
        return [f"no dev row has the label{'s' * (len(names) > 1)} {', '.join(map(repr, names[:10]))}"]

    def batch(self, task, rows, targets, count, length):
        return one_number(targets, count, "int32")

    def heads(self, encoder, task):
        return label_head(encoder, task)

    def losses(self, task, logits, batch):
        labelled, weights = batch["label"], batch["label_weight"]
        return {
            "label": ops.sum(cross_entropy(logits, labelled) * weights),
            "label/accuracy": ops.sum(correct(logits, labelled) * weights),
        }

    def metrics(self, task, outputs, targets, encoded=None):
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

    def remarks(self, task, outputs, targets):
        lines, count, names = [], len(targets), list(task.labels.values())
        labelled, answered = np.unique(targets), np.unique(outputs.argmax(-1))
        if len(labelled) == 1:
            lines.append(f"all {count} rows are labelled {names[labelled[0]]!r}: their metrics say little")
        if len(answered) == 1 and count > 1:
            lines.append(f"all {count} answers are {names[answered[0]]!r}")
        return lines

    def exported(self, model, outputs, inputs):
        import tensorflow as tf

        probabilities = self.device(outputs, inputs)
        label_ids = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        labelled = tf.gather(list(model.labels), label_ids)
        return {"probabilities": probabilities, "label_ids": label_ids, "labels": labelled}

    def described(self):
        return "`probabilities` [B, L] float32, `label_ids` [B] int32, `labels` [B] string"

    def check_target(self, target):
        pass


def one_number(targets, count, dtype):
    """A target for each row: label [count] and its weight."""
    label = np.zeros(count, dtype)
    label[: len(targets)] = targets
    return {"label": label, "label_weight": (np.arange(count) < len(targets)).astype("float32")}


KIND = Classification()
