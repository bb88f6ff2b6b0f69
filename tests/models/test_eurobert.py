"""EuroBERT: grouped heads by hand, counts, configurations. Parity: tests.checkpoints.test_parity_random."""

import numpy as np
import pytest

from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
from kerasbert.models.eurobert import EUROBERT, HF, EuroBertAttention
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task

TINY = {
    "hidden": 24,
    "attention.heads": 4,
    "key_heads": 2,
    "feedforward.width": 14,
    "blocks.layers": 2,
    "embeddings.vocabulary": 60,
    "embeddings.positions": 16,
}
CONFIG = {
    "model_type": "eurobert",
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 14,
    "max_position_embeddings": 16,
    "clf_pooling": "mean",
    "rope_theta": 500,
    "auto_map": {"AutoModel": "modeling_eurobert.EuroBertModel"},
    "pretraining_tp": 1,
}


@pytest.mark.parametrize(
    ("size", "count"),
    [("210m", 211_766_016), ("610m", 607_874_688), ("2.1b", 2_107_590_912)],
)
def test_the_released_sizes(size, count):
    assert models.parameters(EUROBERT.encoder, registry.find(f"eurobert/{size}")[1]) == count


def test_heads_of_a_group_share_keys_and_values():
    """Against attention head by head, of queries that are some of the tokens."""
    rng = np.random.default_rng(0)
    layer = EuroBertAttention(4, 6, groups=2, theta=100.0, use_bias=False)
    layer.build((None, None, 24))
    assert [tuple(each.shape) for each in layer.weights] == [(24, 24), (24, 12), (24, 12), (24, 24)]
    x, places = rng.normal(size=(2, 5, 24)).astype("float32"), np.arange(5)[None]
    query, key, value, output = (each.numpy() for each in layer.weights)

    def turned(heads):  # [B, S, D]
        angles = places[..., None] * 100.0 ** (-np.arange(3) / 3)
        one, other = heads[..., :3], heads[..., 3:]
        return np.concatenate(
            [one * np.cos(angles) - other * np.sin(angles), other * np.cos(angles) + one * np.sin(angles)], -1
        )

    found = []
    for head in range(4):
        group = slice(6 * (head // 2), 6 * (head // 2) + 6)
        q, k = turned(x @ query[:, 6 * head : 6 * head + 6]), turned(x @ key[:, group])
        scores = q @ k.transpose(0, 2, 1) / 6**0.5
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        found.append(weights @ (x @ value[:, group]))
    y, probabilities = layer(x, scoring=places)
    np.testing.assert_allclose(y, np.concatenate(found, -1) @ output, atol=1e-5)
    assert probabilities.shape == (2, 4, 5, 5)
    first, _ = layer(x[:, :1], source=x, scoring=places, queries="first")
    np.testing.assert_allclose(first, y[:, :1], atol=1e-6)


def test_labels_of_every_token_are_averaged():
    model = TaskModel(EUROBERT.encoder(EUROBERT.spec.derive(TINY)), find_task("glue/sst2"))
    model.build()
    ids, mask = np.arange(5, 15).reshape(2, 5), np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    logits = model({"token_ids": ids, "padding_mask": mask})["logits"]
    alone = model({"token_ids": ids[1:, :2], "padding_mask": mask[1:, :2]})["logits"]
    np.testing.assert_allclose(logits[1:], alone, atol=1e-6)
    tokens = model.encoder({"token_ids": ids[1:, :2], "padding_mask": mask[1:, :2]})["sequence"]
    np.testing.assert_allclose(alone[0], np.mean(model.heads["classifier"](tokens)[0], 0), atol=1e-6)


def read(config):
    return configs.to_spec(config, HF, EUROBERT.spec, "theirs")


def test_configurations_of_the_first_releases_and_of_today():
    spec = read(CONFIG)
    assert (spec.key_heads, spec.theta, spec.readout, spec.attention_maps(0)) == (2, 500.0, "mean", 3)
    written = configs.to_config(spec, HF, EUROBERT.spec)
    assert written["rope_parameters"] == {"rope_theta": 500.0, "rope_type": "default"}
    assert (written["classifier_pooling"], read(written)) == ("mean", spec)


@pytest.mark.parametrize(
    "change",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"tie_word_embeddings": True},
        {"rope_parameters": {"rope_theta": 500.0, "rope_type": "yarn"}},
    ],
)
def test_what_is_computed_otherwise_is_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        read(CONFIG | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_heads": 3}, "must divide attention.heads, 4"),
        ({"attention.head_size": 7}, "even width"),
        ({"theta": 1.0}, "above 1"),
        ({"readout": "last"}, "one of late, mean, first"),
    ],
)
def test_settings_that_are_none_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        EUROBERT.spec.derive(TINY | change)
