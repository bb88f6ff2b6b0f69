"""Attention by hand: kernels by arange, two heads of one number each, so that a score is a product of two small integers."""

import numpy as np
import pytest

from kerasbert.layers.attention import Attention
from kerasbert.layers.visibility import HIDDEN

SQUARE = np.arange(4.0).reshape(2, 2)  # [[0, 1], [2, 3]]
X = np.array([[[1, 0], [0, 1], [1, 1]]], "float32")  # X @ SQUARE = [0, 1], [2, 3], [2, 4]
# queries, keys and values of the tokens: 0, 2, 2 in the first head and 1, 3, 4 in the second
FIRST, SECOND = np.array([0, 2, 2]), np.array([1, 3, 4])
e = np.e


@pytest.fixture
def layer():
    made = Attention(heads=2, head_size=1)
    made.build((None, None, 2))
    for part in (made.query, made.key, made.value, made.output_projection):
        part.kernel.assign(SQUARE)
    made.output_projection.bias.assign([10, 20])
    return made


def mapped(first, second):
    """What the output makes of the heads' numbers a and b: [2b + 10, a + 3b + 20]."""
    return np.stack([2 * np.array(second) + 10, np.array(first) + 3 * np.array(second) + 20], axis=-1)[None]


def test_every_token_sees_all(layer):
    y, probabilities = layer(X)
    first = [
        np.array([1, 1, 1]) / 3,  # scores 0*0, 0*2, 0*2
        np.array([1, e**4, e**4]) / (1 + 2 * e**4),  # 2*0, 2*2, 2*2
        np.array([1, e**4, e**4]) / (1 + 2 * e**4),
    ]
    second = [
        np.array([e, e**3, e**4]) / (e + e**3 + e**4),  # 1*1, 1*3, 1*4
        np.array([e**3, e**9, e**12]) / (e**3 + e**9 + e**12),
        np.array([e**4, e**12, e**16]) / (e**4 + e**12 + e**16),
    ]
    np.testing.assert_allclose(probabilities, [[first, second]], rtol=1e-5)
    values = [4 / 3, 4 * e**4 / (1 + 2 * e**4), 4 * e**4 / (1 + 2 * e**4)]
    np.testing.assert_allclose(y, mapped(values, second @ SECOND), rtol=1e-5)


def test_hidden_keys_take_no_part(layer):
    bias = np.array([0, 0, HIDDEN], "float32").reshape(1, 1, 1, 3)
    y, probabilities = layer(X, bias=bias)
    first = [[1 / 2, 1 / 2, 0], *[[1 / (1 + e**4), e**4 / (1 + e**4), 0]] * 2]
    # exp of the difference of the two scores: 3 - 1, 9 - 3, 12 - 4
    second = [[1 / (1 + e**d), e**d / (1 + e**d), 0] for d in (2, 6, 8)]
    np.testing.assert_allclose(probabilities, [[first, second]], rtol=1e-5, atol=1e-20)
    np.testing.assert_allclose(y, mapped(first @ FIRST, second @ SECOND), rtol=1e-5)


def test_a_hidden_key_that_towers_over_the_others_takes_no_part(layer):
    """Some checkpoints have tokens whose scores are many times those of all others: here 75 * 1 beside 1 and 3."""
    x = np.concatenate([X[:, :2], [[[73, 1]]]], axis=1).astype("float32")  # keys of the second head 1, 3, 76
    bias = np.array([0, 0, HIDDEN], "float32").reshape(1, 1, 1, 3)
    y, _ = layer(x, bias=bias)
    np.testing.assert_allclose(y[:, :1], layer(x[:, :2])[0][:, :1], rtol=1e-6)


def test_a_mask_of_queries_and_keys(layer):
    """Row q of the bias is what query q sees: here itself and those before it."""
    bias = np.where(np.tri(3), 0, HIDDEN).astype("float32")[None, None]
    y, probabilities = layer(X, bias=bias)
    first = [[1, 0, 0], [1 / (1 + e**4), e**4 / (1 + e**4), 0], np.array([1, e**4, e**4]) / (1 + 2 * e**4)]
    np.testing.assert_allclose(probabilities[:, 0], [first], rtol=1e-5, atol=1e-20)
    np.testing.assert_allclose(y[:, 0], [[2 * 1 + 10, 0 + 3 * 1 + 20]], rtol=1e-5)  # the first sees its own value alone


def test_scores_are_divided_by_the_root_of_the_head_size():
    made = Attention(heads=1, head_size=4)
    made.build((None, None, 2))
    for part in (made.query, made.key):
        part.kernel.assign(np.arange(8.0).reshape(2, 4))
    # x @ kernel = [0, .1, .2, .3] and [.4, .5, .6, .7]; products .14, .38, 1.26, halved
    _, probabilities = made(np.array([[[0.1, 0], [0, 0.1]]], "float32"))
    rows = [np.exp([0.07, 0.19]), np.exp([0.19, 0.63])]
    np.testing.assert_allclose(probabilities, [[[row / row.sum() for row in rows]]], rtol=1e-5)


def test_keys_and_values_of_other_sources(layer):
    """One query; keys of the last two tokens, values of the first two."""
    y, probabilities = layer(X[:, :1], source=X[:, 1:], value=X[:, :2])
    # queries 0 and 1; keys 2, 2 and 3, 4; values 0, 2 and 1, 3
    np.testing.assert_allclose(probabilities[0, :, 0], [[1 / 2, 1 / 2], [1 / (1 + e), e / (1 + e)]], rtol=1e-5)
    np.testing.assert_allclose(y, mapped([1], [(1 + 3 * e) / (1 + e)]), rtol=1e-5)
