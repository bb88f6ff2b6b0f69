"""What a kind learns by: its losses are sums over the inputs, its metrics are of the model and of an exported file alike."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from kerasbert.tasks import predict
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import Encoded, encode_texts, training_batches
from kerasbert.testing.case import LENGTH, NEAR, Case

if TYPE_CHECKING:
    from kerasbert.inputs import Tensor


TRAINED = 8  # inputs of a batch
Targets = np.ndarray | Sequence[object]  # one for each row
Batch = dict[str, tf.Tensor]


def check_losses(case: Case) -> None:
    """Losses and counts are sums over the inputs of a batch; what fills a batch up counts for nothing; heads are trained."""
    count = min(TRAINED, len(case.rows.texts) // 2 * 2)
    with case.blamed("making the rows and the batch of training"):
        encoded, targets = _encoded(case, count)
        whole = _batch(case, encoded, targets, range(count))
    sums = _sums(case, whole)
    with case.blamed("making a batch that is not full"):
        filled = _batch(case, encoded, targets, range(count), filling=2)
    for name, value in _sums(case, filled).items():
        _equal(case, name, value, sums[name], "rows that fill a batch up count (their label_weight is 0)")
    if case.kind.whole:  # the loss of an input depends on the others
        _check_gradients(case, whole)
        return
    with case.blamed("making a batch of half of the rows"):
        halves = [_batch(case, encoded, targets, half) for half in (range(count // 2), range(count // 2, count))]
    parts = [_sums(case, half) for half in halves]
    for name, value in sums.items():
        _equal(case, name, value, parts[0][name] + parts[1][name], "of two halves of a batch it adds up to another")
    _check_gradients(case, whole)


def _encoded(case: Case, count: int) -> tuple[Encoded, Targets]:
    """Packed rows of training, and their targets in the unit of the head."""
    kind, model = case.kind, case.model
    reads = (*predict.declared(model, kind), *kind.targets_read)
    texts, targets = case.rows.texts[:count], case.rows.take(range(count)).targets
    rows = encode_texts(model.tokenizer, texts, LENGTH, kind=kind, declared=reads, settings=predict.settings_of(model))
    return rows, kind.scaled(case.task, targets)


def _batch(case: Case, encoded: Encoded, targets: Targets, texts: Sequence[int], filling: int = 0) -> Batch:
    """A batch of all rows of some texts, in some order, and of as many as fill it up."""
    texts, encoded = list(texts), encoded.take(texts)
    count = len(encoded.units(case.kind.together)) + filling
    some = targets[texts] if isinstance(targets, np.ndarray) else [targets[i] for i in texts]
    batches = training_batches(encoded, some, batch=count, longest=LENGTH, seed=0, task=case.task)
    return {name: tf.convert_to_tensor(value) for name, value in next(batches).items()}


def _sums(case: Case, batch: Batch) -> dict[str, float]:
    """Counts ("count of NAME") and losses of a batch."""
    with case.blamed("computing the losses"):
        counts, losses = case.program.counts(batch), case.program.losses(batch, training=False)
    for name, value in (counts | losses).items():
        shape = tuple(np.shape(value))
        assert shape == (), f"{case.training}: {name!r} has the shape {shape}, expected a number: a sum over the batch"
        assert np.isfinite(value), f"{case.training}.losses gives {name!r} as {float(value)}, expected a finite number"
    missing = ", ".join(map(repr, counts.keys() - losses.keys()))
    assert not missing, f"{case.training}.counts counts {missing}, which its losses do not give"
    return {f"count of {name}": float(value) for name, value in counts.items()} | {
        name: float(value) for name, value in losses.items()
    }


def _equal(case: Case, name: str, value: float, other: float, told: str) -> None:
    method = f"counts: {name}" if name.startswith("count of ") else f"losses: {name!r}"
    near = abs(value - other) <= NEAR * max(1.0, abs(value))
    assert near, (
        f"{case.training}.{method} is {value:.6g}, and {told}: {other:.6g}. Sums, not means, of what has a weight"
    )


def _check_gradients(case: Case, batch: Batch) -> None:
    """The losses train the heads."""
    weights = {weight.path: weight.value for head in case.model.heads.values() for weight in head.trainable_weights}
    with case.blamed("differentiating the losses"), tf.GradientTape() as tape:
        losses = case.program.losses(batch, training=False)
        loss = sum(losses[name] for name in case.program.counts(batch))
    gradients = tape.gradient(loss, list(weights.values()))
    idle = [name for name, gradient in zip(weights, gradients) if gradient is None]
    assert not idle, f"{case.training}.losses trains no {', '.join(idle)}: no gradient comes to what its heads gives"


def _check_report(case: Case, task: Task, outputs: "Tensor", packed: Encoded) -> None:
    """What the report of a run asks is json, and of all inputs the metrics are those of `metrics`."""
    kind, targets, count = case.kind, case.rows.targets, len(case.rows.texts)
    judged, found = kind.judged(task, outputs, targets, packed), kind.metrics(task, outputs, targets, packed)
    known = [judged.sampled(range(count)), kind.baseline(task, targets, packed), dict(judged.picture)]
    answers = [judged.answer(number) for number in range(count)]
    json.dumps([known, answers], allow_nan=False)
    for name, value in known[0].items():
        assert abs(value - found[name]) <= NEAR * max(1.0, abs(value)), (
            f"{case.training}.judged: {name} of all inputs is {value:.4f} by its `sampled`, {found[name]:.4f} by metrics"
        )
    labels = case.rows.labels or [""] * count
    for each in zip(case.rows.texts, targets, labels, json.loads(json.dumps(answers))):
        shown = kind.shown(task, *each)
        assert all(isinstance(part, str) for part in shown), (
            f"{case.training}.shown gives {shown!r:.80}, expected two texts"
        )


def check_metrics(case: Case) -> None:
    """Metrics are numbers by name, that of the task among them; an exported file's outputs give the same."""
    kind, task = case.kind, case.model.task
    packed, outputs, given = case.outputs(case.rows.texts)
    with case.blamed("measuring the rows"):
        found = task.measured(outputs, case.rows.targets, packed)
    assert task.metric in found, f"{case.training}.metrics gives {', '.join(found)}, not {task.metric!r} of the task"
    wrong = {name: value for name, value in found.items() if not np.isfinite(float(value))}
    assert not wrong, f"{case.training}.metrics gives {wrong}, expected finite numbers"
    with case.blamed("telling the details of the metrics"):
        json.dumps(kind.details(task, outputs, case.rows.targets, packed), allow_nan=False)
        remarks = kind.remarks(task, outputs, case.rows.targets)
        tuned = kind.tuned(task, outputs, case.rows.targets, packed)
        kind.better(task.metric, 1.0, 0.0)
        _check_report(case, task, outputs, packed)
    assert isinstance(tuned, Task), f"{case.training}.tuned gives a {type(tuned).__name__}, expected the Task"
    assert all(isinstance(line, str) for line in remarks), f"{case.training}.remarks gives no lines: {remarks!r:.80}"
    if kind.answers.reader != "answer":
        return
    with case.blamed("measuring the outputs of an exported file"):
        back = kind.from_exported(given if kind.per_token else np.stack([np.atleast_1d(row) for row in given]))
        again = task.measured(back, case.rows.targets, packed)
    for name, value in found.items():
        assert abs(value - again[name]) <= 1e-3 * max(1.0, abs(value)), (
            f"{case.training}.metrics: {name} is {value:.4f}, and {again[name]:.4f} of an exported file with the same outputs: "
            f"{case.training}.from_exported has to undo {case.phone}.probabilities"
        )
