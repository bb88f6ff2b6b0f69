"""The best of several choices: rows, decoding, agreement, by hand."""

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.answers import Choice
from kerasbert.errors import InputError
from tests import tiny

KIND = answers.find("choice")


def test_a_choice_is_one_score_whatever_it_is_called():
    assert (KIND.width(("a", "b")), KIND.width(())) == (1, 1)


def test_a_row_for_each_choice_and_the_softmax_over_them():
    parts = ("the cat", ("sees the old house", "runs", "a dog"))
    rows = KIND.rows(tiny.tokenizer(), parts, 7)
    assert [row.length for row in rows] == [7, 6, 7]  # of the longer text the end is cut: 2 and 2 tokens
    assert [row.truncated for row in rows] == [True, False, False]
    assert [row.about for row in rows] == [0, 1, 2]
    assert list(rows[1].values["segment_ids"]) == [0, 0, 0, 0, 1, 1]
    scores = [np.array([value]) for value in (0.0, np.log(3), 0.0)]
    answer = KIND.decode(parts, rows, scores, ())
    assert answer == Choice(
        1, "runs", pytest.approx(0.6), (pytest.approx(0.2), pytest.approx(0.6), pytest.approx(0.2)), True
    )
    assert answer.to_json() == {
        "index": 1,
        "text": "runs",
        "score": pytest.approx(0.6),
        "scores": pytest.approx([0.2, 0.6, 0.2]),
        "truncated": True,
    }
    assert KIND.text(answer.to_json()) == "1\t0.6000\truns"


def test_choices_may_be_json_and_bytes():
    tokenizer = tiny.tokenizer()
    expected = [row.token_ids for row in KIND.rows(tokenizer, ("the cat", ("runs", "sees")), 16)]
    for choices in ('["runs", "sees"]', ('["runs", "sees"]',), (b"runs", b"sees")):
        assert [row.token_ids for row in KIND.rows(tokenizer, ("the cat", choices), 16)] == expected
    parts = KIND.from_line("the cat\truns\tsees", ("context", "choices"), "line 1")
    assert parts == ("the cat", ("runs", "sees"))
    assert KIND.decode(("x", (b"runs", b"sees")), [], [np.ones(1), np.zeros(1)], ()).text == "runs"


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (("runs",), "an input has 1 choice: 'runs', expected a list of at least two"),
        ("runs", "an input has 1 choice: 'runs'"),
        ((), "an input has 0 choices, expected a list of at least two"),
        (("runs", ""), "choice 1 is empty, expected a text"),
        ('["runs", 1]', "a choice is the int 1, expected str"),
    ],
)
def test_what_are_no_choices_is_refused(choices, message):
    with pytest.raises(InputError, match=message):
        KIND.rows(tiny.tokenizer(), ("the cat", choices), 16)


def test_agreement_is_of_inputs():
    expected = [np.array([value]) for value in (1.0, 2.0, 3.0, 1.0, 0.0)]
    received = [np.array([value]) for value in (5.0, 6.0, 0.0, 2.0, 1.0)]
    assert KIND.agreement(expected, received, np.array([0, 0, 1, 1, 1])) == 0.5
    assert KIND.agreement(expected, received) == 0.0
    assert KIND.agreement(expected, [np.array([np.nan])] * 5, np.zeros(5, int)) == 0.0
    assert KIND.agreement([], []) == 1.0
