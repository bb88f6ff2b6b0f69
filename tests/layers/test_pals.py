"""Projected attention layers: by hand, the identity when new, one pair of projections for all layers, the paper's number."""

import math

import keras
import numpy as np
import pytest

from kerasbert import registry
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.layers.context import Context
from kerasbert.layers.naming import names, unallocated
from kerasbert.layers.pals import ProjectedAttention
from kerasbert.layers.visibility import HIDDEN
from kerasbert.testing.battery import tiny

TOKENS = {"token_ids": np.array([[1, 2, 3, 4]], "int32"), "padding_mask": np.array([[1, 1, 1, 0]], "int32")}


def gelu(x):
    return np.vectorize(lambda each: each * 0.5 * (1 + math.erf(each / math.sqrt(2))))(x)


def test_a_layer_by_hand():
    """Two heads of one number each; the third token is hidden."""
    layer = ProjectedAttention(2, 1, 3, 3)
    layer.build()
    x = np.array([[[1, 0, 2], [0, 1, -1], [5, 5, 5]]], "float32")
    bias = np.array([0, 0, HIDDEN], "float32").reshape(1, 1, 1, 3)
    np.testing.assert_array_equal(layer(x, context=Context(bias)), np.zeros((1, 3, 3)))  # up starts at zero
    layer.down.kernel.assign([[1, 0], [0, 1], [1, 1]])
    layer.down.bias.assign([0, 1])
    for part, kernel in (
        (layer.query, [[1, 0], [0, 1]]),
        (layer.key, [[1, 0], [0, 0]]),
        (layer.value, [[0, 2], [1, 0]]),
    ):
        part.kernel.assign(kernel)
    layer.up.kernel.assign([[1, 0, 1], [0, 1, -1]])
    layer.up.bias.assign([0, 0, 0.5])
    # down: [3, 3], [-1, 1]; keys of the heads [3, -1] and [0, 0], values [3, 1] and [6, -2]
    e = np.e
    first = [(3 * e**9 + e**-3) / (e**9 + e**-3), (3 * e**-3 + e**1) / (e**-3 + e**1)]
    second = [2.0, 2.0]  # every score is 0
    wanted = gelu([[a, b, a - b + 0.5] for a, b in zip(first, second)])
    y = layer(x, context=Context(bias))
    np.testing.assert_allclose(y[0, :2], wanted, rtol=1e-5)
    np.testing.assert_allclose(layer(x, context=Context(bias).of("first")), y[:, :1], rtol=1e-6)
    memory = np.array([[[0, 1, -1]]], "float32")  # the second token, remembered
    alone = layer(x[:, :1], context=Context(memory=memory))
    np.testing.assert_allclose(alone[0], wanted[:1], rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("albert", "mobilebert"))]
)
def test_a_model_with_new_pals_is_the_model_and_each_of_them_acts(name):
    family = registry.family(name)
    base = family.spec.derive({**tiny(family.spec, 20), "dropout": 0.0, "attention.dropout": 0.0})
    keras.utils.set_random_seed(0)
    plain, other = built(family, base), built(family, base.derive({"pals.width": 6, "pals.heads": 2}))
    had, has = names(plain), names(other)
    rest = sorted(has.keys() - had.keys())
    layers = 1 if name == "albert" else 2  # a shared block has one
    assert [weight for weight in rest if "query" in weight] == [
        f"block_{i}/pal/query/{part}" for i in range(layers) for part in ("bias", "kernel")
    ]
    assert [weight for weight in rest if "down" in weight or "up" in weight] == [
        f"block_0/pal/{end}/{part}" for end in ("down", "up") for part in ("bias", "kernel")
    ]
    for weight, variable in had.items():
        has[weight].assign(variable)
    before = np.asarray(plain(TOKENS)["sequence"])
    np.testing.assert_array_equal(other(TOKENS)["sequence"], before)
    draw = np.random.default_rng(0)
    acting = [weight for weight in rest if weight.endswith(("up/bias", "kernel"))]
    for weight in acting:
        has[weight].assign(draw.normal(0, 0.4, has[weight].shape))
    for weight in acting:
        last = np.asarray(other(TOKENS)["sequence"])
        has[weight].assign(draw.normal(0, 0.4, has[weight].shape))
        assert np.abs(np.asarray(other(TOKENS)["sequence"]) - last).max() > 1e-7, weight
    before = np.asarray(other(TOKENS)["sequence"])
    # padding says nothing
    longer = {key: np.pad(value, ((0, 0), (0, 2))) for key, value in TOKENS.items()}
    np.testing.assert_allclose(other(longer)["sequence"][:, :3], before[:, :3], atol=1e-5)
    first = np.asarray(other(TOKENS, queries="first")["sequence"])
    np.testing.assert_allclose(first[:, 0], before[:, 0], atol=1e-5)


def test_eight_tasks_on_bert_base_are_the_papers_1_13():
    """Stickland and Murray, 2019, table 1: d_s = 204, 12 heads."""

    def parameters(changes):
        with unallocated():
            encoder = built(registry.family("bert"), registry.find("bert/base")[1].derive(changes))
            return sum(math.prod(variable.shape) for variable in names(encoder).values())

    base, one = parameters({}), parameters({"pals.width": 204})
    assert one - base == 2 * 768 * 204 + 204 + 768 + 12 * 3 * (204 * 204 + 204)
    assert (base + 8 * (one - base)) / base == pytest.approx(1.13, abs=0.005)


def test_wrong_sizes_are_named():
    spec = registry.find("bert/tiny")[1]
    with pytest.raises(InputError, match="pals.width 200 is not a multiple of pals.heads 12: change one"):
        spec.derive({"pals.width": 200})
    with pytest.raises(InputError, match="pals.width must be at least 0. Received: -12"):
        spec.derive({"pals.width": -12})
    from kerasbert.spec import from_dict, to_dict

    wide = spec.derive({"pals.width": 24})
    assert to_dict(wide)["pals"] == {"width": 24, "heads": 12}
    assert from_dict(to_dict(wide), type(spec)) == wide
