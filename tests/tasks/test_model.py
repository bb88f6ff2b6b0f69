"""What a head reads of the layers: by hand, for one token and for all, from the command to the files."""

import json

import numpy as np
import pytest
from keras import ops

import kerasbert as kb
from kerasbert import cli
from kerasbert.checkpoints import read_tensors
from kerasbert.errors import InputError
from kerasbert.family import LAYERS
from kerasbert.layers.mix import ScalarMix, joined
from kerasbert.layers.naming import names
from kerasbert.mobile import prune
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskModel
from kerasbert.testing.battery import eagerly
from tests import tiny

LABELS = {"0": "neg", "1": "pos"}
QUICK = {"batch": 20, "learning_rate": 1e-2, "length": 8}


def test_a_mix_by_hand():
    mix = ScalarMix(3)
    mix.build()
    assert [tuple(weight.shape) for weight in mix.weights] == [(3,), (1,)]
    mix.scalars.assign(np.log([1.0, 2.0, 5.0]))  # shares 1/8, 2/8, 5/8
    mix.gamma.assign([2.0])
    vectors = [ops.convert_to_tensor([[x, 0.0]]) for x in (8.0, 4.0, 16.0)]
    np.testing.assert_allclose(mix(vectors), [[2 * (1 + 1 + 10), 0.0]], rtol=1e-6)
    assert mix.told() == {"gamma": 2.0, "shares": pytest.approx([0.125, 0.25, 0.625])}
    four = [ops.convert_to_tensor([[x, 1.0]]) for x in (1.0, 2.0, 3.0, 4.0)]
    np.testing.assert_array_equal(joined(four, "sum4"), [[10.0, 4.0]])
    np.testing.assert_array_equal(joined(four, "concat4"), [[1.0, 1.0, 2.0, 1.0, 3.0, 1.0, 4.0, 1.0]])


@pytest.fixture(scope="module")
def deep():
    changes = tiny.SPEC | {"blocks.layers": 5, "embeddings.vocabulary": tiny.tokenizer().size, "dropout": 0.0}
    encoder = kb.build("bert/tiny", **changes)
    generator = np.random.default_rng(0)
    for weight in encoder.weights:
        if weight.path.endswith(("kernel", "table")):
            weight.assign(generator.normal(0, 0.3, weight.shape))
    encoder.tokenizer = tiny.tokenizer()
    return encoder


@pytest.mark.parametrize("layers", LAYERS)
def test_a_head_reads_the_layers_of_its_tokens(deep, layers):
    generator = np.random.default_rng(1)
    inputs = {"token_ids": generator.integers(5, 20, (2, 6)).astype("int32")}
    inputs["padding_mask"] = np.array([[1] * 6, [1] * 4 + [0] * 2], "int32")
    hidden = [np.asarray(each) for each in deep(inputs)["hidden"]]
    last4, pooled = hidden[-4:], np.asarray(deep(inputs)["pooled"])
    expected = {
        "last": hidden[-1],
        "embeddings": hidden[0],
        "sum4": sum(last4),
        "concat4": np.concatenate(last4, -1),
        "mix": sum(hidden) / 6,
    }[layers]
    for kind in ("tags", "classification"):
        model = TaskModel(deep, Task(kind, kind=kind, labels=LABELS, layers=layers))
        model.build()
        head = model.heads["classifier"]
        head.kernel.assign(generator.normal(size=head.kernel.shape))
        read = expected if kind == "tags" else pooled if layers == "last" else expected[:, 0]
        wanted = read @ np.asarray(head.kernel) + np.asarray(head.bias)
        np.testing.assert_allclose(model(inputs)["logits"], wanted, atol=1e-4)
        # the last layer for one token or for all: the same
        np.testing.assert_allclose(model(inputs, queries=None)["logits"], wanted, atol=1e-4)
        assert ("heads/mix/scalars" in names(model)) == (layers == "mix")


def test_layers_that_a_model_has_not_are_refused(deep, pretrained, tmp_path):
    shallow = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": 100})
    with pytest.raises(InputError, match="layers 'sum4' needs 4 layers, the model has 1: take 'mix' or 'last'"):
        TaskModel(shallow, Task("t", labels=LABELS, layers="sum4"))
    with pytest.raises(
        InputError, match="layers 'mix' needs a head of labels or numbers, a vector has none: take 'last'"
    ):
        TaskModel(shallow, Task("t", kind="vector", layers="mix"))
    with pytest.raises(
        InputError, match="layers must be one of last, embeddings, sum4, concat4, mix. Received: 'lasst'"
    ):
        kb.finetune(pretrained, "classification", "no", out=tmp_path / "run", layers="lasst")
    assert "layers" not in Task("t").to_json()
    assert Task.from_json(Task("t", layers="mix").to_json()).layers == "mix"


@pytest.mark.slow
def test_a_mix_is_learnt_told_kept_and_read_again(deep, tmp_path, capsys):
    path, run = tiny.labelled(tmp_path / "my.tsv", 60), tmp_path / "run"
    settings = {"layers": "mix", "freeze": ["encoder", "pooler"], **QUICK}
    with eagerly():
        model = kb.finetune(deep, "classification", path, out=run, epochs=2, **settings)
    said = capsys.readouterr().err
    assert f"trained: {16 * 2 + 2 + 7} of " in said
    told = json.loads((run / "dev.json").read_text())["layers"]
    assert len(told["shares"]) == 6
    assert sum(told["shares"]) == pytest.approx(1)
    assert max(told["shares"]) > 1.02 * min(told["shares"])
    assert told == model.heads["mix"].told()
    assert f"dev, best weights: Layers, times {told['gamma']:.3f}\n" in said
    assert f"\nembeddings  {told['shares'][0]:.4f}  #" in said
    assert json.loads((run / "model.json").read_text())["task"]["layers"] == "mix"
    with eagerly():
        assert kb.evaluate(run, path)["layers"] == told
        cli.main(["evaluate", str(run), "--data", str(path)])
    assert f"\nembeddings  {told['shares'][0]:.4f}  #" in capsys.readouterr().out
    with pytest.raises(InputError, match="their classes read the last layer, the head of .* reads layers 'mix'"):
        kb.export_checkpoint(run, tmp_path / "hf")
    with pytest.raises(InputError, match="task.layers is 'mix' there, 'sum4' asked for"):
        kb.finetune(deep, "classification", path, out=run, epochs=2, **settings | {"layers": "sum4"})
    kept = {"keep_head": True, "steps": 1, "out": tmp_path / "kept", **QUICK}
    with pytest.raises(InputError, match="the head of .* reads layers 'mix', received 'embeddings': leave layers out"):
        kb.finetune(run, "classification", path, layers="embeddings", **kept)
    with eagerly():
        assert kb.finetune(run, "classification", path, **kept).task.layers == "mix"
    prune.layers(run, out=tmp_path / "pruned", keep=[0, 4])
    scalars = [read_tensors(each).read("heads/mix/scalars") for each in (run, tmp_path / "pruned")]
    np.testing.assert_array_equal(scalars[1], scalars[0][[0, 1, 5]])
    assert kb.predict(tmp_path / "pruned", ["the good cat"])[0].label in ("neg", "pos")


@pytest.mark.slow
def test_on_the_phone_the_head_reads_the_same_layers(deep, tmp_path):
    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load

    model = TaskModel(deep, Task("t", labels=LABELS, layers="mix"))
    model.build()
    generator = np.random.default_rng(3)
    for head in model.heads.values():
        for weight in head.weights:
            weight.assign(generator.normal(size=weight.shape))
    kb.save(model, tmp_path / "run")
    texts = ["the happy cat", "a bad film sees the dog", "river"]
    with eagerly():
        expected = [answer.scores["pos"] for answer in kb.predict(tmp_path / "run", texts)]
    assert max(expected) - min(expected) > 0.01
    compress(tmp_path / "run", "float32", tmp_path / "x.tflite", lengths=[16], texts=texts)
    phone = load(tmp_path / "x.tflite")
    assert [answer.scores["pos"] for answer in phone(texts)] == pytest.approx(expected, abs=1e-4)
