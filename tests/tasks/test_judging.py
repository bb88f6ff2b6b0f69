"""What reports show of each kind: the sampled metrics are the metrics, baselines are what a constant answer reaches."""

import dataclasses
import re

import numpy as np
import pytest

from kerasbert.tasks import labels
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import find_task
from kerasbert.training import judgement
from tests import tiny
from tests.tasks.reports import case, check_baseline, check_report


@pytest.mark.parametrize("kind", ["classification", "vector"])
def test_a_report_of_answers(kind):
    """The other kinds are in their own tests."""
    check_report(kind)
    if kind == "classification":
        check_baseline(kind)


def test_a_kind_without_code_of_its_own_shows_its_answers():
    from kerasbert.tasks.judging import Judging

    task, outputs, targets, encoded, _ = case("classification")
    judged = Judging.judged(task.how, task, outputs, targets, encoded)
    assert judged.errors is None
    assert judged.answer(3).split("\t")[0] in task.labels
    assert judged.sampled([1, 1, 2]) == pytest.approx(task.how.metrics(task, outputs[[1, 1, 2]], targets[[1, 1, 2]]))
    found = judgement.judgement(task, outputs, targets, encoded, 24)["wrong"]
    assert len(found["listed"]) == min(20, found["count"])


def test_macro_f1_of_a_constant_or_of_any_label_by_chance():
    task, targets = find_task("classification"), np.array([0, 1] * 50)
    task = dataclasses.replace(task, labels={"a": "a", "b": "b"})
    known = task.how.baseline(task, targets, None)
    assert known == {
        "accuracy": 0.5,
        "f1_macro": 0.5,
        "matthews": 0.0,
        "roc_auc": 0.5,
        "f1_positive": pytest.approx(2 / 3),
    }
    assert task.how.baseline(task, np.array([0] * 9 + [1]), None)["f1_macro"] == pytest.approx(0.9 / 1.9)
    assert task.how.baseline(task, np.zeros(9, int), None) == {}


def test_answers_that_are_nearly_all_one_label_are_told_and_a_balanced_share_of_a_rare_one_is_not():
    def told(wanted, answered):
        return labels.nearly_one(np.repeat([0, 1], wanted), np.repeat([0, 1], answered), ["a", "b"])

    assert told([91, 90], [178, 3]) == "178 of 181 answers are 'a', which 91 of the rows are labelled"
    assert told([950, 50], [955, 45]) == ""  # unbalanced, and learnt
    assert told([950, 50], [995, 5]) != ""
    assert told([100, 0], [100, 0]) == ""  # nothing else was to be answered
    assert told([18, 2], [20, 0]) == ""  # too few to say so


def judge(answered, wanted, count=400, seed=0):
    """dev.json of answers to 0 and 1: `answered` is the share that is right of each label."""
    task = dataclasses.replace(find_task("classification"), labels={"a": "a", "b": "b"})
    draw = np.random.default_rng(seed)
    targets = (np.arange(count) >= count * wanted).astype("int32")
    right = draw.uniform(size=count) < np.asarray(answered)[targets]
    outputs = np.eye(2, dtype="float32")[np.where(right, targets, 1 - targets)] + draw.normal(0, 0.1, (count, 2))
    encoded = encode_texts(tiny.tokenizer(), ["the cat"] * count, 16)
    dev = judgement.judgement(task, outputs.astype("float32"), targets, encoded, 16)
    return task, dev | {"metrics": task.how.metrics(task, outputs, targets)}


@pytest.mark.parametrize(
    ("answered", "wanted", "said"),
    [
        ((0.5, 0.5), 0.5, "accuracy is .* no metric is better than that beyond noise. Try more --epochs \\(52 "),
        ((0.99, 0.02), 0.5, "answers are 'a', which 200 of the rows are labelled.* Try "),
        ((0.9, 0.9), 0.5, ""),
        ((0.99, 0.5), 0.95, ""),  # accuracy is at most a little above the majority's
    ],
)
def test_a_run_that_learnt_too_little_is_told_what_to_change(answered, wanted, said, monkeypatch):
    monkeypatch.setattr(judgement, "RESAMPLES", 200)
    task, dev = judge(answered, wanted)
    lines = judgement.too_little(task, dev, {"steps": 52, "batch": 32, "learning_rate": 5e-5})
    assert (lines == []) if not said else re.search(said, lines[0]), lines


@pytest.mark.parametrize("steps", [1, 5, 19, 20])
def test_few_updates_are_told_whatever_the_metrics_say(steps, monkeypatch):
    """A good metric only makes it less sure: an F1 is above that of a constant answer, 0, at once."""
    monkeypatch.setattr(judgement, "RESAMPLES", 50)
    lines = judgement.too_little(*judge((0.9, 0.9), 0.5), {"steps": steps, "batch": 32, "learning_rate": 5e-5})
    made = "1 update was" if steps == 1 else f"{steps} updates were"
    begun = (
        f"the run may have learnt too little: only {made} made, in which a new head learns little. Try more --epochs"
    )
    assert [line.startswith(begun) for line in lines] == [True] * (steps < 20)


def test_few_updates_are_told_where_nothing_shows_that_the_task_was_learnt():
    task = find_task("translation")
    settings = {"steps": 6, "batch": 8, "learning_rate": 1e-3}
    (line,) = judgement.too_little(task, {}, settings)
    assert "only 6 updates were made" in line
    assert "--batch" not in line
    assert judgement.too_little(task, {}, settings | {"keep_head": True}) == []
    assert judgement.too_little(task, {}, settings | {"steps": 500}) == []


def test_a_mistake_of_a_plug_in_loses_no_training(monkeypatch):
    task, outputs, targets, encoded, _ = case("classification")
    monkeypatch.setattr(type(task.how), "judged", lambda *_: 1 / 0)
    found, why = judgement.safely(task, outputs, targets, encoded, 24)
    assert found == {}
    assert why.startswith(
        "the report lacks intervals and answers: judging the kind 'classification' raised ZeroDivision"
    )


def test_intervals_are_the_same_each_time_and_none_of_few_inputs():
    values = np.random.default_rng(1).normal(size=50)
    (first, count), again = (
        judgement.intervals(lambda some: {"mean": float(values[some].mean())}, 50) for _ in range(2)
    )
    assert first == again[0]
    assert count == 500
    low, high = first["mean"]
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 50**0.5, rel=0.15)
    assert judgement.intervals(lambda some: {"mean": 0.0}, 9) == ({}, 0)
