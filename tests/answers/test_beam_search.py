"""Decoding in numpy, on networks of a few numbers: what is written, its score, and the numbers that are drawn. No TensorFlow."""

import dataclasses
import itertools

import numpy as np
import pytest

from kerasbert.answers.beam_search import _most, bits, key, search, searched
from kerasbert.answers.decoding import Decoding

END = 0
# token -> logits of what follows: 1 is followed by 2 or 3, 2 by 3, 3 by the end
FOLLOWS = np.log(
    np.array([[1, 1, 1, 1], [0.1, 0.1, 0.5, 0.3], [0.1, 0.1, 0.1, 0.7], [0.9, 0.04, 0.03, 0.03]], "float32")
)


def step(token_ids, column, origin):
    return FOLLOWS[token_ids], None


def decoding(**options):
    return dataclasses.replace(Decoding(max_new_tokens=4), **options)


def test_the_best_token_after_the_best_one():
    ids, score = search(step, [1], decoding(), end_id=END)
    assert ids == [2, 3, END]
    assert score == pytest.approx(np.log(0.5 * 0.7 * 0.9), abs=1e-6)


def test_beams_find_the_likeliest_text():
    """1 -> 3 -> end has .27, 1 -> 2 -> 3 -> end .315; by length penalty 0 scores are sums."""
    found = searched(step, [1], decoding(beams=3, length_penalty=0.0, num_return_sequences=2), end_id=END)
    assert [ids for ids, _ in found] == [[2, 3, END], [3, END]]
    assert [np.exp(score) for _, score in found] == pytest.approx([0.5 * 0.7 * 0.9, 0.3 * 0.9], abs=1e-5)
    short = searched(step, [1], decoding(beams=3, length_penalty=-1.0), end_id=END)[0]
    assert short[0] == [END]  # a negative penalty multiplies by the length: -2.30, -1.31 x 2, -1.16 x 3


@pytest.mark.parametrize("words", [(0,), (7, 1, 2), (2**32 + 5, 3), (2**40, 0, 9)])
def test_the_bits_that_are_drawn(words):
    """lowbias32 (Wellons, 2018) in integers without a word size."""

    def mixed(x):
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return x ^ x >> 16

    low, high = 0x9E3779B9, 0x243F6A88
    for word in words:
        for part in [word % 2**32] if word < 2**32 else [word % 2**32, word >> 32]:
            low = mixed(((low ^ part) + 0x9E3779B9) % 2**32)
            high = mixed((high + part) % 2**32 ^ low)
    assert key(*words) == (low, high)
    expected = []
    for element in range(5):
        x = (element * 0x9E3779B9 + low) % 2**32
        x = ((x ^ x >> 16) * 0x7FEB352D + high) % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        expected.append(x ^ x >> 16)
    assert bits(key(*words), np.arange(5)).tolist() == expected


def test_drawn_texts_depend_on_seed_row_and_number_alone():
    draws = decoding(temperature=1.0, num_return_sequences=3)
    found = searched(step, [1], draws, end_id=END, row=4)
    assert found == searched(step, [1], draws, end_id=END, row=4)
    assert len(found) == 3
    others = [searched(step, [1], draws, end_id=END, row=row) for row in range(12)]
    firsts = [ids[0] for texts in others for ids, _ in texts]
    assert {2, 3} <= set(firsts) <= {0, 1, 2, 3}
    assert firsts.count(2) > firsts.count(1)
    for ids, score in found:
        path = [1, *ids]
        chances = [np.exp(FOLLOWS[a][b]) / np.exp(FOLLOWS[a]).sum() for a, b in itertools.pairwise(path)]
        assert np.exp(score) == pytest.approx(np.prod(chances), rel=1e-5)


@pytest.mark.parametrize(
    ("early_stopping", "penalty", "most"),
    [(False, 2.0, 9.0), ("never", 2.0, 64.0), ("never", -1.0, 1 / 3), (False, -1.0, 1 / 3), ("never", 0.0, 1.0)],
)
def test_what_an_unfinished_text_may_become_at_best(early_stopping, penalty, most):
    """Its score is over a length to the penalty: the longest one where "never" waits for it and longer is better."""
    decoding = Decoding(max_new_tokens=8, beams=2, early_stopping=early_stopping, length_penalty=penalty)
    assert _most(decoding, 2) == pytest.approx(most)
