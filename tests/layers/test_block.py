"""Blocks by hand: queries are zero, so that a token gives every token it sees the same weight; the other kernels by arange.

With two numbers a vector, a norm makes (-d, d) / sqrt(d*d + epsilon) of the half difference d.
"""

import numpy as np
import pytest

from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.context import Context
from kerasbert.layers.visibility import HIDDEN
from tests.support import close

SQUARE = np.arange(4.0).reshape(2, 2)  # [u, v] -> [2v, u + 3v]
X = np.array([[[2, 0], [0, 2]]], "float32")
SECOND_HIDDEN = np.array([0, HIDDEN], "float32").reshape(1, 1, 1, 2)


def block(kind: type, epsilon: float):
    """Norms that multiply by [1, 2] and add [0, 1]."""
    settings = {"heads": 1, "head_size": 2, "width": 2, "activation": "relu", "dropout": 0.0}
    made = kind(**settings, attention_dropout=0.0, epsilon=epsilon, initializer=0.02)
    made.build((None, None, 2))
    attention, feedforward = made.attention, made.feedforward
    attention.query.kernel.assign(np.zeros((2, 2)))
    for part in (attention.key, attention.value, attention.output_projection, feedforward.inner, feedforward.outer):
        part.kernel.assign(SQUARE)
    for norm in (made.attention_norm, made.feedforward_norm):
        norm.gamma.assign([1, 2])
        norm.beta.assign([0, 1])
    return made


def norm(d, epsilon: float) -> np.ndarray:
    """Of a vector whose second number is 2d more than its first."""
    share = d / (d * d + epsilon) ** 0.5
    return np.array([-share, 1 + 2 * share])


def feedforward(x) -> np.ndarray:
    """The network of the block: [u, v] -> [2v, u + 3v], at least 0, and so again."""
    u, v = x
    u, v = max(0, 2 * v), max(0, u + 3 * v)
    return np.array([2 * v, u + 3 * v])


def after(x, epsilon: float) -> np.ndarray:
    """The second half of a post-norm block."""
    u, v = x + feedforward(x)
    return norm((v - u) / 2, epsilon)


def test_post_norm():
    """Values [0, 2], [4, 6]; their mean [2, 4] -> [8, 14]; sums [10, 14], [8, 16]: d = 2, 4."""
    layer = block(Block, 5.0)
    y, probabilities = layer(X)
    np.testing.assert_array_equal(probabilities, [[[[0.5, 0.5], [0.5, 0.5]]]])
    inner = np.array([-2 / 3, 1 + 4 / 3]), norm(4, 5.0)
    np.testing.assert_allclose(y, [[after(x, 5.0) for x in inner]], rtol=1e-5)
    # the first by numbers alone: [-2/3, 7/3] -> [14/3, 19/3] -> [38/3, 71/3], sum [12, 26]: d = 7
    np.testing.assert_allclose(y[0, 0], [-7 / 54**0.5, 1 + 14 / 54**0.5], rtol=1e-5)


def test_post_norm_with_a_mask():
    """The value [0, 2] alone -> [4, 6]; sums [6, 6], [4, 8]: d = 0, 2."""
    layer = block(Block, 5.0)
    y, probabilities = layer(X, context=Context(SECOND_HIDDEN))
    np.testing.assert_allclose(probabilities, [[[[1, 0], [1, 0]]]], atol=1e-20)
    inner = np.array([0, 1]), np.array([-2 / 3, 7 / 3])
    np.testing.assert_allclose(y, [[after(x, 5.0) for x in inner]], rtol=1e-5)
    # the first by numbers alone: [0, 1] -> [2, 3] -> [6, 11], sum [6, 12]: d = 3
    np.testing.assert_allclose(y[0, 0], [-3 / 14**0.5, 1 + 6 / 14**0.5], rtol=1e-5)


def test_pre_norm():
    """x is normalised first: d = -1, 1 -> [.5, 0], [-.5, 2]; values [0, .5], [4, 5.5], mean [2, 3] -> [6, 11]."""
    layer = block(PreNormBlock, 3.0)
    y, _ = layer(X)
    sums = np.array([[2 + 6, 0 + 11], [0 + 6, 2 + 11]])
    expected = [x + feedforward(norm(d, 3.0)) for x, d in zip(sums, (1.5, 3.5))]
    np.testing.assert_allclose(y, [expected], rtol=1e-5)


def test_pre_norm_with_a_mask():
    """The value [0, .5] alone -> [1, 1.5]; sums [3, 1.5], [1, 3.5]."""
    layer = block(PreNormBlock, 3.0)
    y, _ = layer(X, context=Context(SECOND_HIDDEN))
    expected = [x + feedforward(norm(d, 3.0)) for x, d in (([3, 1.5], -0.75), ([1, 3.5], 1.25))]
    np.testing.assert_allclose(y, [expected], rtol=1e-5)


@pytest.mark.parametrize("kind", [Block, PreNormBlock])
def test_the_first_token_alone(kind):
    layer = block(kind, 5.0)
    for bias in (None, SECOND_HIDDEN):
        whole, every = layer(X, context=Context(bias))
        y, probabilities = layer(X, context=Context(bias).of("first"))
        close(y, whole[:, :1])
        close(probabilities, every[:, :, :1])
