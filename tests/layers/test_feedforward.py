"""Feed-forward by hand: kernels by arange."""

import math

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers.backend import gelu
from kerasbert.layers.backend_fused import fusion
from kerasbert.layers.feedforward import ACTIVATIONS, FeedForward, Linear, activate


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_is_compiled_for_open_sizes(dtype):
    x = np.concatenate([np.linspace(-9, 9, 3000), [0.0, -0.0, 1e-6, 300, -300, np.inf, np.nan]]).astype("float32")

    def traced(elements):
        @tf.function(input_signature=[tf.TensorSpec([None, None], dtype)], autograph=False)
        def both(x):
            with fusion(False, elements=elements), tf.GradientTape() as tape:
                tape.watch(x)
                y = gelu(x)
            assert y.shape.as_list() == [None, None]
            return y, tape.gradient(y, x)

        names = {node.op for node in both.get_concrete_function().graph.as_graph_def().node}
        assert ("StatefulPartitionedCall" in names or "PartitionedCall" in names) == elements
        return both

    plain, compiled = traced(False), traced(True)
    for rows in (1, 31):
        two = [
            [tf.cast(y, "float32").numpy() for y in f(tf.cast(x.reshape(rows, -1), dtype))] for f in (plain, compiled)
        ]
        for one, other in zip(*two, strict=True):
            assert one.shape == other.shape == (rows, x.size // rows)
            np.testing.assert_allclose(one, other, rtol=2 * float(ml_dtypes.finfo(dtype).eps), atol=1e-6)


def test_every_activation_has_its_numbers():
    assert sorted(ACTIVATIONS) == ["gelu", "gelu_tanh", "relu", "swish", "tanh"]


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "swish"])
def test_a_gradient_keeps_the_derivative_alone(name):
    """Automatic differentiation keeps two to six arrays as large as x, and takes as many operations."""
    x, counts = np.linspace(-4, 4, 101).astype("float32"), []

    @tf.function(autograph=False)
    def both(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            ours, plain = activate(x, None, activation=name), ACTIVATIONS[name](x)
        graph, found = tf.compat.v1.get_default_graph(), []
        for y in (ours, plain):
            before = len(graph.get_operations())
            found.append(tape.gradient(y, x))
            counts.append(len(graph.get_operations()) - before)
        return ours, plain, *found

    ours, plain, of_ours, of_plain = both(tf.constant(x))
    np.testing.assert_allclose(ours, plain, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(of_ours, of_plain, rtol=1e-5, atol=1e-6)
    assert counts[-2] <= 4 < counts[-1]
