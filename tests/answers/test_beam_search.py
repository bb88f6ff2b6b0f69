"""Decoding in numpy, on networks of a few numbers: what is written, its score, and the numbers that are drawn. No TensorFlow."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from kerasbert.answers.beam_search import _adjusted, _drawn, _least, _most, bits, key, search, searched
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


def gumbel(seed, row, at, size):
    """What is added to each logit: -log(-log u) of u = (bits / 2 + 1/2) / 2^31."""
    return [
        -math.log(-math.log1p(-(int(each) // 2 + 0.5) / 2**31)) for each in bits(key(seed, row, at), np.arange(size))
    ]


@pytest.mark.parametrize("temperature", [None, 0.5, 2.0])
@pytest.mark.parametrize("top_p", [None, 1.0, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("top_k", [None, 1, 3, 500])
def test_a_token_is_drawn_among_the_likeliest(temperature, top_k, top_p):
    """Logit + Gumbel noise is largest, of the `top_k`, of these as many as reach `top_p`; equal ones in their order."""
    draw = np.random.default_rng(0)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    settings = decoding(seed=7, **options if any(options.values()) else {"temperature": 1.0})
    for row, (size, spread) in enumerate(itertools.product((5, 12, 1500), (0, 0.5, 3))):
        logits = np.round(spread * draw.normal(size=size), 1).astype("float32")  # some are equal
        x = logits / (temperature or 1.0)
        order = np.argsort(-x, kind="stable")[:top_k].tolist()
        shares, reached, allowed = np.exp(x[order] - x.max()), 0.0, []
        for token, share in zip(order, shares / shares.sum()):
            if top_p not in (None, 1.0) and reached >= top_p:
                break
            allowed.append(token)
            reached += share
        least = min(x[allowed])  # of equal ones all may be drawn
        assert _least(x, settings) == least
        for at in range(8 if size < 100 else 1):
            noise = gumbel(7, row, at, size)
            best = max((i for i in range(size) if x[i] >= least), key=lambda i: x[i] + noise[i])
            assert _drawn(logits, settings, row, at) == best


def test_what_may_not_be_written_is_found_by_reading_the_text():
    """Tokens that repeat three tokens, end a bad word, come too early or are suppressed; the penalty of what occurs already."""
    draw, size = np.random.default_rng(0), 6
    settings = decoding(
        max_new_tokens=9,
        **{"no_repeat_ngram_size": 3, "bad_words_ids": ((2, 3), (4, 4, 1), (5,))},
        **{"suppress_tokens": (3,), "begin_suppress_tokens": (1,), "min_new_tokens": 2, "repetition_penalty": 2.0},
    )
    for case in range(300):
        begin, seen = case % 4, draw.integers(0, size, draw.integers(1, 12)).tolist()
        x = draw.normal(size=size).astype("float32")
        expected = [2 * each if i in seen and each < 0 else each / 2 if i in seen else each for i, each in enumerate(x)]
        for token in range(size):
            text = [*seen, token]
            repeats = text[-3:] in [text[i : i + 3] for i in range(len(text) - 3)] and len(text) > 3
            bad = any(
                text[-len(word) :] == list(word) and len(word) < len(text) for word in settings.bad_words_ids
            )  # a word alone is none, as in transformers
            early = (token == END and begin < 2) or (token == 1 and begin == 0)
            if repeats or bad or early or token == 3:
                expected[token] = -math.inf
        np.testing.assert_allclose(
            _adjusted(x[None], [seen], begin, settings, END)[0], expected, rtol=1e-6, err_msg=str(seen)
        )
    for size in (1, 2):
        found = _adjusted(np.zeros((1, 4), "float32"), [[1, 2, 1]], 5, decoding(no_repeat_ngram_size=size), END)[0]
        assert np.flatnonzero(np.isinf(found)).tolist() == ([1, 2] if size == 1 else [2])


class Covering:
    """A network whose coverage of two tokens of a source says what was written: .6 more of one or of the other by each token."""

    def __init__(self):
        self.covered = np.zeros((1, 2))

    def __call__(self, token_ids, column, origin):
        self.covered = self.covered[origin] + 0.6 * np.eye(2)[token_ids % 2]
        return FOLLOWS[token_ids], self.covered.astype("float32")


@pytest.mark.parametrize("coverage", [0.0, 0.7])
@pytest.mark.parametrize("length", [0.0, 1.0, -1.0])
def test_many_beams_find_every_text_in_the_order_of_its_score(coverage, length):
    """Wu et al. (2016, equation 14): log p / length^a + b sum log min(coverage, 1), the coverage before the last token."""
    log, expected = np.log(np.exp(FOLLOWS) / np.exp(FOLLOWS).sum(-1, keepdims=True)), []
    for count in (1, 2, 3):
        for text in itertools.product(range(4), repeat=count):
            if END not in text[:-1] and (text[-1] == END or count == 3):
                path = [1, *text]
                covered = 0.6 * np.eye(2)[np.array(path[:-1]) % 2].sum(0)
                score = sum(log[a, b] for a, b in itertools.pairwise(path)) / count**length
                expected.append((score + coverage * np.log(np.clip(covered, 1e-9, 1)).sum(), list(text)))
    settings = decoding(
        max_new_tokens=3, beams=60, num_return_sequences=60, length_penalty=length, coverage_penalty=coverage
    )
    found = searched(Covering(), [1], settings, end_id=END)
    assert sorted(ids for ids, _ in found) == sorted(ids for _, ids in expected)
    np.testing.assert_allclose([score for _, score in found], sorted((s for s, _ in expected), reverse=True), rtol=1e-5)
    scores = {tuple(ids): score for score, ids in expected}
    np.testing.assert_allclose([score for _, score in found], [scores[tuple(ids)] for ids, _ in found], rtol=1e-5)


@pytest.mark.parametrize(("early_stopping", "steps"), [(True, 3), (None, 4), (False, 4), ("never", 4)])
def test_as_many_texts_as_beams_end_a_search_that_stops_early(early_stopping, steps):
    """Two texts have ended after three steps; where longer is better by far a fourth one may still win."""
    asked = []

    def counted(token_ids, column, origin):
        asked.append(column)
        return FOLLOWS[token_ids], None

    settings = decoding(beams=2, early_stopping=early_stopping, length_penalty=5.0)
    found = searched(counted, [1], settings, end_id=END)[0][0]
    assert asked == [*range(steps)]
    assert (len(found) == 3) == (early_stopping is True)


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"temperature": 1.0}])
def test_forced_tokens_stand_first_and_last(options):
    settings = decoding(forced_bos_token_id=1, forced_eos_token_id=2, min_new_tokens=3, **options)
    for row in range(5):
        ids, _ = search(step, [1], settings, end_id=END, row=row)
        assert (len(ids), ids[0], ids[-1]) == (4, 1, 2)
