"""One label: decoding, what is told of it, by hand."""

import pytest

from kerasbert import answers, inputs
from kerasbert.answers import Classification
from kerasbert.answers.classification import best
from kerasbert.errors import InputError

KIND = answers.find("classification")
SCORES = {"a": 0.2, "b": 0.5, "c": 0.3}


def test_the_largest_is_the_answer_and_of_equals_the_first():
    row = inputs.row((), ())
    assert KIND.decode((), [row], [[0.2, 0.5, 0.3]], ("a", "b", "c")) == Classification("b", 0.5, SCORES)
    assert KIND.decode((), [row], [[0.4, 0.2, 0.4]], ("a", "b", "c")).label == "a"
    with pytest.raises(ValueError, match="shorter"):
        KIND.decode((), [row], [[0.4, 0.6]], ("a", "b", "c"))


def test_json_and_lines():
    answer = Classification("b", 0.5, SCORES, True)
    assert answer.to_json() == {"label": "b", "score": 0.5, "scores": SCORES, "truncated": True}
    assert "truncated" not in Classification("b", 0.5, SCORES).to_json()
    assert KIND.text(answer.to_json()) == "b\t0.5000"
    assert KIND.line(answer.to_json(), "a film") == "b\t0.5000\ta film"


def test_the_best_of_some_scores():
    assert best(SCORES, None, None) == {"b": 0.5, "c": 0.3, "a": 0.2}
    assert [*best(SCORES, None, None)] == ["b", "c", "a"]
    assert [*best(SCORES, 1, None)] == ["b"]
    assert [*best(SCORES, 3, 0.3)] == ["b", "c"]  # a threshold that is just reached
    assert [*best({"a": 0.5, "b": 0.5}, 1, None)] == ["a"]
    assert KIND.limited(Classification("b", 0.5, SCORES), 1, 0.6) == Classification("b", 0.5, {})


@pytest.mark.parametrize("top", [0, -1, 1.5, True, "2"])
def test_top_is_a_whole_number_of_at_least_1(top):
    with pytest.raises(InputError, match="top is .*, expected a whole number of at least 1"):
        KIND.ranking(top, None)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", True])
def test_a_threshold_is_a_probability(threshold):
    with pytest.raises(InputError, match="threshold is .*, expected a probability from 0 to 1"):
        KIND.ranking(None, threshold)


def test_the_ends_of_both_are_allowed():
    for top, threshold in ((1, 0), (7, 1), (None, 0.5), (2, None), (None, None)):
        assert KIND.ranking(top, threshold) is KIND
    with pytest.raises(InputError, match="a regression ranks nothing: leave them out"):
        answers.find("regression").ranking(1, None)
