"""Checkpoints that are nearly right: refused in one line, or read with one line that says what was not used."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.directory import built, save_model
from kerasbert.errors import InputError
from tests.checkpoints.reference import CONFIG, hf_shapes, open_checkpoint, random_tensors, write_hf

CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}


def named(count):
    return {"id2label": {str(i): f"label {i}" for i in range(count)}}


def written(folder, changes=None, labels=0, renamed=lambda name: name, more=None):
    tensors = {renamed(name): value for name, value in random_tensors(hf_shapes(labels)).items()} | (more or {})
    return write_hf(folder, tensors, CONFIG | (CLASSIFIER if labels else {}) | (changes or {}))


@pytest.mark.parametrize(
    ("labels", "changes", "message"),
    [
        (3, named(3) | {"problem_type": "regression"}, "problem_type is regression with 3 outputs, and one number"),
        (1, named(1) | {"problem_type": "single_label_classification"}, "single_label_classification with one label"),
        (2, named(2) | {"problem_type": "ranking"}, "problem_type is 'ranking', expected one of regression"),
        (3, {"num_labels": 2}, "the classifier has 3 outputs, and num_labels says 2"),
        (3, {"_num_labels": 5}, "the classifier has 3 outputs, and _num_labels says 5"),
        (3, named(2), "the classifier has 3 outputs, and id2label names 2"),
        (2, named(3), "the classifier has 2 outputs, and id2label names 3"),
        (2, named(3) | {"architectures": ["BertForTokenClassification"]}, "has 2 outputs, and id2label names 3"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels, changes, message):
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(written(tmp_path, changes, labels), dry_run=True)


@pytest.mark.parametrize(
    ("labels", "problem", "kind"),
    [(1, "regression", "regression"), (1, "multi_label_classification", "multi_label"), (3, None, "classification")],
)
def test_labels_that_fit_load_again(tmp_path, labels, problem, kind):
    folder = written(tmp_path / "theirs", named(labels) | {"problem_type": problem, "num_labels": labels}, labels)
    kb.import_checkpoint(folder, out=tmp_path / "ours", build=False)
    assert json.loads((tmp_path / "ours/model.json").read_text())["task"]["kind"] == kind
    assert kb.load(tmp_path / "ours").task.kind == kind


@pytest.mark.parametrize("wrapper", ["module.", "model.", "_orig_mod.", "0.auto_model.", "module._orig_mod."])
def test_names_of_a_module_around_the_model(tmp_path, capsys, wrapper):
    written(tmp_path, renamed=lambda name: wrapper + name)
    assert kb.import_checkpoint(tmp_path, dry_run=True).fits
    assert capsys.readouterr().err == f"not used: {wrapper!r} before every name ({tmp_path.name})\n"


def test_names_of_which_some_are_of_a_module_around_the_model(tmp_path):
    loss = {"loss.weight": np.ones(3, "float32")}
    written(tmp_path, renamed=lambda name: f"module.{name}", more=loss)
    with pytest.raises(InputError, match=r"46 of 47 names begin with 'module\.'.* \(loss\.weight\)\. Save that"):
        kb.import_checkpoint(tmp_path)
    assert kb.import_checkpoint(tmp_path, dry_run=True, ignore=["loss.*"]).fits


@pytest.mark.parametrize(("value", "right"), [(np.arange(10), True), (np.arange(10) + 1, False), (np.zeros(10), False)])
def test_stored_positions(tmp_path, value, right):
    name = "bert.embeddings.position_ids"
    written(tmp_path, more={name: value[None].astype("float32")})
    if right:
        assert kb.import_checkpoint(tmp_path, dry_run=True).ignored == (name,)
        return
    with pytest.raises(InputError, match=rf"{name} in .* is not what is computed in its place \(counted\)"):
        kb.import_checkpoint(tmp_path, dry_run=True)
    assert kb.import_checkpoint(tmp_path, dry_run=True, ignore=[name]).fits


def test_what_is_not_used_is_one_line_of_the_command_and_of_python(tmp_path, capsys):
    from kerasbert.cli import main

    written(tmp_path / "theirs", {"trainer": {"rate": 1}, "note": "x", "classifier_dropout": 0.3})
    said = "not used: trainer, note, classifier_dropout (config.json)\n"
    main(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")])
    assert capsys.readouterr().err.count(said) == 1
    kb.import_checkpoint(tmp_path / "theirs", dry_run=True)
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("t5", "T5ForTokenClassification"),
        ("t5", "T5EncoderModel"),
        ("mt5", "MT5ForTokenClassification"),
        ("umt5", "UMT5EncoderModel"),
    ],
)
def test_classes_of_t5_that_are_refused_say_why(family, name):
    dialect = registry.family(family).names["hf"]
    with pytest.raises(InputError, match="no such model here"):
        dialect.of(dialect.class_of(name))


def test_a_shard_in_another_file_than_the_index_says(tmp_path):
    written(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    write_hf(tmp_path, {"more": np.ones(2, "float32")})
    (tmp_path / "model.safetensors").rename(tmp_path / "b.safetensors")
    index = {"weight_map": {"more": "a.safetensors", "bert.pooler.dense.bias": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"lies in a.safetensors, and .*index.json names b.safetensors"):
        open_checkpoint(tmp_path, "hf")


SMALL = {"hidden": 8, "blocks.layers": 1, "attention.heads": 2, "feedforward.width": 16}


def model(folder, family, task=None, **more):
    found = registry.family(family)
    spec = found.spec.derive(SMALL | more)
    save_model(folder, encoder=built(found, spec, family), name=family, task=task, heads={})
    return folder


def test_a_bart_that_writes_is_exported_as_their_class_that_writes(tmp_path):
    run = model(tmp_path / "run", "bart", {"kind": "generation", "inputs": "text"})
    kb.export_checkpoint(run, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == ["BartForConditionalGeneration"]
    bias = open_checkpoint(tmp_path / "out", "hf")[0].read("final_logits_bias")
    assert bias.shape == (1, 50265)
    assert not bias.any()
    kb.export_checkpoint(model(tmp_path / "bare", "bart"), tmp_path / "encoder")
    assert json.loads((tmp_path / "encoder/config.json").read_text())["architectures"] == ["BartModel"]
    with pytest.raises(InputError, match="mass has no format of other libraries, so that nothing is imported as one"):
        kb.import_checkpoint(tmp_path / "out", model="mass")


def test_a_family_without_a_format_of_others_says_so(tmp_path):
    with pytest.raises(InputError, match="mass has no format of other libraries: keep the model directory"):
        kb.export_checkpoint(model(tmp_path / "run", "mass"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_export_of_a_class_that_is_gone_says_so(tmp_path, capsys):
    kb.export_checkpoint(
        model(tmp_path / "run", "transformer-xl", **{"embeddings.vocabulary": 250_000}), tmp_path / "out"
    )
    assert "transformers 5 has no class for Transformer-XL any more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["model.fp16.safetensors"],
            "it holds model.fp16.safetensors; rename the one that is meant to model.safetensors",
        ),
        (["b.safetensors", "a.safetensors"], "it holds a.safetensors, b.safetensors; rename"),
        (["model-00001-of-00002.safetensors"], "is a shard, copy model.safetensors.index.json, which lists them, too"),
        (["pytorch_model-00002-of-00002.bin"], "is a shard, copy pytorch_model.bin.index.json"),
        (["tf_model.h5"], "or pytorch_model.bin: tf_model.h5 is not read"),
        ([], "or pytorch_model.bin$"),
    ],
)
def test_weights_under_other_names_say_what_to_do(tmp_path, names, message):
    written(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "x")
    for name in names:
        (tmp_path / name).write_bytes((tmp_path / "x").read_bytes())
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path, "hf", dry_run=True)


@pytest.mark.parametrize("family", ["modernbert", "eurobert"])
def test_a_gated_activation_has_several_names_and_one_is_written(family):
    """transformers computes the same by swish and silu, by gelu_fast and gelu_new."""
    from kerasbert.checkpoints import config as configs

    known = registry.family(family)
    dialect = known.names["hf"]
    key = dict(dialect.config)["feedforward.activation"]
    for said, wanted in {"swish": "silu", "gelu_python": "gelu", "gelu_fast": "gelu_new", "silu": "silu"}.items():
        ours = dialect.values[key][said]
        written_out = configs.to_config(known.spec.derive({"feedforward.activation": ours}), dialect, known.spec)
        assert written_out[key] == wanted


def test_a_class_that_is_not_known_is_told(tmp_path, capsys):
    written(tmp_path, {"architectures": ["MyBert"]})
    kb.import_checkpoint(tmp_path, dry_run=True)
    said = "the class MyBert, which is not known (its tensors are read by name) (config.json)"
    assert capsys.readouterr().err == f"not used: {said}\n"
    written(tmp_path, {"architectures": ["BertForPreTraining"]})
    kb.import_checkpoint(tmp_path, dry_run=True)
    assert not capsys.readouterr().err
