"""What all kinds of answers share: the parts of an input, the softmax."""

import numpy as np
import pytest

from kerasbert.answers.base import Kind, softmax
from kerasbert.errors import InputError


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (2, 2, 1)])
def test_a_softmax_is_along_the_last_axis(shape):
    logits = np.random.default_rng(0).normal(0, 3, shape)
    exponents = np.exp(logits)
    np.testing.assert_allclose(softmax(logits), exponents / exponents.sum(-1)[..., None])
    np.testing.assert_allclose(softmax(logits + 1000), softmax(logits))  # no overflow


def test_what_is_expected_of_an_input_is_told():
    kind = Kind()
    for value, names, message in (
        (3, ("text", "other"), r"x is a int, expected \(text, other\)$"),
        (3, ("text",), "x: text is a int, expected str$"),
        (("a", "b"), ("text",), "x: text is a tuple, expected str: it holds 'a'$|x: text is a tuple, expected str$"),
        (("a",), ("text", "other"), r"x has 1 parts, expected 2: \(text, other\)$"),
        ({"text": "a"}, ("text", "other"), "x has the parts text, expected text, other$"),
    ):
        with pytest.raises(InputError, match=message):
            kind.parts(value, names, "x")
    assert kind.parts({"other": "b", "text": "a"}, ("text", "other"), "x") == ("a", "b")
