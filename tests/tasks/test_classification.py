"""Classes by hand: targets, weights, smoothing, what is told of answers and what a constant one reaches. No network."""

import dataclasses

import numpy as np
import pytest

from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.tasks import classification
from kerasbert.tasks.classification import log_odds, one_number
from kerasbert.tasks.task import find_task

KIND = classification.KIND
TASK = dataclasses.replace(find_task("classification"), label="label", labels={"0": "no", "1": "yes", "2": "maybe"})
TARGETS = np.array([0, 0, 0, 1, 1, 2], "int32")


def test_targets_are_numbers_of_values_or_of_their_names():
    found = KIND.targets(TASK, "a.csv", [2, 3, 4, 5], ["1", "yes", 2, "no"], [])
    assert (found.tolist(), found.dtype) == ([1, 1, 2, 0], "int32")
    with pytest.raises(InputError, match="'perhaps'"):
        KIND.targets(TASK, "a.csv", [2, 3], ["no", "perhaps"], [])
    positive = dataclasses.replace(TASK, metric="f1_positive")
    with pytest.raises(InputError, match="f1_positive is of the second of two labels, a.csv has 3: take f1_macro"):
        KIND.targets(positive, "a.csv", [2], ["no"], [])
    two = dataclasses.replace(positive, labels={"0": "no", "1": "yes"})
    assert KIND.targets(two, "a.csv", [2], ["no"], []).tolist() == [0]


def test_balanced_weights_make_labels_count_alike():
    task = TASK.optioned({"class_weights": "balanced"})
    found = task.how.fitted(task, "a.csv", TARGETS)
    assert found.options["class_weights"] == pytest.approx({"no": 6 / 9, "yes": 1.0, "maybe": 2.0})
    batch = found.how.batch(found, None, TARGETS, 8, 4)
    sums = [batch["label_weight"][:6][label == TARGETS].sum() for label in range(3)]
    assert sums == pytest.approx([2, 2, 2])
    assert batch["label_weight"][6:].tolist() == [0, 0]
    rare = task.how.fitted(task, "a.csv", TARGETS[:5]).options["class_weights"]  # a label without rows
    assert rare == pytest.approx({"no": 5 / 9, "yes": 5 / 6, "maybe": 5 / 3})
    with pytest.raises(InputError, match="class_weights are 'balanced' where a head is kept"):
        task.how.batch(task, None, TARGETS, 8, 4)
    by_value = TASK.optioned({"class_weights": {"1": 3, "maybe": 0}})
    batch = by_value.how.batch(by_value.how.fitted(by_value, "a.csv", TARGETS), None, TARGETS, 6, 4)
    assert batch["label_weight"].tolist() == [1, 1, 1, 3, 3, 0]


@pytest.mark.parametrize(
    "weights", [{"no": -1}, {"other": 1}, {"no": 0}, {"no": float("inf")}, {"no": "1"}, "equal", [1, 2]]
)
def test_weights_that_are_none(weights):
    task = TASK.optioned({"class_weights": weights})
    with pytest.raises(
        InputError, match='expected "balanced", or a number of at least 0 for labels among no, yes, maybe'
    ):
        task.how.fitted(task, "a.csv", TARGETS)


@pytest.mark.parametrize(("smoothing", "right"), [(0.0, True), (0.99, True), (1.0, False), (-0.1, False)])
def test_smoothing_is_a_share_below_1(smoothing, right):
    """Szegedy et al. (2016): a share of a target is of all labels alike."""
    task = TASK.optioned({"label_smoothing": smoothing})
    if not right:
        with pytest.raises(InputError, match="label_smoothing must be at least 0 and below 1"):
            task.how.fitted(task, "a.csv", TARGETS)
        return
    assert task.how.fitted(task, "a.csv", TARGETS) is task
    logits = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    batch = one_number(TARGETS, 8, "int32")
    target = (1 - smoothing) * np.eye(3)[TARGETS] + smoothing / 3
    logs = np.log(softmax(logits[:6].astype("float64")))
    found = task.how.losses(task, logits, batch)
    assert float(found["label"]) == pytest.approx(-(target * logs).sum(), rel=1e-5)
    assert float(found["label/accuracy"]) == (logits[:6].argmax(-1) == TARGETS).sum()


def answers(numbers):
    return np.eye(3)[numbers] * 4.0


def test_what_is_told_of_answers_and_rows_that_are_all_one_label():
    assert KIND.remarks(TASK, answers([1] * 6), TARGETS) == ["all 6 answers are 'yes'"]
    assert KIND.remarks(TASK, answers(TARGETS), 0 * TARGETS) == [
        "all 6 rows are labelled 'no': their metrics say little"
    ]
    assert KIND.remarks(TASK, answers([1]), np.array([1])) == [
        "all 1 rows are labelled 'yes': their metrics say little"
    ]
    assert KIND.remarks(TASK, answers([0, 1, 2, 0, 1, 2]), TARGETS) == []


def test_a_baseline_is_what_constant_answers_reach():
    found = KIND.baseline(TASK, TARGETS, None)
    constant = [KIND.metrics(TASK, answers([label] * 6), TARGETS) for label in range(3)]
    assert found["accuracy"] == pytest.approx(max(each["accuracy"] for each in constant))
    shares = np.array([3, 2, 1]) / 6  # any label by chance: precision is the share, recall a third
    chance = np.mean(2 * shares / 3 / (shares + 1 / 3))
    assert found["f1_macro"] == pytest.approx(max(chance, max(np.mean([2 * s / (1 + s), 0, 0]) for s in shares)))
    assert "f1_positive" not in found
    two = KIND.baseline(dataclasses.replace(TASK, labels={"0": "no", "1": "yes"}), TARGETS[:5], None)
    assert two["f1_positive"] == pytest.approx(2 * 0.4 / 1.4)
    assert KIND.baseline(TASK, 0 * TARGETS, None) == {}


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_log_odds(labels):
    logits = np.random.default_rng(0).normal(size=(5, labels)).astype("float32")
    shares = softmax(logits.astype("float64"))
    for number in range(labels):
        found = np.asarray(log_odds(logits, number))
        if labels == 1:
            np.testing.assert_allclose(found, logits[:, 0])
            continue
        np.testing.assert_allclose(found, np.log(shares[:, number] / (1 - shares[:, number])), atol=1e-5)


def test_an_answer_that_is_wrong_is_worse_the_surer_it_is():
    found = KIND.judged(TASK, np.array([[0.0, 2, 0], [3, 0, 0], [0, 0, 1]]), np.array([1, 1, 1]), None)
    sure = softmax(np.array([[3.0, 0, 0], [0, 0, 1]])).max(-1)
    assert found.errors == pytest.approx([0, *sure])
    assert found.answer(1) == {"label": "no", "score": round(float(sure[0]), 4)}
    assert KIND.shown(TASK, "", 1, None, {"label": "no", "score": 0.5}) == ("yes", "no (0.50)")
