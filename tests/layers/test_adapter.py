"""Adapters: by hand, the identity when new, one place in every block, one set where layers are shared."""

import keras
import numpy as np
import pytest

from kerasbert import registry
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.layers.adapter import Adapter
from kerasbert.layers.naming import names, unallocated
from kerasbert.testing.battery import tiny

TOKENS = {"token_ids": np.array([[1, 2, 3, 4]], "int32"), "padding_mask": np.array([[1, 1, 1, 0]], "int32")}


def test_an_adapter_by_hand():
    layer = Adapter(1, "relu")
    x = np.array([[[1.0, 2.0], [3.0, -5.0]]], "float32")
    np.testing.assert_array_equal(layer(x), x)
    layer.down.kernel.assign([[1.0], [1.0]])
    layer.down.bias.assign([1.0])
    layer.up.kernel.assign([[2.0, 0.5]])
    layer.up.bias.assign([0.0, 1.0])
    # relu(1 + 2 + 1) = 4, relu(3 - 5 + 1) = 0
    np.testing.assert_array_equal(layer(x), [[[9.0, 5.0], [3.0, -4.0]]])
    with pytest.raises(InputError, match="no activation 'gelo'. Nearest: 'gelu'"):
        Adapter(1, "gelo")


@pytest.mark.parametrize("name", ["bert", "albert", "mobilebert", "megatron-bert"])
def test_a_model_with_new_adapters_is_the_model(name):
    family = registry.family(name)
    base = family.spec.derive({**tiny(family.spec, 20), "dropout": 0.0})
    keras.utils.set_random_seed(0)
    plain, adapted = built(family, base), built(family, base.derive({"adapters.width": 3}))
    had, has = names(plain), names(adapted)
    assert had.keys() < has.keys()
    rest = sorted(has.keys() - had.keys())
    assert {weight.split("/", 2)[1].removesuffix("_adapter").split("_")[0] for weight in rest} == {
        "attention",
        "feedforward",
    }
    assert [weight.split("/", 2)[2] for weight in rest[:4]] == ["down/bias", "down/kernel", "up/bias", "up/kernel"]
    for weight, variable in had.items():
        has[weight].assign(variable)
    np.testing.assert_array_equal(adapted(TOKENS)["sequence"], plain(TOKENS)["sequence"])
    before = np.asarray(plain(TOKENS)["sequence"])
    for weight in rest:  # each of them acts
        if weight.endswith("up/bias"):
            has[weight].assign(np.linspace(-1, 1, has[weight].shape[0]))
            after = np.asarray(adapted(TOKENS)["sequence"])
            assert np.abs(after - before).max() > 1e-4, weight
            before = after
    assert sum(weight.endswith("attention_adapter/up/bias") for weight in rest) == (1 if name == "albert" else 2)


def test_names_and_sizes_of_adapters():
    family = registry.family("mobilebert")
    with unallocated():
        weights = names(built(family, family.spec.derive({"adapters.width": 8})))
    found = [name for name in weights if name.startswith("block_3/") and "_adapter/up/bias" in name]
    assert found == [
        f"block_3/{sublayer}_adapter/up/bias"
        for sublayer in ("attention", "feedforward_0", "feedforward_1", "feedforward_2", "feedforward")
    ]
    assert weights["block_3/feedforward_1_adapter/down/kernel"].shape == (128, 8)
