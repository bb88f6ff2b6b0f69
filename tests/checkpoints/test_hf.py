"""Checkpoints of others, in and out, without torch."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.directory import named_weights
from kerasbert.checkpoints.formats import ImportOptions, Opened
from tests.checkpoints import reference
from tests.checkpoints.reference import CONFIG, VOCABULARY, batch, hf_shapes, random_tensors, write_hf
from tests.support import ROOT, shared

GOLDEN = ROOT / "tests" / "golden" / "bert.npz"


def values(encoder):
    """Everything an import brought, by our names."""
    heads = {f"heads/{head}/{name}": value for head, part in encoder.heads.items() for name, value in part.items()}
    return {name: variable.value.numpy() for name, variable in named_weights(encoder).items()} | heads


def same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_equals_transformers_as_recorded(tmp_path):
    """Made by tests/golden/make_bert.py; test_parity.py compares with transformers itself."""
    with np.load(GOLDEN) as file:
        golden = dict(file)
    tensors = {name.removeprefix("weight:"): value for name, value in golden.items() if name.startswith("weight:")}
    write_hf(tmp_path, tensors, json.loads(str(golden["config"])), vocabulary=None)
    inputs = {name: golden[name] for name in ("token_ids", "padding_mask", "segment_ids")}
    encoder = kb.import_checkpoint(tmp_path)
    got, real = encoder(inputs), inputs["padding_mask"].astype(bool)
    assert len(got["hidden"]) == len(golden["hidden"]) == 4
    for ours, theirs in zip(got["hidden"], golden["hidden"], strict=True):
        np.testing.assert_allclose(np.asarray(ours)[real], theirs[real], rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.asarray(got["sequence"])[real], golden["hidden"][-1][real], rtol=0, atol=1e-5)
    np.testing.assert_allclose(got["pooled"], golden["pooled"], rtol=0, atol=1e-5)
    table = values(encoder)["embeddings/tokens/table"]
    logits = reference.mlm_logits(encoder.heads["mlm"], table, np.asarray(got["sequence"]))
    np.testing.assert_allclose(logits[real], golden["mlm"][real], rtol=0, atol=1e-4)
    nsp = encoder.heads["nsp"]
    np.testing.assert_allclose(
        np.asarray(got["pooled"]) @ nsp["kernel"] + nsp["bias"], golden["nsp"], rtol=0, atol=1e-5
    )


def test_each_weight_comes_from_its_tensor(tmp_path):
    tensors = random_tensors(hf_shapes())
    got = values(kb.import_checkpoint(write_hf(tmp_path, tensors)))
    assert len(got) == len(tensors)
    for ours, theirs in {
        "embeddings/tokens/table": "bert.embeddings.word_embeddings.weight",
        "embeddings/segments/table": "bert.embeddings.token_type_embeddings.weight",
        "embeddings/norm/gamma": "bert.embeddings.LayerNorm.weight",
        "block_1/attention/value/bias": "bert.encoder.layer.1.attention.self.value.bias",
        "block_1/attention_norm/beta": "bert.encoder.layer.1.attention.output.LayerNorm.bias",
        "block_0/feedforward_norm/gamma": "bert.encoder.layer.0.output.LayerNorm.weight",
        "heads/mlm/bias": "cls.predictions.bias",
        "heads/nsp/bias": "cls.seq_relationship.bias",
    }.items():
        np.testing.assert_array_equal(got[ours], tensors[theirs], err_msg=ours)
    for ours, theirs in {
        "block_1/attention/query/kernel": "bert.encoder.layer.1.attention.self.query.weight",
        "block_0/attention/output/kernel": "bert.encoder.layer.0.attention.output.dense.weight",
        "block_1/feedforward/inner/kernel": "bert.encoder.layer.1.intermediate.dense.weight",
        "pooler/kernel": "bert.pooler.dense.weight",
        "heads/mlm/transform/kernel": "cls.predictions.transform.dense.weight",
        "heads/nsp/kernel": "cls.seq_relationship.weight",
    }.items():
        np.testing.assert_array_equal(got[ours], tensors[theirs].T, err_msg=ours)


@pytest.mark.parametrize("target", ["hf", "tf1"])
def test_there_and_back(tmp_path, target):
    tensors = random_tensors(hf_shapes())
    first = kb.import_checkpoint(write_hf(tmp_path / "theirs", tensors), out=tmp_path / "run")
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back", target)
    second = kb.import_checkpoint(tmp_path / "back", target)
    same(values(first), values(second))
    assert second.spec == first.spec
    assert second.tokenizer.digest() == first.tokenizer.digest()
    assert list(second.tokenizer.vocabulary) == VOCABULARY
    if target == "hf":
        back = kb.checkpoints.safetensors.Safetensors(tmp_path / "back" / "model.safetensors")
        same({name: back.read(name) for name in back.names()}, tensors)
        config = json.loads((tmp_path / "back" / "config.json").read_text())
        assert {key: config[key] for key in CONFIG} == CONFIG
    kb.export_checkpoint(tmp_path / "run", tmp_path / "again", target)
    for file in sorted(path.name for path in (tmp_path / "back").iterdir()):
        assert (tmp_path / "back" / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file
    with pytest.raises(kb.InputError, match="exists already"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "back", target)


def test_a_classifier_becomes_a_task_model(tmp_path):
    config = CONFIG | {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "no", "1": "yes", "2": "so"},
    }
    write_hf(tmp_path / "theirs", random_tensors(hf_shapes(labels=3)), config)
    encoder = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "run")
    assert encoder.labels == ("no", "yes", "so")
    content = json.loads((tmp_path / "run" / "model.json").read_text())
    assert (content["task"], content["labels"]) == ({"kind": "classification", "inputs": "text"}, ["no", "yes", "so"])
    assert read_tensors(tmp_path / "run").shape("heads/classifier/kernel") == (6, 3)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
    back = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (back["architectures"], back["id2label"]) == (config["architectures"], config["id2label"])
    wrong = write_hf(
        tmp_path / "wrong", random_tensors(hf_shapes(labels=3)), config | {"id2label": {"0": "a", "1": "b"}}
    )
    with pytest.raises(kb.InputError, match="the classifier has 3 outputs, and id2label names 2"):
        kb.import_checkpoint(wrong)


def test_regression(tmp_path):
    config = CONFIG | {
        "architectures": ["BertForSequenceClassification"],
        "problem_type": "regression",
        "id2label": {"0": "x"},
    }
    encoder = kb.import_checkpoint(
        write_hf(tmp_path / "a", random_tensors(hf_shapes(labels=1)), config), out=tmp_path / "run"
    )
    assert (encoder.labels, dict(encoder.task)) == (None, {"kind": "regression", "inputs": "text"})
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
    assert kb.import_checkpoint(tmp_path / "back").task == encoder.task


def test_missing_extra_and_misshaped_are_all_listed(tmp_path):
    tensors = random_tensors(hf_shapes())
    del tensors["bert.encoder.layer.1.output.dense.bias"], tensors["cls.predictions.bias"]
    tensors["bert.encoder.layer.2.output.dense.bias"] = np.zeros(6, np.float32)
    tensors["qa_other.weight"] = np.zeros((2, 6), np.float32)
    tensors["bert.embeddings.word_embeddings.weight"] = np.zeros((16, 6), np.float32)
    write_hf(tmp_path / "theirs", tensors)
    message = (
        f"{tmp_path / 'theirs'} does not fit the model. "
        "2 missing: bert.encoder.layer.1.output.dense.bias [6], cls.predictions.bias [13]; "
        "2 extra: bert.encoder.layer.2.output.dense.bias [6], qa_other.weight [2, 6]; "
        "1 misshaped: bert.embeddings.word_embeddings.weight received [16, 6] expected [13, 6]. "
        "A tensor that has no place here is dropped by ignore=[PATTERN] (--ignore PATTERN)."
    )
    with pytest.raises(kb.InputError, match=f"^{re.escape(message)}$"):
        kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    table = str(kb.import_checkpoint(tmp_path / "theirs", dry_run=True))
    assert "missing: cls.predictions.bias [13]" in table
    assert table.endswith("2 missing, 2 extra, 1 misshaped")


def test_no_tensor_of_any_kind_may_be_missing(tmp_path):
    """Every single tensor, one by one: none is silently left at its random start."""
    shapes = hf_shapes()
    folder = write_hf(tmp_path, random_tensors(shapes))
    dry = kb.import_checkpoint(folder, dry_run=True)
    assert dry.fits
    assert {pair.theirs for pair in dry.pairs} == set(shapes)
    for name in shapes:
        write_hf(folder, random_tensors({other: shape for other, shape in shapes.items() if other != name}))
        coverage = kb.import_checkpoint(folder, dry_run=True)
        assert [line.split()[0] for line in coverage.missing] == [name]


def test_an_ignored_head_is_left_out(tmp_path):
    encoder = kb.import_checkpoint(write_hf(tmp_path, random_tensors(hf_shapes())), ignore=["cls.*"])
    assert encoder.heads == {}
    assert encoder.spec.pooler


def test_pooler_only_missing_where_the_class_has_none(tmp_path):
    tensors = {
        name: value
        for name, value in random_tensors(hf_shapes()).items()
        if "pooler" not in name and "seq_" not in name
    }
    encoder = kb.import_checkpoint(
        write_hf(tmp_path / "a", tensors, CONFIG | {"architectures": ["BertForMaskedLM"]}), out=tmp_path / "run"
    )
    assert not encoder.spec.pooler
    kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
    assert not kb.import_checkpoint(tmp_path / "back").spec.pooler
    with pytest.raises(
        kb.InputError, match=r"2 missing: bert.pooler.dense.weight \[6, 6\], bert.pooler.dense.bias \[6\]\.$"
    ):
        kb.import_checkpoint(write_hf(tmp_path / "b", tensors), ignore=["cls.seq_relationship.*"])
    half = tensors | {"bert.pooler.dense.bias": np.zeros(6, np.float32)}
    with pytest.raises(kb.InputError, match=r"1 missing: bert.pooler.dense.weight"):
        kb.import_checkpoint(write_hf(tmp_path / "c", half, CONFIG | {"architectures": ["BertForMaskedLM"]}))
    bare = {name: value for name, value in tensors.items() if not name.startswith("cls.")}
    config = CONFIG | {"architectures": ["BertModel"], "add_pooling_layer": False}
    kb.import_checkpoint(write_hf(tmp_path / "d", bare, config), out=tmp_path / "bare")
    kb.export_checkpoint(tmp_path / "bare", tmp_path / "bare_back")
    assert not kb.import_checkpoint(tmp_path / "bare_back").spec.pooler


def test_tied_copies_must_be_equal(tmp_path):
    tensors = random_tensors(hf_shapes())
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    tensors["bert.embeddings.position_ids"] = np.arange(10, dtype=np.float32)[None]
    kb.import_checkpoint(write_hf(tmp_path, tensors))
    tensors["cls.predictions.decoder.weight"][3, 2] += 1
    with pytest.raises(kb.InputError, match=r"cls.predictions.decoder.weight in .* differs from bert.embeddings.word"):
        kb.import_checkpoint(write_hf(tmp_path, tensors))


def test_older_names_and_a_bare_encoder(tmp_path):
    bare = {name: shape for name, shape in hf_shapes().items() if not name.startswith("cls.")}
    tensors, config = random_tensors(bare), CONFIG | {"architectures": ["BertModel"]}
    older = {
        name.removeprefix("bert.").replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value
        for name, value in tensors.items()
    }
    same(
        values(kb.import_checkpoint(write_hf(tmp_path / "a", tensors, config))),
        values(kb.import_checkpoint(write_hf(tmp_path / "b", older))),
    )


def test_a_head_that_the_configuration_declares_is_not_dropped_silently(tmp_path):
    """A file of BertForPreTraining without its heads: said, and imported where the user leaves them out."""
    tensors = random_tensors({name: shape for name, shape in hf_shapes().items() if not name.startswith("cls.")})
    folder = write_hf(tmp_path, tensors)
    with pytest.raises(kb.InputError, match=r"7 missing: cls.* A head that the file was saved without is left out by"):
        kb.import_checkpoint(folder)
    assert kb.import_checkpoint(folder, ignore=["cls.*"]).heads == {}


def test_values_that_are_not_finite(tmp_path):
    tensors = random_tensors(hf_shapes())
    tensors["bert.pooler.dense.bias"][0] = np.nan
    with pytest.raises(kb.InputError, match=r"bert.pooler.dense.bias holds values that are not finite"):
        kb.import_checkpoint(write_hf(tmp_path, tensors))


def test_configuration_absent_or_another_model(tmp_path):
    folder = write_hf(tmp_path, random_tensors(hf_shapes()), config=None)
    with pytest.raises(
        kb.InputError, match=r"no config.json or bert_config.json in .*: put it there, or name the size"
    ):
        kb.import_checkpoint(folder)
    with pytest.raises(kb.InputError, match="misshaped"):
        kb.import_checkpoint(folder, model="bert/tiny", dry_run=False)
    write_hf(tmp_path, {}, CONFIG)
    with pytest.raises(
        kb.InputError, match=r"is not bert/tiny: hidden 6 instead of 128, attention.heads 3 instead of 2, "
    ):
        kb.import_checkpoint(folder, model="bert/tiny")
    write_hf(tmp_path, {}, CONFIG | {"model_type": "birt"})
    with pytest.raises(kb.InputError, match=r"no model family 'birt'. Nearest: 'bert'"):
        kb.import_checkpoint(folder)


def test_vocabulary(tmp_path):
    tensors = random_tensors(hf_shapes())
    assert kb.import_checkpoint(write_hf(tmp_path / "none", tensors, vocabulary=None)).tokenizer is None
    vocabulary = tmp_path / "none" / "pieces.txt"
    vocabulary.write_text("\n".join(VOCABULARY))
    assert list(kb.import_checkpoint(tmp_path / "none", tokenizer=vocabulary).tokenizer.vocabulary) == VOCABULARY
    with pytest.raises(kb.InputError, match="has 14 pieces, the checkpoint only 13: they do not belong together"):
        kb.import_checkpoint(write_hf(tmp_path / "many", tensors, vocabulary=[*VOCABULARY, "i"]))


def test_the_tf1_fixture(tmp_path):
    """keras-bert's random checkpoint with optimizer slots, against a BERT in numpy."""
    import tensorflow as tf

    folder = shared("data/checkpoint_fixture")
    encoder = kb.import_checkpoint(folder, "tf1", out=tmp_path / "run")
    reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    weights = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if "adam" not in name}
    inputs = batch(15, length=16)
    hidden, pooled = reference.bert(
        {name: value for name, value in weights.items() if value.dtype == np.float32}, heads=4, **inputs
    )
    got, real = encoder(inputs), inputs["padding_mask"].astype(bool)
    for ours, theirs in zip(got["hidden"], hidden, strict=True):
        np.testing.assert_allclose(np.asarray(ours)[real], theirs[real], rtol=0, atol=1e-5)
    np.testing.assert_allclose(got["pooled"], pooled, rtol=0, atol=1e-5)
    nsp = encoder.heads["nsp"]
    np.testing.assert_array_equal(nsp["kernel"], weights["cls/seq_relationship/output_weights"].T)
    assert encoder.tokenizer.encode("All work and no play") == [5, 6, 7, 8, 9]
    coverage = kb.import_checkpoint(folder, "tf1", dry_run=True)
    assert (len(coverage.pairs), len(coverage.ignored)) == (46, 93)
    same(
        values(encoder),
        {name: read_tensors(tmp_path / "run").read(name) for name in read_tensors(tmp_path / "run").names()},
    )


def opened(config):
    return Opened(Path(), Path(), None, config)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, None),
        ({}, None),
        ({"model_type": "bert"}, None),  # a family's own name, which the import looks up itself
        ({"model_type": "camembert"}, "roberta"),
        ({"model_type": "birt"}, None),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, None),
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, "t5-encoder"),
        ({"model_type": "t5", "architectures": []}, None),
        ({"model_type": "t5", "architectures": "T5EncoderModel"}, None),
        ({"architectures": ["BertModel"]}, None),
    ],
)
def test_the_family_that_a_configuration_names(config, expected):
    assert registry.FORMATS["hf"].family_of(opened(config)) == expected


def test_what_a_folder_of_theirs_holds(tmp_path):
    form = registry.FORMATS["hf"]
    assert not form.looks_like(tmp_path)
    (tmp_path / "config.json").touch()
    assert not form.looks_like(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    assert form.looks_like(tmp_path)
    (tmp_path / "config.json").unlink()
    assert not form.looks_like(tmp_path)
    assert form.looks_like(Path("google-bert/bert-base-uncased"))
    assert not form.looks_like(tmp_path / "a" / "b" / "c")


def test_a_revision_is_of_a_name(tmp_path, monkeypatch):
    form = registry.FORMATS["hf"]
    assert form.fetched(tmp_path, ImportOptions()) == (tmp_path, None)
    with pytest.raises(kb.InputError, match="revision 'main' is of a name on the hub, and .* is none: leave it out"):
        form.fetched(tmp_path, ImportOptions(revision="main"))
    monkeypatch.setattr("kerasbert.checkpoints.hub.fetch", lambda name, revision: (tmp_path, f"{revision} of {name}"))
    place, origin = form.fetched(Path("who/what"), ImportOptions(revision="v1"))
    assert (place, origin) == (tmp_path, {"hub": "who/what", "revision": "v1 of who/what"})


def test_unknown_source(tmp_path):
    with pytest.raises(kb.InputError, match=r"no checkpoint format 'tf2'. Nearest: 'tf1'"):
        kb.import_checkpoint(tmp_path, "tf2")


def test_unknown_target(tmp_path):
    kb.import_checkpoint(write_hf(tmp_path / "a", random_tensors(hf_shapes())), out=tmp_path / "run")
    with pytest.raises(kb.InputError, match=r"no checkpoint format 'tf'. Nearest: "):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "b", "tf")
    with pytest.raises(kb.InputError, match="is no model directory"):
        kb.export_checkpoint(tmp_path, tmp_path / "b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": [["x"]]}, "extra"),
        ({"problem_type": ["x"]}, r"problem_type is \['x'\], expected one of regression, single_label_classification"),
        ({"id2label": {"a": 1}}, "id2label must map numbers to names"),
        ({"model_type": ["x"]}, "no model family"),
        ({"num_hidden_layers": 10**30}, "holds 41 tensors, too few for the 1000000000000000000000000000000 layers"),
        (
            {"vocab_size": 10**9},
            r"misshaped: bert.embeddings.word_embeddings.weight received \[13, 6\] expected \[1000000000, 6\]",
        ),
    ],
)
def test_a_strange_configuration_is_refused_before_anything_is_allocated(tmp_path, changes, message):
    config = CONFIG | {"architectures": ["BertForSequenceClassification"]} | changes
    write_hf(tmp_path, random_tensors(hf_shapes(labels=2)), config)
    with pytest.raises(kb.InputError, match=message):
        kb.import_checkpoint(tmp_path)


def test_a_disk_that_fills_up_leaves_nothing(tmp_path, monkeypatch):
    import tensorflow as tf

    def full(**arguments):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    kb.import_checkpoint(write_hf(tmp_path / "a", random_tensors(hf_shapes())), out=tmp_path / "run")
    monkeypatch.setattr(tf.raw_ops, "SaveV2", full)
    with pytest.raises(kb.InputError, match="cannot write the TensorFlow checkpoint: No space left on device"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "out", "tf1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "run"]
