"""Numbers of regression by hand: what is fitted, scaled, answered and told. No network."""

import dataclasses

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import regression
from kerasbert.tasks.task import find_task

KIND = regression.KIND
TASK = dataclasses.replace(find_task("regression"), label="score")


def fitted(numbers, **options):
    task = TASK.optioned(options)
    return task.how.fitted(task, "a.csv", np.array(numbers, "float32"))


def test_targets_are_scaled_by_the_mean_and_deviation_of_the_training_rows():
    task = fitted([1, 2, 3, 6])
    assert (task.mean, task.std) == (3.0, pytest.approx(3.5**0.5))
    targets = np.array([3, 3 + 3.5**0.5], "float32")
    np.testing.assert_allclose(KIND.scaled(task, targets), [0, 1], atol=1e-6)
    assert KIND.scaled(TASK, targets) is targets
    logits = np.array([[0.0], [1.0], [-2.0]], "float32")
    np.testing.assert_allclose(KIND.outputs(task, logits)["value"], 3 + 3.5**0.5 * logits[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(KIND.outputs(TASK, logits)["value"], logits[:, 0])
    with pytest.raises(InputError, match="a.csv: all 3 numbers in column 'score' of the training rows are 2, expected"):
        fitted([2, 2, 2])


@pytest.mark.parametrize(
    ("numbers", "right"),
    [([0, 1], True), ([0.2, 0.9], True), ([-0.01, 1], False), ([0, 1.01], False), ([-1, 2], False)],
)
def test_a_sigmoid_gives_numbers_from_0_to_1(numbers, right):
    if right:
        task = fitted(numbers, activation="sigmoid")
        assert (task.mean, task.std) == (0.0, 1.0)
        value = task.how.outputs(task, np.array([[0.0], [2.0]], "float32"))["value"]
        np.testing.assert_allclose(value, [0.5, 1 / (1 + np.exp(-2))], rtol=1e-6)
        return
    assert fitted(numbers).std != 1.0
    with pytest.raises(InputError, match="a.csv: numbers of .* expected 0 to 1, which the activation sigmoid gives"):
        fitted(numbers, activation="sigmoid")


def test_losses_are_squared_errors_of_rows_that_count():
    batch = KIND.batch(TASK, None, np.array([1.0, 3.0], "float32"), 3, 8)
    assert {name: value.tolist() for name, value in batch.items()} == {"label": [1, 3, 0], "label_weight": [1, 1, 0]}
    logits = np.array([[2.0], [0.0], [9.0]], "float32")
    assert float(KIND.losses(TASK, logits, batch)["label"]) == 1 + 9
    sigmoid = TASK.optioned({"activation": "sigmoid"})
    found = float(sigmoid.how.losses(sigmoid, np.zeros((3, 1), "float32"), batch)["label"])
    assert found == pytest.approx(0.5**2 + 2.5**2)


@pytest.mark.parametrize(
    ("outputs", "said"),
    [([2, 2, 2], "all 3 answers are 2"), ([2, 2.1, 2], ""), ([2], ""), ([0, 0], "all 2 answers are 0")],
)
def test_answers_that_are_all_one_number_are_told(outputs, said):
    values = np.array(outputs, "float32")
    assert KIND.collapsed(TASK, values, values) == said


def test_what_is_judged_is_how_far_an_answer_is_off():
    outputs, targets = np.array([1.0, 2.0, 4.5]), np.array([1.0, 3.0, 3.0])
    found = KIND.judged(TASK, outputs, targets, None)
    assert (found.errors.tolist(), found.answer(2), found.graded) == ([0, 1, 1.5], 4.5, True)
    assert KIND.baseline(TASK, targets, None)["mean_squared_error"] == pytest.approx(np.var(targets))
    assert found.sampled([1, 2])["mean_squared_error"] == pytest.approx((1 + 1.5**2) / 2)
    np.testing.assert_array_equal(KIND.from_exported([np.array([1.0]), np.array([2.0])]), [1, 2])


def test_the_number_is_what_servers_and_phones_answer():
    value = np.array([1.0, 2.5], "float32")
    np.testing.assert_array_equal(KIND.device({"value": value}, {}), [[1.0], [2.5]])
    assert KIND.exported(None, {"value": value}, {}) == {"value": value}
    assert KIND.of_examples({"value": value}, ()) == {"outputs": value}
    np.testing.assert_array_equal(KIND.from_exported(np.asarray(KIND.device({"value": value}, {}))), value)
    assert (KIND.pipeline_tag(TASK), KIND.described()) == ("text-classification", "`value` [B] float32")
    assert KIND.pipeline_tag(dataclasses.replace(TASK, text_b="other")) == "sentence-similarity"
    for target in ("mediapipe", "task_library"):
        with pytest.raises(InputError, match="the model is for a regression, expected .*: .* has no other"):
            KIND.check_target(target)


def test_metrics_and_baselines_by_hand():
    outputs, targets = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    found = KIND.metrics(TASK, outputs, targets)
    centred = (outputs - outputs.mean(), targets - targets.mean())
    pearson = (centred[0] @ centred[1]) / np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum())
    assert found == pytest.approx({"pearson": pearson, "spearman": 0.5, "mean_squared_error": 5 / 3})
    assert KIND.baseline(TASK, targets, None) == pytest.approx(
        {"mean_squared_error": 2 / 3, "pearson": 0.0, "spearman": 0.0}
    )
    judged = KIND.judged(TASK, outputs, targets, None)
    assert judged.picture == {"title": "Answers beside targets", "points": [[1, 1], [3, 2], [2, 4]], "of": 3}


def test_the_number_that_is_explained_is_the_answer():
    task = dataclasses.replace(TASK, mean=3.0, std=2.0)
    row, what, value = KIND.explained(task, None, None, None)
    assert (row, what, value(np.array([[0.5], [-1.0]])).tolist()) == (0, "the number", [4.0, 1.0])
    sigmoid = TASK.optioned({"activation": "sigmoid"})
    assert float(sigmoid.how.explained(sigmoid, None, None, None)[2](np.zeros((1, 1), "float32"))[0]) == 0.5
    with pytest.raises(InputError, match="target"):
        KIND.explained(task, None, None, "a")


@pytest.mark.parametrize("cell", ["a", "nan", "inf", "1e39", ""])
def test_a_cell_that_is_no_number_is_named(cell):
    """And a number that float32 does not hold, of which numpy warned before it was refused."""
    assert KIND.targets(TASK, "a.csv", [2, 3], ["1.5", -2], []).tolist() == [1.5, -2]
    with pytest.raises(InputError, match="a.csv, line 4"):
        KIND.targets(TASK, "a.csv", [4], [cell], [])
