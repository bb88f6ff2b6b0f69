"""Low-rank updates: by hand, the base when new, which maps, what is refused."""

import re

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.adaptation import Lora
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.layers import lora
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.naming import names, unallocated
from kerasbert.testing.battery import tiny

TOKENS = {"token_ids": np.array([[1, 2, 3, 4]], "int32"), "padding_mask": np.array([[1, 1, 1, 0]], "int32")}
ALL = (
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.output",
    "feedforward.inner",
    "feedforward.outer",
)


def linear(dtype="float32", **settings):
    """A map of 2 x 3 with an update of rank 1."""
    with lora.asked(Lora(rank=1, targets=("map",), **settings), "model"):
        layer = Linear(3, name="map", dtype=dtype)
        layer.build((None, 2))
    return layer


def test_an_update_by_hand():
    layer = linear(alpha=4.0)
    layer.kernel.assign([[1, 2, 3], [4, 5, 6]])
    layer.bias.assign([0, 0, 1])
    layer.lora_a.assign([[1], [2]])
    x = np.array([[1.0, 1.0]], "float32")
    np.testing.assert_array_equal(layer(x), [[5, 7, 10]])
    layer.lora_b.assign([[1, 0, -1]])
    # x A = 3, 3 B = [3, 0, -3], alpha / r = 4
    np.testing.assert_array_equal(layer(x), [[17, 7, -2]])
    np.testing.assert_array_equal(layer(x, activation="relu"), [[17, 7, 0]])
    np.testing.assert_array_equal(layer.merged(), [[5, 2, -1], [12, 5, -2]])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_merged_is_unmerged(dtype, tolerance):
    layer, generator = linear(dtype, alpha=3.0), np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(generator.normal(size=weight.shape))
    x = generator.normal(size=(5, 2)).astype(dtype)
    merged = x @ np.asarray(keras.ops.convert_to_tensor(layer.merged())) + np.asarray(layer.bias.value)
    assert np.abs(np.asarray(layer(x)) - merged).max() < tolerance


@pytest.mark.parametrize("name", ["bert", "albert", "electra", "mobilebert", "roberta", "distilbert"])
def test_a_model_with_new_updates_is_the_model(name):
    family = registry.family(name)
    base = family.spec.derive({**tiny(family.spec, 20), "dropout": 0.0})
    changes = {"lora.rank": 2, "lora.targets": ALL}
    plain, adapted = built(family, base), built(family, base.derive(changes))
    had, has = names(plain), names(adapted)
    rest = sorted(has.keys() - had.keys())
    networks = 5 if name == "mobilebert" else 2  # 4 + attention, feedforward + attention
    blocks = 1 if name == "albert" else 2
    assert len(rest) == 2 * blocks * (4 + 2 * (networks - 1))
    assert {"block_0/attention/query/lora_a", "block_0/feedforward/outer/lora_b"} <= set(rest)
    for weight, variable in had.items():
        has[weight].assign(variable)
    np.testing.assert_array_equal(adapted(TOKENS)["sequence"], plain(TOKENS)["sequence"])
    # the generator of an ELECTRA is none of its blocks
    assert not hasattr(base, "of_generator") or base.derive(changes).of_generator() == base.of_generator()


def test_one_network_of_several_and_the_pooler():
    family = registry.family("mobilebert")
    changes = {"lora.rank": 2, "lora.targets": "feedforward_1.inner,pooler,bottleneck_input", "bottleneck.pooled": True}
    with unallocated():
        found = [name for name in names(built(family, family.spec.derive(changes))) if name.endswith("lora_a")]
    assert [name for name in found if not re.match(r"block_([1-9])", name)] == [
        "block_0/bottleneck_input/lora_a",
        "block_0/feedforward_1/inner/lora_a",
        "pooler/lora_a",
    ]


@pytest.mark.parametrize(
    ("name", "lora_share", "adapters_share"), [("bert/base", 0.01, 0.04), ("roberta/base", 0.01, 0.04)]
)
def test_what_is_trained_of_a_base_model(name, lora_share, adapters_share):
    """Against the sizes of BERT-base, counted without memory."""
    from kerasbert.checkpoints.adapters import adapts

    family, spec = registry.find(name)
    with unallocated():
        for changes, most in (({"lora.rank": 8}, lora_share), ({"adapters.width": 64}, adapters_share)):
            adapted = spec.derive(changes)
            sizes = {name: int(np.prod(v.shape)) for name, v in names(built(family, adapted)).items()}
            trained = sum(size for name, size in sizes.items() if adapts(adapted, name))
            assert 0.001 < trained / sum(sizes.values()) <= most


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"lora.alpha": 16}, "lora.rank is 0, no adaptation, and .*alpha=16.0.* has more: give lora.rank"),
        ({"lora.rank": -1}, "lora.rank must be at least 0. Received: -1"),
        ({"lora.rank": 2, "lora.alpha": 0}, "lora.alpha must be more than 0"),
        ({"lora.rank": 2, "lora.targets": []}, "lora.targets is empty"),
        ({"lora.rank": 2, "lora.targets": [3]}, "lora.targets must be tuple"),
        (
            {"lora.rank": 17, "hidden": 16, "attention.heads": 2},
            "lora.rank is 17, expected at most 16: attention.query",
        ),
        (
            {"lora.rank": 2, "lora.targets": ["attention.querry"]},
            "no linear map 'attention.querry'. Nearest: 'attention.query'. All: attention.key, ",
        ),
        ({"adapters.width": -3}, "adapters.width must be at least 0"),
        ({"adapters.width": 2, "adapters.activation": "gelo"}, "no activation 'gelo'. Nearest: 'gelu'"),
    ],
)
def test_what_is_refused(changes, text):
    with pytest.raises(InputError, match=text):
        kb.build("bert/tiny", **changes)
