"""Feed-forward by hand: kernels by arange."""

import math

import numpy as np
import pytest

from kerasbert.layers.feedforward import ACTIVATIONS, FeedForward, Linear


def test_a_linear_map():
    layer = Linear(3)
    layer.build((None, 2))
    layer.kernel.assign(np.arange(6.0).reshape(2, 3))
    layer.bias.assign([10, 20, 30])
    # 1*[0, 1, 2] + 2*[3, 4, 5]; 1*[0, 1, 2] - 1*[3, 4, 5]
    x = np.array([[[1, 2], [1, -1]]], "float32")
    np.testing.assert_array_equal(layer(x), [[[16, 29, 42], [7, 17, 27]]])
    np.testing.assert_array_equal(layer(-x, activation="relu"), [[[4, 11, 18], [13, 23, 33]]])


def test_the_network():
    layer = FeedForward(3, activation="relu")
    layer.build((None, None, 2))
    layer.inner.kernel.assign(np.arange(6.0).reshape(2, 3))
    layer.inner.bias.assign([1, -1, -4])
    layer.outer.kernel.assign(np.arange(6.0).reshape(3, 2))
    layer.outer.bias.assign([100, 200])
    # inner: [0, 1, 2] + [1, -1, -4] -> 1, 0, 0; [3, 4, 5] + [1, -1, -4] -> 4, 3, 1
    # outer: 1*[0, 1]; 4*[0, 1] + 3*[2, 3] + 1*[4, 5]
    y = layer(np.array([[[1, 0], [0, 1]]], "float32"))
    np.testing.assert_array_equal(y, [[[100, 201], [110, 218]]])


@pytest.mark.parametrize(
    ("name", "at_1", "at_minus_1"),
    [
        ("gelu", (1 + math.erf(0.5**0.5)) / 2, -(1 - math.erf(0.5**0.5)) / 2),
        ("gelu_tanh", (1 + math.tanh((2 / math.pi) ** 0.5 * 1.044715)) / 2, -0.15880801),
        ("relu", 1, 0),
        ("swish", 1 / (1 + 1 / math.e), -1 / (1 + math.e)),
        ("tanh", (math.e**2 - 1) / (math.e**2 + 1), -(math.e**2 - 1) / (math.e**2 + 1)),
    ],
)
def test_an_activation(name, at_1, at_minus_1):
    values = ACTIVATIONS[name](np.array([1, -1, 0], "float32"))
    np.testing.assert_allclose(values, [at_1, at_minus_1, 0], rtol=1e-6)


def test_every_activation_has_its_numbers():
    assert sorted(ACTIVATIONS) == ["gelu", "gelu_tanh", "relu", "swish", "tanh"]
