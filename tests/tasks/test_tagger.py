"""Bidirectional LSTMs between vectors and label scores: from features of a frozen encoder to the phone."""

import dataclasses
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import answers, registry
from kerasbert.checkpoints import read_tensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery, world
from tests.layers.test_bidirectional import both
from tests.tasks.test_crf import handed_on
from tests.tasks.test_tags import NAMES, agree_everywhere, columns, labelled, random_model, texts_of

NER = find_task("ner")


def test_it_reads_the_mix_of_the_layers(tmp_path):
    subject = battery.Subject("elmo", tmp_path)
    options = {"lstm": 3, "lstm_layers": 2, "crf": True, "legal": True}
    task = dataclasses.replace(labelled(NER, NAMES), layers="mix", options=options)
    model = TaskModel(subject.encoder(), task)
    model.build()
    generator = np.random.default_rng(0)
    for weight in model.heads["classifier"].weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    inputs = subject.inputs()
    scores = np.asarray(model(inputs)["logits"])
    read = sum(np.float64(each) for each in model.body(inputs)["hidden"]) / 3
    head = model.heads["classifier"]
    for row in range(3):
        x, mask = read[row], inputs["padding_mask"][row]
        for layer in head.recurrent:
            x = both(layer, x, mask)
        np.testing.assert_allclose(scores[row], x @ head.kernel.numpy() + head.bias.numpy(), atol=1e-5)
    found = [name for name in names(model) if name.startswith("heads/")]
    ways = [f"heads/classifier/lstm_{i}/{way}" for i in (0, 1) for way in ("forward", "backward")]
    lstms = {f"{way}/{part}" for way in ways for part in ("kernel", "recurrent_kernel", "bias")}
    assert {name for name in found if "lstm" in name} == lstms
    assert {"heads/classifier/kernel", "heads/crf/transitions", "heads/mix/scalars"} <= set(found)
    concatenated = TaskModel(
        kb.build("bert/tiny", **world.SPEC | {"blocks.layers": 4}),
        dataclasses.replace(labelled(NER, NAMES), layers="concat4", options={"lstm": 3}),
    )
    concatenated.build()
    assert concatenated.heads["classifier"].recurrent[0].ways[0].kernel.shape == (4 * world.SPEC["hidden"], 12)


@pytest.mark.parametrize("options", [{"lstm": -1}, {"lstm": 4, "lstm_layers": 0}])
def test_sizes_that_mean_nothing_are_refused(options):
    with pytest.raises(InputError, match=r"lstm is -?\d and lstm_layers \d, expected units of each direction"):
        random_model(**options)


def test_other_kinds_have_no_such_option():
    with pytest.raises(InputError, match="no option of a classification 'lstm'"):
        answers.find("classification").configured({"lstm": 4})


@pytest.mark.full
def test_a_frozen_encoder_is_read_and_stays(pretrained, tmp_path):
    columns(tmp_path / "train.conll", 80, 0), columns(tmp_path / "dev.conll", 20, 1)
    changes = {"task.lstm": 8, "task.crf": True}
    settings = {"epochs": 15, "batch": 20, "learning_rate": 3e-2, "length": 16, "quiet": True, "freeze": ["encoder"]}
    model = kb.finetune(pretrained, "ner", tmp_path, out=tmp_path / "run", changes=changes, layers="mix", **settings)
    assert kb.evaluate(model, tmp_path)["metrics"]["f1"] > 0.9
    before, after = read_tensors(pretrained), read_tensors(tmp_path / "run")
    for name in names(model.encoder):
        if not name.startswith("pooler/"):
            np.testing.assert_array_equal(after.read(name), before.read(name))
    task = json.loads((tmp_path / "run" / "model.json").read_text())["task"]
    assert task["options"] == {"lstm": 8, "crf": True, "scheme": "IOB2"}
    [answer] = kb.predict(tmp_path / "run", ["the cat sees a stone"])
    assert answer.labels == ("O", "B-N", "O", "O", "B-N")
    handed_on(tmp_path / "other.conll", 4, 0)
    kept = {"keep_head": True, "steps": 1, "length": 16, "quiet": True, "changes": {"task.lstm": 4}}
    with pytest.raises(InputError, match="heads/classifier"):
        kb.finetune(tmp_path / "run", "ner", tmp_path, out=tmp_path / "kept", **kept)


@pytest.mark.full
def test_python_the_server_and_the_phone_give_the_same(tmp_path):
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    model, out = random_model(lstm=6, crf=True, legal=True), tmp_path / "x.tflite"
    texts = [text for text in texts_of() if isinstance(text, str)]
    with pytest.raises(InputError, match="lengths is 'any' and the model has recurrent layers"):
        mobile.compress(model, "float32", out, lengths="any", texts=texts)
    assert mobile.compress(model, "float32", out, lengths=[16], texts=texts)["agreement"] == 1.0
    agree_everywhere(model, load(out, cache=False), tmp_path)


@pytest.mark.slow
def test_an_elmo_goes_to_the_phone_with_it(tmp_path):
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    subject = battery.Subject("elmo", tmp_path)
    options = {"lstm": 4, "crf": True}
    task = dataclasses.replace(labelled(NER, NAMES), layers="mix", options=options, length=16)
    model = TaskModel(subject.encoder(scale=1.0), task)
    model.build()
    assert registry.family_of(model.body).name == "elmo"
    texts = ["the happy cat", "a bad film sees the dog"]
    report = mobile.compress(model, "dynamic_int8", tmp_path / "x.tflite", lengths=[16], texts=texts, min_agreement=0.8)
    found = [label for each in load(tmp_path / "x.tflite", cache=False)(texts) for label in each.labels]
    expected = [label for each in kb.predict(model, texts) for label in each.labels]
    assert np.mean([one == two for one, two in zip(found, expected, strict=True)]) == report["agreement"]
