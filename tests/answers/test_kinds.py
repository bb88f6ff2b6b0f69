"""Kinds of answers: rows, decoding, agreement, by hand."""

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.answers import Classification, Regression, Vector
from kerasbert.errors import InputError
from tests import tiny


def decoded(kind, labels, values, truncated=False):
    return answers.find(kind).decode((), [inputs.row((), (), truncated)], [np.array(values)], labels)


def test_numbers_become_objects():
    answer = decoded("classification", ("no", "yes"), [0.25, 0.75])
    assert answer == Classification("yes", 0.75, {"no": 0.25, "yes": 0.75})
    assert decoded("regression", (), [1.5]) == Regression(1.5)
    assert decoded("vector", (), [1, 2]) == Vector([1.0, 2.0])
    assert decoded("embedding", (), [1, 2], True).to_json() == {"values": [1.0, 2.0], "truncated": True}


def test_a_kind_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"no kind of answer 'vectors'. Nearest: 'vector'"):
        answers.find("vectors")


def test_a_row_knows_whether_its_text_lost_tokens():
    tokenizer, kind = tiny.tokenizer(), answers.find("classification")
    (whole,), (cut,) = kind.rows(tokenizer, ("the cat sees",), 5), kind.rows(tokenizer, ("the cat sees",), 4)
    assert (whole.length, whole.truncated, cut.length, cut.truncated) == (5, False, 4, True)
    (pair,) = kind.rows(tokenizer, ("the", "cat"), 8)
    assert list(pair.values["segment_ids"]) == [0, 0, 0, 1, 1]


def test_agreement_is_equal_labels_correlation_or_cosine():
    rows = [np.array([0.2, 0.8]), np.array([0.9, 0.1])]
    other = [np.array([0.4, 0.6]), np.array([0.3, 0.7])]
    assert answers.find("classification").agreement(rows, other) == 0.5
    tokens = [np.array([[1, 0], [0, 1], [1, 0], [0, 1]])]
    assert answers.find("classification").agreement(tokens, [tokens[0][::-1]]) == 0.0
    numbers = [np.array([1.0]), np.array([2.0]), np.array([3.0])]
    assert answers.find("regression").agreement(numbers, numbers[::-1]) == pytest.approx(-1)
    assert answers.find("vector").agreement([np.array([1.0, 0])], [np.array([1.0, 1])]) == pytest.approx(0.5**0.5)
    for kind in ("classification", "regression", "vector"):
        assert answers.find(kind).agreement(rows, [np.array([np.nan, 1.0]), rows[1]]) == 0.0
