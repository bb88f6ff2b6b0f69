"""Fidelity, offset and ties, in numbers worked out by hand."""

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.answers import nearness

DRAW = np.random.default_rng(0)


def test_fidelity_sees_what_a_constant_answer_hides():
    """A model that gives one label to every text: equal labels say nothing, its scores do."""
    kind = answers.find("classification")
    own = 0.8 + 0.05 * DRAW.uniform(size=200)
    model = np.stack([own, 1 - own], 1).astype("float32")
    rounded = np.stack([own + 0.001, 1 - own - 0.001], 1).astype("float32")
    other = np.stack([0.8 + 0.05 * DRAW.uniform(size=200), np.zeros(200)], 1)
    other[:, 1] = 1 - other[:, 0]
    assert [kind.agreement(model, each) for each in (rounded, other)] == [1, 1]
    near, far = (nearness.fidelity(kind.signal(model), kind.signal(each)) for each in (rounded, other))
    assert near > 0.999
    assert far == 0
    assert nearness.offset(kind.signal(model), kind.signal(rounded)) > 0


def test_fidelity_falls_by_a_wrong_scale_which_a_correlation_does_not_see():
    x = DRAW.normal(size=(100, 3))
    assert nearness.fidelity(x, 1.1 * x) == pytest.approx(0.99)
    assert nearness.fidelity(x, 0.5 * x) == pytest.approx(0.75)
    assert nearness.fidelity(x, 3 * x) == 0
    assert nearness.offset(x, x + x.std()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("received", [np.full((3, 2), np.nan), np.full((3, 2), np.inf)])
def test_numbers_that_are_not_finite_keep_nothing(received):
    assert nearness.fidelity(np.arange(6.0).reshape(3, 2), received) == 0


def test_few_rows():
    one = np.array([[1.0, -1.0]])
    assert nearness.fidelity(one, one) == nearness.fidelity(one[:0], one[:0]) == 1
    assert nearness.fidelity(one, -one) == 0
    assert nearness.fidelity(np.ones((4, 2)), np.ones((4, 2)) * 1.5) == 1  # a constant that is off
    assert nearness.same_best(one[:0], one[:0]) == 1


def test_a_tie_is_no_wider_than_the_files_own_error():
    """Margins of .01 tie where the file is off by .01; where it is off by .001 that pair is another answer."""
    x = np.stack([DRAW.normal(size=400), np.zeros(400)], 1)
    x[0] = 0.01, 0
    noise = np.zeros_like(x)
    noise[:, 0] = 0.01 * np.where(np.arange(400) % 2, 1, -1)
    noise[0, 0] = -0.015
    assert nearness.same_best(x, x + noise) < 1
    assert nearness.same_best(x, x + noise, ties=True) == 1
    noise *= 0.01
    noise[0, 0] = -0.015
    assert nearness.same_best(x, x + noise, ties=True) == pytest.approx(1 - 1 / 400)


def test_a_bad_file_cannot_call_everything_a_tie():
    x = DRAW.normal(size=(400, 2))
    assert nearness.same_best(x, -x, ties=True) < 0.2


def test_scores_of_choices_are_of_an_inputs_choices():
    kind, owners = answers.find("choice"), np.array([0, 0, 1, 1, 1])
    found = kind.signal([np.array([value]) for value in (1.0, 1.0, 0.0, 50.0, 0.0)], owners)
    np.testing.assert_allclose(found, [[np.log(0.5), np.log(0.5), -10], [-10, 0, -10]], atol=1e-6)


def test_a_tie_is_twice_the_rounding_and_at_most_a_fifth_of_the_spread():
    expected = np.array([[0.0], [10.0]])  # a standard deviation of 5
    errors = np.array([3.0, -3.0, 3.0, -3.0])
    assert nearness.rounding(0.1 * errors, expected) == pytest.approx(2 * 0.3)
    assert nearness.rounding(errors, expected) == pytest.approx(nearness.TIE * 5)
    assert nearness.spread(np.array([[1.0, 2.0, 6.0]])) == pytest.approx(np.std([1, 2, 6]))  # a single row: its columns
    assert nearness.spread(np.array([[1.0, 7.0], [3.0, 7.0]])) == pytest.approx(np.sqrt(0.5))
    assert nearness.offset(np.array([[0.0], [2.0]]), np.array([[3.0], [2.0]])) == pytest.approx(1.5)
