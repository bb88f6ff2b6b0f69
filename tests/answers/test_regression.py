"""A number: decoding, agreement, its option, by hand."""

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.answers import Regression
from kerasbert.errors import InputError

KIND = answers.find("regression")


def test_the_first_number_of_a_row():
    assert KIND.width(()) == KIND.width(("a", "b")) == 1
    assert KIND.decode((), [inputs.row((), (), True)], [np.array([[2.5]])], ()) == Regression(2.5, True)
    assert Regression(np.float32(2.5), True).to_json() == {"value": 2.5, "truncated": True}
    assert Regression(2.5).to_json() == {"value": 2.5}
    assert KIND.probabilities(np.array([3.0])) == 3.0  # not a softmax


def test_a_line_has_six_digits_and_a_text_four_decimals():
    assert KIND.line({"value": 1234.56789}, "a film") == "1234.57\ta film"
    assert KIND.text({"value": 1.23456}) == "1.2346"


def test_agreement_is_pearsons_or_nearness_where_there_is_none():
    def agreement(one, other):
        return KIND.agreement([np.array([x]) for x in one], [np.array([x]) for x in other])

    assert agreement([1, 2, 4], [2, 4, 8]) == pytest.approx(1)
    assert agreement([1.0, 2, 3], [1.0, 3, 2]) == pytest.approx(0.5)
    assert agreement([1.0, 1], [1.005, 1.005]) == 1.0  # nothing varies: equal within 0.01
    assert agreement([1.0, 1], [1.5, 1.5]) == 0.0
    assert agreement([1.0, 1], [1.0, 2]) == 0.0
    assert agreement([1.0, 2], [1.0, np.inf]) == 0.0


def test_an_activation_is_a_sigmoid_or_none():
    assert KIND.configured({"activation": "sigmoid"}).options["activation"] == "sigmoid"
    assert KIND.configured({"activation": ""}).options["activation"] == ""
    with pytest.raises(InputError, match="activation must be sigmoid or empty. Received: 'tanh'"):
        KIND.configured({"activation": "tanh"})
