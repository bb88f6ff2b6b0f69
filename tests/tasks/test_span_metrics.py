"""Exact match and F1 by the rules of SQuAD 1.1 and 2.0, CMRC 2018 and MLQA, worked out by hand."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.span_metrics import best_threshold, cmrc, compared, mlqa, normalized


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Broncos", "broncos"),
        ("a.b", "ab"),  # no article: the stop goes first
        ("a-b the", "ab"),
        ("an  apple\ta day", "apple day"),
        ("theatre of the absurd", "theatre of absurd"),
        ("$5,000", "5000"),
        ("“A”", "“ ”"),  # only ASCII punctuation goes; the article within goes
        ("Ünïcödé!", "ünïcödé"),
        ("THE", ""),
        ("...", ""),
        ("", ""),
    ],
)
def test_normalisation(text, expected):
    assert normalized(text) == expected


@pytest.mark.parametrize(
    ("answer", "golds", "rules", "exact", "f1"),
    [
        ("the Broncos.", ["Broncos"], "squad", 1, 1),
        ("Denver Broncos", ["Broncos", "The Denver Broncos"], "squad", 1, 1),
        # exact match and F1 may come of different golds; one word of two and of one: 2 * (1/2) * 1 / (3/2)
        ("Denver Broncos", ["Broncos", "Broncos of Denver city"], "squad", 0, 2 / 3),
        ("to be or to be", ["to be"], "squad", 0, 2 * (2 / 5) * 1 / (7 / 5)),  # a word counts as often as in both
        ("be to", ["to be"], "squad", 0, 1),  # F1 knows no order
        ("", ["Broncos"], "squad", 0, 0),
        ("the", ["a"], "squad", 1, 0),  # 1.1: equal without a word, and no word in common
        ("the", ["a"], "squad2", 1, 1),  # 2.0: a gold without words is none
        ("the", ["a", "x"], "squad2", 0, 0),
        ("", [], "squad2", 1, 1),
        ("...", [], "squad2", 1, 1),
        ("x", [], "squad2", 0, 0),
        ("", ["x"], "squad2", 0, 0),
        ("x y", ["x"], "squad2", 0, 2 / 3),
        ("", [], "squad", 1, 1),
        ("x", [], "cmrc", 0, 0),
    ],
)
def test_squad_by_hand(answer, golds, rules, exact, f1):
    np.testing.assert_allclose(compared([answer], [golds], rules), [[exact, f1]], rtol=1e-15)


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("《战国无双3》", "战国无双3", 1, 1),  # its punctuation goes
        ("光荣和ω-force", "光荣和ω-Force", 1, 1),
        ("光荣", "光荣和", 0, 0.8),
        ("北京和上海", "上海和北京", 0, 0.4),  # the longest run is two characters of five, not a bag of characters
        ("1998年10月", "1998年", 0, 2 * (2 / 4) * 1 / (6 / 4)),  # a number is one piece
        ("New York市", "york 市", 0, 0.8),  # words and characters
        ("3.5%", "3.5 %", 0, 1),  # blanks count for the exact match alone
        ("甲", "乙", 0, 0),
    ],
)
def test_cmrc_by_hand(answer, gold, exact, f1):
    np.testing.assert_allclose(cmrc(answer, gold), (exact, f1), rtol=1e-15)


@pytest.mark.parametrize(
    ("answer", "gold", "language", "exact", "f1"),
    [
        ("die Katze", "Katze", "de", 1, 1),
        ("the Katze", "Katze", "de", 0, 2 / 3),
        ("«la casa»", "casa", "es", 1, 1),  # Unicode punctuation
        ("البيت", "بيت", "ar", 1, 1),
        ("战国无双", "战国", "zh", 0, 2 * (2 / 4) * 1 / (6 / 4)),
        ("战国 wu", "wu战国", "zh", 0, 1),
        ("của nhà", "nhà", "vi", 1, 1),
        ("the cat", "cat", "hi", 0, 2 / 3),
        ("the cat", "cat", "en", 1, 1),
    ],
)
def test_mlqa_by_hand(answer, gold, language, exact, f1):
    np.testing.assert_allclose(mlqa(answer, gold, language), (exact, f1), rtol=1e-15)
    np.testing.assert_allclose(compared([answer], [[gold]], f"mlqa/{language}"), [(exact, f1)], rtol=1e-15)


def test_unknown_rules_are_named():
    with pytest.raises(InputError, match="no rules 'squad3'. Nearest: 'squad"):
        compared(["x"], [["x"]], "squad3")


def test_the_best_threshold_by_hand():
    """Margins -3, -1, 2 and 5: of the questions with these the first and the third have an answer."""
    scores, margins, there = [1.0, 0.0, 0.5, 0.0], [-3.0, -1.0, 2.0, 5.0], [True, False, True, False]
    # none answered: 2 right; up to -3: 3; up to -1: 2; up to 2: 2.5; all: 1.5
    assert best_threshold(scores, margins, there) == -2.0
    assert best_threshold([1.0, 0.0, 1.0, 0.0], margins, there) == -2.0  # of equals the lowest
    assert best_threshold([1.0, 0.0, 2.5, 0.0], margins, there) == 3.5
    assert best_threshold([1.0, 1.0], [0.0, 4.0], [True, True]) == 4.5
    assert best_threshold([0.0, 0.0], [0.0, 4.0], [False, False]) == -1.0  # nothing is answered
    assert best_threshold([1.0, 1.0], [2.0, 2.0], [True, False]) == 1.0  # equal margins are answered together
    assert best_threshold([], [], []) == 0.0


def test_the_best_threshold_is_the_best_of_all():
    generator = np.random.default_rng(0)
    for _ in range(20):
        there, margins = generator.random(40) < 0.5, generator.integers(-5, 6, 40).astype(float)
        scores = np.where(there, generator.random(40), 0)

        def mean(threshold, there=there, margins=margins, scores=scores):
            return np.where(margins > threshold, ~there, scores).mean()

        best = max(mean(threshold) for threshold in np.arange(-6.5, 7))
        assert mean(best_threshold(scores, margins, there)) == pytest.approx(best)


def test_a_threshold_lies_between_margins_however_near():
    """It was rounded to four digits, above the margin of the question that it was to leave without an answer."""
    scores, there = [1.0, 0.0], [True, False]
    for low, high in ((1.00001, 1.00002), (-3e-6, 2e-6), (250.00001, 250.0001), (1.0, 1.0000001)):
        threshold = best_threshold(scores, np.float32([low, high]), there)
        assert [margin > np.float32(threshold) for margin in np.float32([low, high])] == [False, True]
