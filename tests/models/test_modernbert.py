"""ModernBERT: what its configurations say, both ways; counts. Parity: tests.checkpoints.test_parity_random."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
from kerasbert.models.modernbert import HF, MODERNBERT

SIZES = {
    "model_type": "modernbert",
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


def read(**config):
    return configs.to_spec(SIZES | config, HF, MODERNBERT.spec, "theirs")


def types(pattern):
    return [{"f": "full_attention", "s": "sliding_attention"}[letter] for letter in pattern]


def test_the_released_models_have_the_papers_parameters():
    # table 4 of the paper: 149M and 395M
    counts = [
        models.parameters(MODERNBERT.encoder, registry.find(f"modernbert/{size}")[1]) for size in ("base", "large")
    ]
    assert [round(count / 1e6) for count in counts] == [149, 395]


@pytest.mark.parametrize(("pattern", "every"), [("fssf", 3), ("fsfs", 2), ("ffff", 1), ("fsss", 4)])
def test_layers_that_see_all_are_said_in_two_ways(pattern, every):
    assert read(layer_types=types(pattern)).local.every == every
    spec = read(layer_types=types(pattern), global_attn_every_n_layers=every)
    assert [spec.is_local(layer) for layer in range(4)] == [letter == "s" for letter in pattern]
    assert configs.to_config(spec, HF, MODERNBERT.spec)["layer_types"] == types(pattern)


@pytest.mark.parametrize("pattern", ["sfss", "fsff", "ffss"])
def test_another_pattern_is_refused(pattern):
    with pytest.raises(InputError, match="layer_types"):
        read(layer_types=types(pattern))


def test_rotations_are_said_in_two_ways():
    told = {"full_attention": {"rope_theta": 5000.0, "rope_type": "default"}}
    told["sliding_attention"] = {"rope_theta": 700.0, "rope_type": "default"}
    spec = read(rope_parameters=told)
    assert (spec.local.theta, spec.local.theta_local) == (5000.0, 700.0)
    assert read(global_rope_theta=5000.0, local_rope_theta=700.0) == spec
    written = configs.to_config(spec, HF, MODERNBERT.spec)
    assert written["rope_parameters"] == told
    assert (written["global_rope_theta"], written["local_rope_theta"]) == (5000.0, 700.0)
    told["full_attention"]["rope_type"] = "yarn"
    with pytest.raises(InputError, match="rope_parameters"):
        read(rope_parameters=told)


@pytest.mark.parametrize(
    "key", ["norm_bias", "attention_bias", "mlp_bias", "classifier_bias", "tie_word_embeddings", "decoder_bias"]
)
def test_what_is_computed_otherwise_is_refused(key):
    with pytest.raises(InputError, match=key):
        read(**{key: HF.fixed[key] is False})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local.window": 1}, "local.window must be at least 2"),
        ({"local.every": 0}, "local.every at least 1"),
        ({"attention.head_size": 7}, "even width"),
        ({"local.theta": 1.0}, "must be above 1"),
        ({"readout": "men"}, "readout must be one of"),
    ],
)
def test_settings_that_are_none_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        MODERNBERT.spec.derive(change)


def test_what_is_far_changes_nothing_in_local_layers_alone():
    model = kb.build(
        "modernbert/base",
        **{
            "hidden": 24,
            "blocks.layers": 2,
            "attention.heads": 2,
            "feedforward.width": 32,
            "embeddings.vocabulary": 61,
            "local.window": 4,
            "local.every": 2,
            "initializer": 0.3,
        },
    )
    ids = np.random.default_rng(0).integers(5, 61, (1, 12)).astype("int32")
    other = ids.copy()
    other[0, 9:] = 5
    one, two = (model({"token_ids": each})["hidden"] for each in (ids, other))
    assert np.abs(np.asarray(one[1] - two[1]))[0, :9].max() > 1e-3  # the first layer sees all
    x = np.asarray(one[1])
    moved = np.concatenate([x[:, :9], -x[:, 9:]], axis=1)  # a norm takes off what is added to all
    near, far = (np.asarray(model.blocks[1](each, context=model.context({"token_ids": ids}))[0]) for each in (x, moved))
    np.testing.assert_allclose(near[:, :7], far[:, :7], atol=1e-6)
    assert np.abs(near[:, 7:9] - far[:, 7:9]).max() > 1e-3


def test_a_text_is_classified_by_its_first_token_or_its_mean():
    assert read().readout == "first"
    assert read(classifier_pooling="mean").readout == "mean"
    assert configs.to_config(read(classifier_pooling="mean"), HF, MODERNBERT.spec)["classifier_pooling"] == "mean"
