"""SavedModels: text in, answers out, in a process without kerasbert."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.export import saved_model
from tests import tiny
from tests.text import kinds

TEXTS = ["the happy cat", "", "a SAD dog, very bad", "Ünknown wörds 一二", "old " * 40]
READER = """
import json, sys
import tensorflow as tf, tensorflow_text
sys.modules["kerasbert"] = None  # importing it raises
model = tf.saved_model.load(sys.argv[1])
out = model.signatures["serving_default"](text=tf.constant(json.loads(sys.argv[2])))
print(json.dumps({k: v.numpy().astype(str).tolist() if v.dtype == tf.string else v.numpy().tolist() for k, v in out.items()}))
"""


@pytest.mark.slow
def test_text_in_answers_out_without_kerasbert(classifier, served, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", "-c", READER, str(served), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    answers = kb.predict(classifier, TEXTS)
    assert found["labels"] == [answer.label for answer in answers]
    assert found["label_ids"] == [list(a.scores).index(a.label) for a in answers]
    np.testing.assert_allclose(found["probabilities"], [list(a.scores.values()) for a in answers], atol=1e-5)


@pytest.mark.slow
def test_an_empty_batch_gives_empty_answers(served, pretrained, tmp_path):
    """It was "slice index 0 of dimension 1 out of bounds"."""
    import tensorflow as tf

    vectors = kb.export(pretrained, tmp_path / "vectors")
    for folder, shapes in ((served, {"probabilities": (0, 2), "labels": (0,)}), (vectors, {"vector": (0, 16)})):
        model = tf.saved_model.load(str(folder)).signatures["serving_default"]
        found = model(text=tf.constant([], tf.string))
        assert {name: found[name].shape for name in shapes} == shapes


@pytest.mark.slow
def test_one_text_has_a_graph_of_its_own_with_the_same_answers(served):
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    model = tf.saved_model.load(str(served)).signatures["serving_default"]
    together = model(text=tf.constant(TEXTS))["probabilities"].numpy()
    for text, expected in zip(TEXTS, together):
        alone = model(text=tf.constant([text]))["probabilities"].numpy()
        np.testing.assert_allclose(alone, [expected], atol=1e-6)
    assert np.abs(together - together[0]).max() > 1e-3
    file = saved_model_pb2.SavedModel.FromString((served / "saved_model.pb").read_bytes())
    networks = [
        function
        for function in file.meta_graphs[0].graph_def.library.function
        if any(node.op == "MatMul" for node in function.node_def)
    ]
    sizes = [sum(node.op in ("Pack", "ConcatV2") for node in function.node_def) for function in networks]
    one, several = sorted(sizes)  # of shapes that are worked out while it runs; every signature calls these two
    assert one <= 4 < several
    assert all(function.attr["_noinline"].b for function in networks)  # else every branch compiles them


def test_a_card_lies_beside_it_that_names_the_import(classifier, served):
    """Without tensorflow_text the loader's traceback has 45 lines."""
    text = (served / "MODEL_CARD.md").read_text()
    assert "import tensorflow_text" in text
    assert "`probabilities` [B, L] float32" in text
    assert "Labels: neg, pos." in text
    assert (
        '`{"signature_name": "classify", "examples": [{"text": "a gripping film"}]}` to .../v1/models/NAME:classify'
        in text
    )
    assert "The signature `tokenize` takes `text` [B] string" in text
    assert str(served) not in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_functional_model_around_an_encoder_is_exported(pretrained, tmp_path):
    """It was AttributeError: 'Functional' object has no attribute 'tokenizer'."""
    import keras
    import tensorflow as tf

    encoder = kb.load(pretrained)
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")}
    scores = keras.layers.Dense(2, name="scores")(encoder(inputs)["sequence"][:, 0])
    model = keras.Model(inputs, {"scores": scores})
    kb.export(model, tmp_path / "own", length=16)
    found = tf.saved_model.load(str(tmp_path / "own")).signatures["serving_default"](text=tf.constant(TEXTS))
    given = encoder.tokenizer(TEXTS, length=16)
    expected = model({name: given[name] for name in inputs})["scores"]
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
    assert "returns `scores`" in (tmp_path / "own/MODEL_CARD.md").read_text()
    with pytest.raises(InputError, match="Sequential cannot be exported: expected a kerasbert model, or a functional"):
        kb.export(keras.Sequential([keras.layers.Dense(1)]), tmp_path / "x")


def test_the_ids_signature(classifier, served):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    signature = tf.saved_model.load(str(served)).signatures["ids"]
    model = kb.load(classifier)
    ids, segments = model.tokenizer.pack(TEXTS[0])
    arrays = {"token_ids": [ids], "lengths": [len(ids)], "segment_ids": [segments]}
    found = signature(**{name: tf.constant(value) for name, value in arrays.items()})
    expected = list(kb.predict(model, TEXTS[:1])[0].scores.values())
    np.testing.assert_allclose(found["probabilities"].numpy()[0], expected, atol=1e-5)


@pytest.mark.slow
def test_an_encoder_gives_vectors(pretrained, tmp_path):
    import tensorflow as tf

    kb.export(pretrained, tmp_path / "1")
    served = tf.saved_model.load(str(tmp_path / "1"))
    found = served.signatures["serving_default"](text=tf.constant(TEXTS))["vector"]
    np.testing.assert_allclose(found, kb.encode(pretrained, TEXTS), atol=1e-5)


@pytest.mark.slow
def test_pairs_have_two_inputs(pretrained, tmp_path):
    import tensorflow as tf

    lines = [f"{a}\t{b}\t{i % 2}" for i, (a, b) in enumerate(zip(tiny.sentences(40, 1), tiny.sentences(40, 2)))]
    (tmp_path / "train.tsv").write_text("\n".join(["a\tb\tlabel", *lines]) + "\n")
    columns = {"text_column": "a", "text_b_column": "b"}
    model = kb.finetune(
        pretrained,
        "classification",
        tmp_path / "train.tsv",
        out=tmp_path / "run",
        steps=1,
        batch=4,
        quiet=True,
        **columns,
    )
    kb.export(tmp_path / "run", tmp_path / "1")
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = signature(text_a=tf.constant(["the cat"]), text_b=tf.constant(["a dog sees"]))
    expected = list(kb.predict(model, [("the cat", "a dog sees")])[0].scores.values())
    np.testing.assert_allclose(found["probabilities"].numpy()[0], expected, atol=1e-5)


@pytest.mark.slow
def test_a_taken_place_is_refused_and_a_wrong_file_is_not_left(classifier, served, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="exists already. Choose another place or pass --overwrite"):
        kb.export(classifier, served)
    shutil.copytree(served, tmp_path / "again")
    kb.export(classifier, tmp_path / "again", overwrite=True)  # with its empty folder of assets
    shutil.rmtree(tmp_path / "again")
    monkeypatch.setattr(saved_model, "TOLERANCE", -1.0)
    with pytest.raises(InputError, match="the SavedModel answers differently from the model"):
        kb.export(classifier, tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_kind_of_tokenizer(kind, tmp_path):
    """Text in, vectors out; and the tokenizer comes back from the model directory."""
    import tensorflow as tf

    tokenizer = {"bpe": kinds.small_bpe, "unigram": kinds.small_unigram}[kind]()
    encoder = kb.build("bert/tiny", **{"embeddings.vocabulary": tokenizer.size})
    encoder.tokenizer = tokenizer
    kb.export(encoder, tmp_path / "1")
    served = tf.saved_model.load(str(tmp_path / "1"))
    found = served.signatures["serving_default"](text=tf.constant(TEXTS))["vector"]
    np.testing.assert_allclose(found, kb.encode(encoder, TEXTS), atol=1e-5)
