"""Parts that encoders since 2022 have: gated feed-forward networks, norms without bias, a norm of pre-norm embeddings."""

import math

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.layers.backend_fused import fusion
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.norms import BiasFreeLayerNorm, LayerNorm
from tests import tiny

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 6)).astype("float32")


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize(
    ("name", "function"),
    [("gated_gelu", gelu), ("gated_swish", lambda x: x / (1 + np.exp(-x))), ("gated_relu", lambda x: x * (x > 0))],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_gate_multiplies(name, function, bias):
    layer = FeedForward(7, name, 0.5, use_bias=bias)
    layer.build((None, None, 6))
    for weight in layer.weights:
        weight.assign(RNG.normal(size=weight.shape))
    gate, linear, outer = (
        [np.asarray(part.kernel, "float64"), np.asarray(part.bias, "float64") if bias else 0.0]
        for part in (layer.gate, layer.linear, layer.outer)
    )
    y = function(X @ gate[0] + gate[1]) * (X @ linear[0] + linear[1]) @ outer[0] + outer[1]
    np.testing.assert_allclose(layer(X), y, rtol=1e-4, atol=1e-4)
    assert sum(np.prod(w.shape) for w in layer.weights) == 3 * 6 * 7 + bias * (2 * 7 + 6)
    again = FeedForward.from_config(layer.get_config())
    assert (again.gated, again.activation) == (True, layer.activation)


def test_an_activation_that_is_none_is_refused():
    with pytest.raises(
        ValueError, match="activation must be one of gelu, .*or gated_ before one of them. Received: 'gated_mish'"
    ):
        FeedForward(7, "gated_mish")


@pytest.mark.parametrize("compiled", [False, True])
def test_a_norm_without_bias_is_one_whose_bias_stays_0(compiled):
    plain, free = LayerNorm(1e-5, name="norm"), BiasFreeLayerNorm(1e-5, name="norm")
    gradients = []
    for layer in (plain, free):
        layer.build((None, None, 6))
        layer.gamma.assign(np.linspace(0.5, 2, 6))
        with fusion(compiled), tf.GradientTape() as tape:
            y = layer(X, np.roll(X, 1))
            loss = tf.reduce_sum(y**2 * np.arange(6.0))
        gradients.append((y, tape.gradient(loss, layer.gamma.value)))
    np.testing.assert_allclose(gradients[1][0], gradients[0][0], atol=1e-6)
    np.testing.assert_allclose(gradients[1][1], gradients[0][1], rtol=1e-5)
    assert [weight.name for weight in free.weights] == ["gamma"]


@pytest.mark.parametrize(
    ("blocks", "asked", "normalised"),
    [("post", None, True), ("pre", None, False), ("pre", True, True), ("post", False, False)],
)
def test_the_norm_of_the_embeddings_is_a_setting(blocks, asked, normalised):
    model = kb.build("bert/tiny", **tiny.SPEC, **{"blocks.norm": blocks, "embeddings.norm": asked})
    assert (model.embeddings.norm is not None) == normalised


def test_a_block_knows_its_layer():
    model = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 3})
    assert [block.layer for block in model.blocks] == [0, 1, 2]
    assert [block.get_config()["layer"] for block in model.blocks] == [0, 1, 2]
