"""TagLM: its equations in float64, what stands where, a tagger over an ELMo's directory."""

import dataclasses

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert import spec as specs
from kerasbert.checkpoints import read_tensors, save_model
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from kerasbert.training.flops import family_flops
from tests.layers.test_bidirectional import both
from tests.tasks.test_tags import NAMES, columns, labelled


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("taglm")


def words(model, char_ids):
    """Of each word: the largest value of each filter over three characters, its bias, tanh; float64 [S, F]."""
    weights = {name: np.float64(weight) for name, weight in names(model.characters).items()}
    table = np.concatenate([np.zeros((1, weights["table"].shape[1])), weights["table"]])
    found = []
    for word in char_ids:
        x, values = table[word], []
        for size in model.characters.spans:
            kernel, bias = (weights[f"convolution_{size}/{part}"] for part in ("kernel", "bias"))
            places = [np.concatenate(x[at : at + size]) @ kernel for at in range(len(x) - size + 1)]
            values.append(np.tanh(np.max(places, axis=0) + bias))
        found.append(np.concatenate(values))
    return np.array(found)


@pytest.mark.parametrize("size", ["chunking", "ner"])
def test_it_is_the_equations_in_float64(size, folder):
    """Equations 1 to 5 and 8: x = [c; w]; h_1 = [forward; backward; h_LM]; h_2 of h_1."""
    family, base = registry.find(f"taglm/{size}")
    subject = battery.Subject("taglm", folder)
    spec = specs.derive(base, battery.tiny(base, subject.tokenizer.size) | {"embeddings.filters": (0, 0, 3)})
    model = family.encoder(spec)
    model.build()
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.normal(0, 0.4, weight.shape))
    inputs = subject.inputs()
    found, told = np.asarray(model(inputs)["sequence"]), np.float64(model.lm(inputs)["sequence"])
    for row in range(3):
        mask = inputs["padding_mask"][row]
        vectors = np.float64(model.table.table)[inputs["token_ids"][row]]
        x = np.concatenate([words(model, inputs["char_ids"][row]), vectors], axis=-1)
        h = np.concatenate([both(model.recurrent[0], x, mask), told[row]], axis=-1)
        np.testing.assert_allclose(found[row], both(model.recurrent[1], h, mask), atol=1e-5)


def test_weights_by_hand(folder):
    """Of the paper's sizes with an ELMo in the place of its language models."""
    family, spec = registry.find("taglm/chunking")
    lstm = 2 * (4 * 200 * (80 + 200 + 1)) + 2 * (4 * 200 * (400 + 1024 + 200 + 1))
    tagger = 261 * 30 + 3 * 30 * 30 + 30 + 793_471 * 50 + lstm
    assert models.parameters(family.encoder, spec) == tagger + 93_600_848
    family, spec = registry.find("taglm/ner")
    gru = sum(2 * (3 * 300 * (width + 300 + 1) + 300) for width in (130, 600 + 1024))
    tagger = 261 * 25 + 3 * 25 * 80 + 80 + 793_471 * 50 + gru
    assert models.parameters(family.encoder, spec) == tagger + 93_600_848
    assert family_flops(family, spec, 100, 1, 0) > family_flops(family, spec, 10, 1, 0) > 0
    found = {name.split("/")[0] for name in names(battery.Subject("taglm", folder).encoder())}
    assert found == {"characters", "embeddings", "lm", "block_0", "block_1"}


def test_a_token_is_seen_by_all_and_padding_by_none(folder):
    subject = battery.Subject("taglm", folder)
    model, inputs = subject.encoder(scale=0.5), subject.inputs(rows=1)
    plain = np.asarray(model(inputs)["sequence"])
    for name in ("token_ids", "char_ids"):
        other = dict(inputs, **{name: inputs[name].copy()})
        other[name][:, 4] = other[name][:, 4] - 1
        differs = np.abs(np.asarray(model(other)["sequence"]) - plain).max(-1) > 0
        assert differs.all(), name
    assert subject.family.readout == "mean"


@pytest.fixture(scope="module")
def elmo(folder):
    subject = battery.Subject("elmo", folder)
    save_model(folder / "elmo", encoder=subject.encoder(), name="elmo/small", tokenizer=subject.tokenizer)
    return folder / "elmo"


def test_a_model_is_made_of_an_elmo(elmo, tmp_path, capsys):
    assert main(["import", str(elmo), "--model", "taglm/ner", "--out", str(tmp_path / "made")]) == 0
    made, model = read_tensors(tmp_path / "made"), kb.load(tmp_path / "made")
    theirs = read_tensors(elmo)
    for name in theirs.names():
        np.testing.assert_array_equal(made.read(f"lm/{name}"), theirs.read(name))
    assert (model.spec.embeddings.vocabulary, model.spec.recurrence.cell) == (model.tokenizer.size, "gru")
    assert model.model_name == "taglm/ner"
    capsys.readouterr()
    assert main(["import", str(elmo), "--model", "bert/base", "--out", str(tmp_path / "no")]) == 2
    error = capsys.readouterr().err
    assert "holds a model of elmo, and one of bert is made of: no other family's" in error
    assert len(error.splitlines()) == 1
    assert main(["import", str(elmo), "--model", "taglm/ner", "--out", str(tmp_path / "dry"), "--dry-run"]) == 2
    assert "leave dry_run out (--dry-run)" in capsys.readouterr().err
    assert not (tmp_path / "dry").exists()
    with pytest.raises(InputError, match="the ELMo has no tokenizer"):
        registry.family("taglm").made_of["elmo"](registry.family("elmo").encoder(model.spec.lm), None)


@pytest.mark.full
def test_a_frozen_language_model_stays_and_the_rest_learns(elmo, tmp_path):
    columns(tmp_path / "train.conll", 80, 0), columns(tmp_path / "dev.conll", 20, 1)
    made = kb.import_checkpoint(elmo, model="taglm/chunking", out=tmp_path / "made")
    assert made.spec.hidden == 400
    settings = {"epochs": 6, "batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True, "freeze": ["^lm/"]}
    with battery.eagerly():
        model = kb.finetune(
            tmp_path / "made", "ner", tmp_path, out=tmp_path / "run", changes={"task.crf": True}, **settings
        )
        assert kb.evaluate(model, tmp_path)["metrics"]["f1"] > 0.9
    before, after = read_tensors(tmp_path / "made"), read_tensors(tmp_path / "run")
    for name in before.names():
        same = np.array_equal(after.read(name), before.read(name))
        assert same == name.startswith("lm/"), name


@pytest.mark.slow
def test_python_and_the_phone_give_the_same_tags(folder, tmp_path):
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    subject = battery.Subject("taglm", folder)
    task = dataclasses.replace(labelled(find_task("ner"), NAMES), options={"crf": True}, length=16)
    model = TaskModel(subject.encoder(scale=1.0), task)
    model.build()
    texts = ["the happy cat", "a bad film sees the dog"]
    report = mobile.compress(model, "float32", tmp_path / "x.tflite", lengths=[16], texts=texts)
    assert report["agreement"] == 1.0
    found = load(tmp_path / "x.tflite", cache=False)(texts)
    assert [each.labels for each in found] == [each.labels for each in kb.predict(model, texts)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 7}, "hidden must be even"),
        ({"recurrence.cell": "rnn"}, "recurrence.cell"),
        ({"recurrence.layers": 1}, "recurrence.layers must be 2 at least"),
        ({"embeddings.filters": (0, 0)}, "embeddings.filters must be numbers of filters, one at least"),
        ({"lm.hidden": 7}, "hidden must be even"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        specs.derive(registry.family("taglm").spec, changes).validate()
