"""Classes by hand: targets, weights, smoothing, what is told of answers and what a constant one reaches. No network."""

import dataclasses
import types

import numpy as np
import pytest

from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.tasks import classification, labels
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


OUTPUTS = np.array([[2.0, 0, 0], [0, 2, 0], [2, 1, 0], [0, 2, 1], [0, 1, 2], [0, 0, 2]])


def test_metrics_by_hand():
    """Rows 0 and 2 of 'no' are right, 3 of 'yes', 5 of 'maybe'; 'no' is answered twice, the others too."""
    found = KIND.metrics(TASK, OUTPUTS, TARGETS)
    shares = softmax(OUTPUTS)
    f1 = [2 * 2 / (2 + 3), 2 * 1 / (2 + 2), 2 * 1 / (2 + 1)]
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["f1_macro"] == pytest.approx(np.mean(f1))
    assert found["loss"] == pytest.approx(-np.log(shares[np.arange(6), TARGETS]).mean())
    areas = []
    for label in range(3):
        own, other = shares[label == TARGETS, label], shares[label != TARGETS, label]
        areas.append(np.mean([(a > b) + 0.5 * (a == b) for a in own for b in other]))
    assert found["roc_auc"] == pytest.approx(np.mean(areas))
    details = KIND.details(TASK, OUTPUTS, TARGETS)
    assert details["confusion"] == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]
    assert details["labels"]["yes"] == pytest.approx(
        {"precision": 0.5, "recall": 0.5, "f1": 0.5, "roc_auc": areas[1], "rows": 2}, abs=1e-6
    )
    sampled = KIND.judged(TASK, OUTPUTS, TARGETS, None).sampled(np.arange(6))
    assert sampled == pytest.approx({name: found[name] for name in sampled})
    two = dataclasses.replace(TASK, labels={"0": "no", "1": "yes"})
    found = KIND.metrics(two, OUTPUTS[:5, :2], TARGETS[:5])
    assert found["f1_positive"] == pytest.approx(2 * 2 / (3 + 2))
    assert KIND.metrics(two, OUTPUTS[:3, :2], 0 * TARGETS[:3])["roc_auc"] == 0.0  # nothing to be told apart


def test_labels_are_those_of_the_rows_or_of_what_it_goes_on_from():
    bare = dataclasses.replace(TASK, labels={})
    assert [*KIND.with_labels(bare, "a.csv", [2, 3, 4], ["10", "9", " 9 "]).labels] == ["9", "10"]
    assert KIND.with_labels(TASK, "a.csv", [2], ["x"]) is TASK
    assert KIND.continued(TASK, {"labels": {"x": "x"}}) is TASK
    assert KIND.continued(bare, {"labels": {"x": "y"}}).labels == {"x": "y"}
    assert KIND.continued(bare, {}).labels == {}


def test_labels_that_no_dev_row_has_are_told():
    train, dev = (types.SimpleNamespace(targets=np.array(targets)) for targets in ([0, 1, 1], [1, 2]))
    assert KIND.absent(TASK, train, dev) == labels.absent(["no"])
    assert KIND.absent(TASK, dev, dev) == labels.absent([])


def test_a_pooling_of_its_own_takes_the_place_of_the_pooler():
    pooled = TASK.optioned({"pooling": "mean+max"})
    assert (KIND.pooler, pooled.how.pooler) == (True, False)
    assert pooled.how.readout(pooled, None) == "mean+max"
    wrong = TASK.optioned({"pooling": "median"})
    with pytest.raises(InputError, match="median|readout must be one of"):
        wrong.how.readout(wrong, None)
    assert KIND.unlabelled(TASK, ["a", "b"]).tolist() == [0, 0]


def test_what_a_server_answers():
    model = types.SimpleNamespace(labels=("no", "yes", "maybe"))
    found = KIND.exported(model, {"logits": OUTPUTS.astype("float32")}, {})
    assert list(found) == ["probabilities", "label_ids", "labels"]
    np.testing.assert_allclose(found["probabilities"], softmax(OUTPUTS), rtol=1e-5)
    assert found["label_ids"].numpy().tolist() == [0, 1, 0, 1, 2, 2]
    assert found["labels"].numpy().tolist() == [b"no", b"yes", b"no", b"yes", b"maybe", b"maybe"]
    of_examples = KIND.of_examples(found, model.labels)
    assert of_examples["classes"].numpy().tolist() == [[b"no", b"yes", b"maybe"]] * 6
    assert of_examples["scores"] is found["probabilities"]
    assert KIND.pipeline_tag(TASK) == "text-classification"
    assert all(f"`{name}`" in KIND.described() for name in found)
    assert KIND.check_target("mediapipe") is None


@pytest.mark.parametrize(("target", "number"), [(None, 1), ("maybe", 2), ("no", 0)])
def test_a_label_that_is_explained(target, number):
    logits = np.array([[0.5, 2.0, 1.0]], "float32")
    row, what, value = KIND.explained(TASK, None, logits, target)
    assert (row, what) == (0, f"log-odds of {['no', 'yes', 'maybe'][number]}")
    np.testing.assert_allclose(value(logits), log_odds(logits, number))
