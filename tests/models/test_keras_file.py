"""Encoders inside other people's Keras code: `.keras` files, ModelCheckpoint, clone_model, and back to a model directory."""

import json
import re
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.testing import battery
from tests import tiny as world
from tests.support import forgotten, python

# Keras' own: numpy 2 and a tensor's __array__; a model that uses no pooled output
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning"),
]
TEXTS = ["the happy cat", ("a sad dog", "runs")]


def encoder(name: str):
    """A tiny encoder of a family."""
    spec = registry.find(name)[1]
    made = built(registry.family(name.partition("/")[0]), spec.derive(battery.tiny(spec, 80)), name)
    made.tokenizer = world.tokenizer()
    return made


def classifier(inner) -> keras.Model:
    """A functional model that holds it."""
    names = "token_ids", "padding_mask", "segment_ids"
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    return keras.Model(inputs, keras.layers.Dense(3, name="top")(inner(inputs)["sequence"][:, 0]))


def same(one, other, inputs) -> None:
    """Equal outputs, and not by being the same object."""
    assert one is not other
    np.testing.assert_array_equal(one.predict(inputs, verbose=0), other.predict(inputs, verbose=0))


LATER = ("electra/small", "xlm/mlm-en-2048", "roberta/base", "mobilebert/base")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in LATER]


@pytest.mark.parametrize("name", ["albert/base", *SLOW])
def test_a_keras_file_holds_every_family(name, tmp_path):
    """It ended in NotImplementedError and a file of 0 bytes."""
    model = classifier(encoder(name))
    inputs = world.tokenizer()(TEXTS, length=12)
    same(model, kb_file(model, tmp_path), inputs)


def kb_file(model: keras.Model, folder: Path) -> keras.Model:
    """Saved and loaded again."""
    model.save(folder / "m.keras")
    return keras.saving.load_model(folder / "m.keras")


def test_a_plugins_encoder_goes_into_a_keras_file_too(tmp_path):
    """Its classes are registered as ours are."""
    with forgotten():
        registry.load_plugin(Path(__file__).parent / "plugin.py")
        model = classifier(encoder("rezero/base"))
        same(model, kb_file(model, tmp_path), world.tokenizer()(TEXTS, length=12))


@pytest.mark.slow
def test_a_checkpoint_callback_a_clone_and_a_fresh_process(tmp_path):
    """ModelCheckpoint died after the first epoch; `kb.load` reads the file in a fresh process."""
    model = classifier(encoder("bert/tiny"))
    inputs = world.tokenizer()(TEXTS, length=12)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    saver = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras")
    model.fit(inputs, np.array([0, 2]), verbose=0, callbacks=[saver])
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    same(model, copy, inputs)
    np.savez(tmp_path / "inputs.npz", **inputs)
    program = f"""
import json, numpy as np, kerasbert as kb
model = kb.load({str(tmp_path / "best.keras")!r})
print(json.dumps(model.predict(dict(np.load({str(tmp_path / "inputs.npz")!r})), verbose=0).tolist()))
"""
    found = json.loads(python("-c", program).stdout.splitlines()[-1])
    np.testing.assert_allclose(found, model.predict(inputs, verbose=0), atol=1e-6)


def test_a_tasks_model_goes_into_a_keras_file(classifier, tmp_path):
    """With its labels and its tokenizer."""
    model = kb.load(classifier)
    again = kb_file(model, tmp_path)
    assert again.body is again.encoder
    with zipfile.ZipFile(tmp_path / "m.keras") as file:  # where earlier versions wrote and look for the weights
        assert b"kerasbert>bert.Encoder" in file.read("config.json")
        assert {b"encoder", b"heads"} <= set(re.findall(rb"encoder|heads|body", file.read("model.weights.h5")))
        assert b"body" not in file.read("model.weights.h5")
    inputs = model.tokenizer(["the happy cat", "a sad dog"])
    np.testing.assert_array_equal(model(inputs)["logits"], again(inputs)["logits"])
    assert (again.labels, again.tokenizer.digest()) == (("neg", "pos"), model.tokenizer.digest())


def test_save_writes_what_load_reads(classifier, tmp_path):
    """An encoder trained in a loop of one's own, and a task's model, go back to a model directory."""
    model = kb.load(classifier)
    kb.save(model, tmp_path / "task")
    assert [answer.label for answer in kb.predict(tmp_path / "task", ["the happy cat", "a sad dog"])] == ["pos", "neg"]
    for name in ("roberta/base", "bert/tiny"):
        inner = encoder(name)
        inner.weights[0].assign_add(0.5 * np.ones(inner.weights[0].shape))
        kb.save(inner, tmp_path / "encoder", overwrite=True)
        again = kb.load(tmp_path / "encoder")
        inputs = again.tokenizer(TEXTS)
        np.testing.assert_array_equal(inner(inputs)["sequence"], again(inputs)["sequence"])
        assert json.loads((tmp_path / "encoder/model.json").read_text())["name"] == name


def test_save_refuses_what_it_cannot_write(tmp_path):
    """The encoder that a functional model holds is what a model directory is for."""
    inner = encoder("bert/tiny")
    with pytest.raises(InputError, match="save takes an encoder or a task's model, received Functional"):
        kb.save(classifier(inner), tmp_path / "x")
    inner.tokenizer = None
    with pytest.raises(InputError, match="the model has no tokenizer: give tokenizer="):
        kb.save(inner, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_gives_the_encoders_inputs():
    """By hand: specials, segments, padding, truncation."""
    tokenizer = world.tokenizer()
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    the, cat, dog = (tokenizer.vocabulary.index(word) for word in ("the", "cat", "dog"))
    found = tokenizer(["the cat", ("the cat", "dog")], length=7)
    assert found["token_ids"].tolist() == [[cls, the, cat, sep, pad, pad, pad], [cls, the, cat, sep, dog, sep, pad]]
    assert found["padding_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]
    assert found["segment_ids"].tolist() == [[0] * 7, [0, 0, 0, 0, 1, 1, 0]]
    assert {value.dtype.name for value in found.values()} == {"int32"}
    assert tokenizer(["the cat", "the"])["token_ids"].tolist() == [[cls, the, cat, sep], [cls, the, sep, pad]]
    assert tokenizer(["the cat dog"], length=4)["token_ids"].tolist() == [[cls, the, cat, sep]]
    assert tokenizer("the cat")["token_ids"].tolist() == [[cls, the, cat, sep]]
    with pytest.raises(InputError, match=r"text 1 is 3, expected a text or a pair"):
        tokenizer(["the", 3])


def test_a_vocabulary_and_records_from_python(tmp_path):
    """What `kerasbert vocab` and `kerasbert data` do."""
    corpus = world.corpus(tmp_path / "corpus.txt")
    learned = kb.train_tokenizer(corpus, size=80, out=tmp_path / "vocabulary")
    assert kb.load_tokenizer(tmp_path / "vocabulary").digest() == learned.digest()
    records = kb.write_records([corpus], learned, tmp_path / "records", length=24)
    assert records.examples
    with pytest.raises(InputError, match="exists already"):
        kb.train_tokenizer([corpus], out=tmp_path / "vocabulary")
