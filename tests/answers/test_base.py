"""What all kinds of answers share: the parts of an input, the softmax."""

import numpy as np
import pytest

from kerasbert import answers
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


@pytest.mark.parametrize("wrong", [None, "mine", Kind, Kind()])
def test_a_kind_is_an_instance_with_a_name(wrong):
    with pytest.raises(InputError, match="a kind of answer is an instance of a subclass of answers.Kind with a name"):
        answers.register(wrong)


def test_a_kind_is_registered_once_and_its_own_class_may_again(monkeypatch):
    class Mine(Kind):
        name = "mine"

    class Other(Kind):
        name = "mine"

    monkeypatch.setattr(answers.KINDS, "rows", dict(answers.KINDS))  # all of them are loaded
    first = Mine()
    assert answers.register(first) is first is answers.find("mine")
    second = Mine()
    assert answers.register(second) is second is answers.find("mine")
    with pytest.raises(InputError, match="the kind 'mine' is registered already: choose another name"):
        answers.register(Other())
