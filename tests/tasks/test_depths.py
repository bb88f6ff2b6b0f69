"""Vectors of several layers (2D Matryoshka): what a layer below the last one learns is what a model that is cut there gives."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.layers.readout import readout
from kerasbert.mobile import prune
from kerasbert.mobile.prune.slices import Cut
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import find_task
from kerasbert.testing.battery import Subject, eagerly
from tests import tiny
from tests.support import forked, often
from tests.training import whole_worker
from tests.training.test_whole_batch import same

DRAW = np.random.default_rng(0)
SPEC = tiny.SPEC | {"blocks.layers": 3, "embeddings.vocabulary": tiny.tokenizer().size}


DEFAULT = ["bert", "gpt2", "modernbert"]  # norms behind and before; a first layer of its own
OTHERS = [name for name, family in registry.families().items() if family.has_blocks and name not in DEFAULT]


@pytest.mark.parametrize("name", [*DEFAULT, *often(OTHERS, "albert", "deberta-v2", "bigbird")])
def test_a_layer_below_is_what_a_model_cut_there_gives(name, tmp_path):
    subject = Subject(name, tmp_path, **{"blocks.layers": 3})
    encoder, inputs = subject.encoder(), subject.inputs()
    whole = {key: weight.numpy() for key, weight in names(encoder).items()}
    outputs = encoder(inputs)
    for layer in (1, 2, 3):
        cut = Cut(encoder.spec, whole).with_layers(range(layer))
        other = subject.family.encoder(cut.spec)
        other.build()
        for key, weight in names(other).items():
            weight.assign(cut.tensors[key])
        expected, received = (np.asarray(x) for x in (other(inputs)["sequence"], encoder.at_layer(outputs, layer)))
        np.testing.assert_allclose(received, expected, atol=1e-5)


@pytest.mark.parametrize("loss", ["ranking", pytest.param("cosine", marks=pytest.mark.slow)])
def test_micro_batches_give_the_gradients_of_the_whole_batch(loss):
    settings = {"loss": loss, "options": {"depths": [1], "dims": [16, 8]}, "layers": 2, "steps": 1}
    with eagerly():
        same(*(whole_worker.run(settings | {"accumulate": n}) for n in (1, 4)))


@pytest.mark.slow
def test_two_replicas_give_the_gradients_of_one(tmp_path):
    settings = {"loss": "ranking", "options": {"depths": [1]}, "layers": 2, "steps": 2}
    with eagerly():
        one = whole_worker.run(settings)
    forked("-m", "tests.training.whole_worker", tmp_path / "two.npz", json.dumps(settings | {"strategy": "cpu:2"}))
    same(one, dict(np.load(tmp_path / "two.npz")))


@pytest.mark.slow
def test_a_run_is_pruned_to_a_layer_that_learnt(tmp_path):
    """finetune --depths -> kerasbert-mobile prune --layers: the vectors of two layers of three."""
    encoder = kb.build("bert/tiny", **SPEC)
    encoder.tokenizer = tiny.tokenizer()
    rows = [(text, " ".join(sorted(text.split()))) for text in tiny.sentences(96, 0)]
    settings = {"batch": 32, "epochs": 3, "length": 16, "quiet": True, "learning_rate": 2e-3, "depths": [2]}
    data = {"train": rows[:64], "dev": rows[64:]}
    model = kb.finetune(encoder, "pairs", data, out=tmp_path / "run", **settings)
    assert model.task.options["depths"] == [2]
    prune.layers(tmp_path / "run", out=tmp_path / "cut", keep=[0, 1])
    recall = {name: kb.evaluate(tmp_path / name, rows[64:])["metrics"]["recall"] for name in ("run", "cut")}
    assert min(recall.values()) > 0.5  # of 32 positives
    texts = [text for text, _ in rows[64:]]
    inputs = encode_texts(model.tokenizer, texts, 16).arrays(range(32), 16)
    below = model.encoder.at_layer(model.encoder(inputs), 2)
    expected = np.asarray(readout(below, inputs["padding_mask"], "mean"))
    np.testing.assert_allclose(kb.encode(tmp_path / "cut", texts, length=16), expected, atol=1e-5)


def test_what_has_no_such_layers_is_refused(tmp_path):
    encoder = kb.build("bert/tiny", **SPEC)
    for depths, message in (
        ([3], "depths are 3, expected layers below the last of 3"),
        ([0], "depths must be different"),
    ):
        with pytest.raises(InputError, match=message):
            find_task("sts").optioned({"depths": depths}).how.begun(None, encoder, None)
    task = find_task("sts").optioned({"depths": [1]})
    with pytest.raises(InputError, match="funnel has no blocks: its layers cannot be left out: leave --depths out"):
        task.how.begun(task, Subject("funnel", tmp_path).encoder(), None)
    assert task.how.begun(task, encoder, None) is encoder
    with pytest.raises(InputError, match="no option of a classification 'depths'"):
        find_task("classification").optioned({"depths": [1]})
