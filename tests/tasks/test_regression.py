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
