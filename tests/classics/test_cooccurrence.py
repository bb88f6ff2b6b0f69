"""GloVe's counts by hand, and in pieces through a temporary file."""

import numpy as np
import pytest

from kerasbert.classics import cooccurrence
from kerasbert.errors import InputError


def dense(sentences, words, window, **settings):
    pairs, values = cooccurrence.cooccurrences(lambda: sentences, words, window, **settings)
    assert (np.diff(pairs[:, 0] * len(words) + pairs[:, 1]) > 0).all()
    table = np.zeros((len(words), len(words)))
    table[tuple(pairs.T)] = values
    return table


def test_counts_by_hand():
    """a b c a: a-b 1 + 1/2, a-c 1/2 + 1, b-c 1, a-a twice 1/3; nothing reaches into the next line."""
    found = dense([list("abca"), list("b")], "abc", 3)
    np.testing.assert_allclose(found, [[2 / 3, 1.5, 1.5], [1.5, 0, 1], [1.5, 1, 0]])
    assert (dense([list("abca")], "abc", 1) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]).all()
    # a word without a row takes its place: b is two away from a
    np.testing.assert_allclose(dense([list("axb")], "ab", 5), [[0, 0.5], [0.5, 0]])


def test_words_are_ordered_by_count_and_alphabet():
    found = cooccurrence.count([list("bbacc"), list("d")], least=1)
    assert (found.words, found.counts, found.tokens) == (("b", "c", "a", "d"), (2, 2, 1, 1), 6)
    assert cooccurrence.count([list("bbacc")], least=2, most=1).words == ("b",)
    with pytest.raises(InputError, match="no word of the text occurs 3 times"):
        cooccurrence.count([list("bbacc")], least=3)
    with pytest.raises(InputError, match="no two words of the vocabulary stand in one line"):
        cooccurrence.cooccurrences(lambda: [["a"], ["b"]], "ab", 2)


@pytest.mark.parametrize("memory", [1, 7, 60])
def test_counts_in_pieces_are_those_at_once(monkeypatch, memory):
    rng = np.random.default_rng(0)
    sentences = [[f"w{number}" for number in rng.integers(0, 9, rng.integers(1, 12))] for _ in range(60)]
    words = cooccurrence.count(sentences).words[:7]
    whole = dense(sentences, words, 4)
    monkeypatch.setattr(cooccurrence, "TOKENS", 20)
    np.testing.assert_allclose(dense(sentences, words, 4, memory=memory), whole, rtol=1e-12)
