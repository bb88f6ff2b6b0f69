"""Layer normalisation by hand: 0, 1, 2, 3 have mean 3/2 and variance 5/4; with epsilon 1 they are divided by 3/2."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers.backend import as_tpu
from kerasbert.layers.norms import BiasFreeLayerNorm, LayerNorm

X = np.arange(4.0, dtype="float32")[None]


@pytest.fixture
def layer():
    made = LayerNorm(epsilon=1.0)
    made.build((None, 4))
    made.gamma.assign(np.arange(4.0))
    made.beta.assign([10, 20, 30, 40])
    return made


def test_the_last_axis_is_normalised_scaled_and_shifted(layer):
    # -1, -1/3, 1/3, 1 times 0, 1, 2, 3
    np.testing.assert_allclose(layer(X), [[10, 20 - 1 / 3, 30 + 2 / 3, 40 + 3]], rtol=1e-6)


def test_a_constant_changes_nothing_and_a_sign_turns_it(layer):
    np.testing.assert_allclose(layer(7 - X), [[10, 20 + 1 / 3, 30 - 2 / 3, 40 - 3]], rtol=1e-6)


def test_the_sum_of_two_is_normalised(layer):
    """x + y = 0, 2, 4, 6: mean 3, variance 5, divided by the root of 6."""
    expected = np.array([10, 20, 30, 40]) + np.array([0, -1, 2, 9]) / 6**0.5
    np.testing.assert_allclose(layer(X, X), [expected], rtol=1e-6)


def test_half_precision_is_normalised_in_float32():
    """60000 and 60032 are float16, their sum and their squares are not."""
    made = LayerNorm(epsilon=0.0, dtype="mixed_float16")
    made.build((None, 2))
    np.testing.assert_array_equal(made(np.array([[60000, 60032]], "float16")), [[-1, 1]])


@pytest.mark.parametrize("kind", [LayerNorm, BiasFreeLayerNorm])
def test_the_gradient_is_that_of_automatic_differentiation(kind):
    """Which a TPU has."""
    made, draw = kind(epsilon=1e-3), np.random.default_rng(0)
    made.build((None, 5))
    made.gamma.assign(draw.normal(size=5))
    x, upstream = (tf.constant(draw.normal(size=(2, 3, 5)), tf.float32) for _ in range(2))

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = made(x)
        return tape.gradient(y, [x, *(weight.value for weight in made.weights)], output_gradients=upstream)

    with as_tpu():
        expected = gradients()
    for one, other in zip(gradients(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
