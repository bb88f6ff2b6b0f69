"""Transformer-XL against numpy in float64, by files in the layout of transformers' TransfoXL: read, computed, written again."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import save_model
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.models.transformer_xl import Recurrence
from tests.models.reference_transformer_xl import Reference, weights

SIZES = [
    {"vocab_size": 61, "d_model": 14, "d_embed": 14, "n_head": 3, "d_head": 5, "d_inner": 23, "n_layer": 2}
    | {"cutoffs": [13, 29], "div_val": 1, "mem_len": 5, "clamp_len": -1, "same_length": False},
    {"vocab_size": 83, "d_model": 18, "d_embed": 18, "n_head": 2, "d_head": 7, "d_inner": 31, "n_layer": 3}
    | {"cutoffs": [20, 41, 60], "div_val": 2, "mem_len": 9, "clamp_len": 6, "same_length": True},
    {"vocab_size": 47, "d_model": 10, "d_embed": 17, "n_head": 1, "d_head": 3, "d_inner": 9, "n_layer": 1}
    | {"cutoffs": [17], "div_val": 4, "mem_len": 11, "clamp_len": 3, "same_length": False},
]
OTHERS = [
    SIZES[0] | {"cutoffs": []},
    SIZES[1] | {"div_val": 1, "d_embed": 11, "mem_len": 0, "same_length": False},  # the tails share one projection
]
MADE = {"layer_norm_epsilon": 1e-5, "init_std": 0.02, "dropout": 0.1, "dropatt": 0.0}
THEIRS = {"model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"], "untie_r": True, "attn_type": 0}
LENGTHS = (7, 4, 7, 2)  # of the segments: shorter and longer than memories


def made(folder, config, **changes):
    """A file in their layout, and its reference."""
    config = MADE | config
    folder.mkdir()
    tensors = weights(config, seed=len(str(config))) | changes
    (folder / "config.json").write_text(json.dumps(THEIRS | config))
    shapes = {name: value.shape for name, value in tensors.items()}
    write_safetensors(folder / "model.safetensors", shapes, tensors.__getitem__, metadata={"format": "pt"})
    return Reference(config, tensors)


def compare(model, reference, seed=0):
    """Two rows of a text, segment after segment."""
    draw, memory, theirs = np.random.default_rng(seed), None, [None, None]
    for length in LENGTHS:
        ids = draw.integers(0, reference.config["vocab_size"], (2, length)).astype("int32")
        outputs, memory = model.read({"token_ids": ids}, memory)
        logits = np.asarray(model.logits(outputs["sequence"]), "float64")
        found = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for row in range(2):
            x, theirs[row] = reference.segment(ids[row], theirs[row])
            np.testing.assert_allclose(outputs["sequence"][row], x, rtol=0, atol=1e-5)
            np.testing.assert_allclose(found[row], reference.log_probabilities(x), rtol=0, atol=1e-5)
            for layer in range(len(theirs[row])) if reference.config["mem_len"] else ():
                np.testing.assert_allclose(memory.layers[layer][row], theirs[row][layer], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("config", [*SIZES, *OTHERS], ids=lambda config: f"{config['div_val']}-{config['cutoffs']}")
def test_segments_and_back_again(config, tmp_path):
    reference = made(tmp_path / "theirs", config)
    model = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    assert model.spec.memory.clamp == (config["clamp_len"] if config["clamp_len"] > 0 else None)
    compare(model, reference)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "again")
    said = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: said[key] for key in MADE | config} == MADE | config
    assert said["tie_projs"] == [False] + [True] * len(config["cutoffs"])
    one, other = (Safetensors(tmp_path / name / "model.safetensors") for name in ("theirs", "again"))
    assert set(one.names()) - set(other.names()) == {
        name
        for name in one.names()
        if (name.startswith("crit.out_layers") and name.endswith("weight"))
        or (name.startswith("crit.out_projs") and name != "crit.out_projs.0")
        or name.endswith("inv_freq")
    }
    for name in other.names():
        np.testing.assert_array_equal(other.read(name), one.read(name))


def test_a_segment_without_a_memory(tmp_path):
    """A first segment by `call`, and by `read` with a memory of nothing."""
    reference = made(tmp_path / "theirs", SIZES[0] | {"n_layer": 1})
    model = kb.import_checkpoint(tmp_path / "theirs")
    ids = np.random.default_rng(1).integers(0, 61, (1, 6)).astype("int32")
    x, _ = reference.segment(ids[0])
    np.testing.assert_allclose(model({"token_ids": ids})["sequence"][0], x, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        model.read({"token_ids": ids}, about=Recurrence(0))[0]["sequence"][0], x, rtol=0, atol=1e-5
    )
    assert model.read({"token_ids": ids}, about=Recurrence(0))[1] is None


@pytest.mark.parametrize(
    ("changes", "tensors", "message"),
    [
        ({"untie_r": False}, {}, r"has untie_r False, expected True: no such model here"),
        ({"pre_lnorm": True}, {}, r"has pre_lnorm True, expected False: no such model here"),
        (
            {"cutoffs": [29, 13]},
            {},
            r"adaptive.cutoffs must ascend between 0 and embeddings.vocabulary 61. Received: 29, 13",
        ),
        (
            {},
            {"crit.out_layers.0.weight": np.zeros((61, 14), "float32")},
            r"crit.out_layers.0.weight in .* differs from ",
        ),
    ],
)
def test_what_it_cannot_compute_is_refused(changes, tensors, message, tmp_path):
    made(tmp_path / "theirs", SIZES[0], **tensors)
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path / "theirs")


def test_a_classifier_is_read_and_written(tmp_path):
    kernel = np.random.default_rng(0).normal(size=(2, 14)).astype("float32")
    made(tmp_path / "theirs", SIZES[0] | {"n_layer": 1}, **{"score.weight": kernel})
    path = tmp_path / "theirs" / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"architectures": ["TransfoXLForSequenceClassification"]})
    )
    model = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    np.testing.assert_array_equal(model.heads["classifier"]["kernel"], kernel.T)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["architectures"] == [
        "TransfoXLForSequenceClassification"
    ]
    np.testing.assert_array_equal(Safetensors(tmp_path / "again/model.safetensors").read("score.weight"), kernel)


def test_a_small_vocabulary_has_the_cutoffs_below_it(tmp_path):
    """The family's own model: cutoffs are not said, and come back unsaid."""
    family, spec = registry.find("transformer-xl/base")
    spec = spec.derive({"embeddings.vocabulary": 50, "hidden": 8, "attention.heads": 2, "blocks.layers": 1})
    model = family.encoder(spec)
    model.build()
    save_model(tmp_path / "ours", encoder=model, name="transformer-xl/base")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs/config.json").read_text())["cutoffs"] == []
    assert kb.import_checkpoint(tmp_path / "theirs").spec == spec
