"""Several labels: thresholds, decoding, agreement, by hand."""

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.answers import MultiLabel
from kerasbert.answers.multi_label import sigmoid
from kerasbert.errors import InputError

KIND = answers.find("multi_label")
LABELS = ("a", "b", "c")


def decoded(kind, *values, truncated=False):
    return kind.decode((), [inputs.row((), (), truncated)], [np.array(values)], LABELS)


def test_labels_that_reach_their_threshold():
    answer = decoded(KIND, 0.5, 0.25, 0.75)
    assert answer == MultiLabel(("a", "c"), {"a": 0.5, "b": 0.25, "c": 0.75})  # 0.5 is reached
    own = KIND.configured({"thresholds": [0.75, 0.25, 0.875]})
    assert decoded(own, 0.5, 0.25, 0.75).labels == ("b",)
    assert decoded(KIND, 0.1, 0.2, 0.3).labels == ()
    assert KIND.thresholds(2).tolist() == [0.5, 0.5]
    assert KIND.chosen([[0.5, 0.4], [0.1, 0.9]]).tolist() == [[True, False], [False, True]]
    with pytest.raises(InputError, match="3 thresholds, expected one for each of the 2 labels"):
        own.thresholds(2)


def test_json_and_text():
    answer = decoded(KIND, 0.5, 0.25, 0.75, truncated=True)
    said = {"labels": ["a", "c"], "scores": {"a": 0.5, "b": 0.25, "c": 0.75}}
    assert answer.to_json() == said | {"truncated": True}
    assert decoded(KIND, 0.5, 0.25, 0.75).to_json() == said
    assert KIND.text(said) == "a 0.5000, c 0.7500"
    assert KIND.text({"labels": [], "scores": {}}) == "-"


def test_probabilities_are_sigmoids():
    assert sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(KIND.probabilities(np.log([1 / 3, 3.0])), [0.25, 0.75])


def test_what_is_told_of_a_ranking():
    answer = decoded(KIND, 0.5, 0.25, 0.75)
    # a threshold takes the place of the task's own, a number does not
    assert KIND.limited(answer, None, 0.25) == MultiLabel(("c", "a", "b"), {"c": 0.75, "a": 0.5, "b": 0.25})
    assert KIND.limited(answer, 1, None) == MultiLabel(("c",), {"c": 0.75})
    assert KIND.limited(answer, 2, 0.6) == MultiLabel(("c",), {"c": 0.75})
    low = decoded(KIND, 0.1, 0.2, 0.3)
    assert KIND.limited(low, 1, None) == MultiLabel((), {"c": 0.3})


def test_agreement_is_a_share_of_labels():
    one, other = (
        [np.array([0.9, 0.1, 0.4]), np.array([0.6, 0.6, 0.6])],
        [np.array([0.9, 0.6, 0.4]), np.array([0.6, 0.4, 0.6])],
    )
    assert KIND.agreement(one, other) == pytest.approx(4 / 6)
    assert KIND.agreement(one, one) == 1.0
    assert KIND.agreement([], []) == 1.0
    assert KIND.agreement(one, [other[0], other[1] * np.nan]) == 0.0
    assert KIND.signal([]).shape == (0, 1)
    np.testing.assert_allclose(KIND.signal([np.array([0.5, 0.75])]), [[0.0, np.log(3)]], rtol=1e-5)


def test_ties_within_the_rounding_agree():
    """All scores of the file are off by 0.01 in log-odds; a label at 0.501 may fall to the other side, one at 0.7 not."""
    odds = np.array([[0.004, 2.0, -2.0, 1.0], [3.0, -3.0, 1.0, -1.0]])
    error = np.array([[-0.01, 0.01, 0.01, -0.01], [0.01, -0.01, 0.01, -0.01]])
    own, file = [*sigmoid(odds)], [*sigmoid(odds + error)]
    assert KIND.agreement(own, file) == pytest.approx(7 / 8)
    assert KIND.agreement(own, file, ties=True) == 1.0
    file[1] = sigmoid(odds[1] * [1, 1, -1, 1])
    assert KIND.agreement(own, file, ties=True) < 1.0
