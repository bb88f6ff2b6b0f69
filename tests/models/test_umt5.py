"""mT5 and umT5: counts, own distances by layer, what configurations say. Parity: tests.checkpoints.test_parity_generate."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
from kerasbert.layers.naming import names

TINY = {
    "hidden": 12,
    "blocks.layers": 2,
    "attention.heads": 2,
    "attention.head_size": 5,
    "feedforward.width": 20,
    "embeddings.vocabulary": 40,
    "dropout": 0.0,
}


def test_counts_are_the_papers_and_those_of_the_released_models():
    # Xue et al., 2021, section 3.2: 300M, 580M, 1.2B, 3.7B, 13B
    listed = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}
    assert {name: count for name, count in listed.items() if name.startswith("mt5/")} == {
        "mt5/small": 300_176_768,
        "mt5/base": 582_401_280,
        "mt5/large": 1_229_581_312,
        "mt5/xl": 3_742_619_648,
        "mt5/xxl": 12_921_057_280,
    }
    # two tables of 6,272 more rows, and a table of 32 by N for each layer where mT5 has one for each stack
    for size, hidden, heads, layers in (("small", 512, 6, 8), ("base", 768, 12, 12), ("xl", 2048, 32, 24)):
        more = 2 * 6272 * hidden + 32 * heads * 2 * (layers - 1)
        assert listed[f"umt5/{size}"] == listed[f"mt5/{size}"] + more
    found = registry.family("umt5")
    assert models.parameters(found.encoder, found.size("small")) == listed["umt5/small"]
    assert list(registry.family("umt5").sizes) == ["small", "base", "xl", "xxl"]


def test_every_layer_has_distances_of_its_own():
    model = kb.build("umt5/small", **TINY)
    weights = names(model)
    tables = [name for name in weights if name.endswith("relative/table")]
    assert tables == [
        f"{stack}/block_{layer}/attention/relative/table" for stack in ("encoder", "decoder") for layer in range(2)
    ]
    ids = np.random.default_rng(0).integers(3, 40, (1, 9)).astype("int32")
    inputs = {"token_ids": ids, "decoder_token_ids": ids[:, :6]}
    before = model(inputs)
    weights["encoder/block_1/attention/relative/table"].assign(np.eye(32, 2) * 5)
    after = model(inputs)
    np.testing.assert_array_equal(before["encoder_hidden"][1], after["encoder_hidden"][1])
    assert np.abs(before["encoder_hidden"][2] - after["encoder_hidden"][2]).max() > 1e-3


@pytest.mark.parametrize(("family", "scaled"), [("mt5", False), ("umt5", True)])
def test_configurations_that_say_little(family, scaled):
    found = registry.family(family)
    dialect, base = found.names["hf"], found.spec.derive(found.names["hf"].spec)
    sizes = {"vocab_size": 40, "d_model": 12, "d_kv": 5, "num_heads": 2, "d_ff": 20, "num_layers": 2}
    sizes |= {
        "relative_attention_num_buckets": 32,
        "dropout_rate": 0.1,
        "initializer_factor": 1.0,
        "layer_norm_epsilon": 1e-6,
    }
    spec = configs.to_spec(sizes | {"model_type": family}, dialect, base, "theirs")
    assert (spec.feedforward.activation, spec.output.scaled) == ("gated_gelu_tanh", scaled)
    told = sizes | {"model_type": family, "tie_word_embeddings": False, "is_gated_act": True}
    assert not configs.to_spec(told, dialect, base, "theirs").output.scaled
    with pytest.raises(InputError, match="is_gated_act"):
        configs.to_spec(told | {"is_gated_act": False}, dialect, base, "theirs")
