"""Averaged word vectors: the mean by hand, a model from a file of vectors, the journey to a small .tflite."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.vectors import WordVectors, write_vectors
from kerasbert.cli import main
from kerasbert.layers.naming import names
from kerasbert.tasks import predict
from kerasbert.training.flops import family_flops
from tests import tiny

WORDS = "the cat dog sees runs happy sad film good bad very old new house river stone".split()
TABLE = np.arange(len(WORDS) * 3, dtype=np.float32).reshape(-1, 3)


@pytest.fixture
def vectors(tmp_path):
    write_vectors(WordVectors(WORDS, TABLE), tmp_path / "words.vec", "vec")
    return tmp_path / "words.vec"


def test_a_model_begins_with_the_vectors_of_a_file(vectors, capsys):
    model = kb.load(vectors)
    assert "16 word vectors, read as average/base with 21 rows of 3" in capsys.readouterr().err
    assert {name: tuple(weight.shape) for name, weight in names(model).items()} == {"embeddings/table": (21, 3)}
    assert model.tokenizer.tokenize("The good unseen cat").pieces == ["the", "good", "[UNK]", "cat"]
    # [CLS], [UNK] and [SEP] have rows of zeros: the mean of five tokens
    expected = (TABLE[WORDS.index("good")] + TABLE[WORDS.index("cat")]) / 5
    np.testing.assert_allclose(kb.encode(model, ["good unseen cat"], pooling="mean")[0], expected, rtol=1e-6)
    assert predict.positions(model) is None
    assert family_flops(registry.family("average"), model.spec, 10, 1, 0) == 3 * 10 * 3


def test_regex_vectors_bring_mediapipes_tokenizer_and_capitals(tmp_path):
    words = [*WORDS, "café", "don't"]
    table = np.arange(len(words) * 2, dtype=np.float32).reshape(-1, 2)
    write_vectors(WordVectors(words, table), tmp_path / "vectors.vec", "vec")
    about = {"file": "vectors.vec", "settings": {"words": "regex", "lowercase": True}}
    (tmp_path / "vectors.json").write_text(json.dumps(about))
    model = kb.load(tmp_path)
    assert model.tokenizer.kind == "regex"
    assert model.tokenizer.vocabulary[:4] == ("<PAD>", "<START>", "<UNKNOWN>", "the")
    rows = names(model)["embeddings/table"].value.numpy()
    for text in ("don't", "Don't", "DON'T"):
        np.testing.assert_array_equal(rows[model.tokenizer.encode(text)], table[-1:])
    assert not any("é" in word for word in model.tokenizer.vocabulary)  # which no text gives
    assert model.tokenizer.encode("dOn'T") == [model.tokenizer.unk_id]


def test_finetuned_from_vectors_on_the_command_line(tmp_path, capsys):
    vectors, table = tmp_path / "words.txt.gz", np.random.default_rng(0).normal(size=(len(WORDS), 16))
    write_vectors(WordVectors(WORDS, table.astype(np.float32)), vectors, "glove")
    data, out = tiny.labelled(tmp_path / "data.tsv", 120), tmp_path / "run"
    command = ["finetune", vectors, "--task", "classification", "--data", data, "--out", out]
    settings = ["--epochs", 2, "--batch", 20, "--learning-rate", 0.1, "--length", 16]
    assert main([*map(str, command), *map(str, settings)]) == 0
    found = kb.evaluate(out, data)
    assert found["metrics"]["accuracy"] > 0.9
    assert [answer.label for answer in kb.predict(out, ["the good cat", "a sad dog"])] == ["pos", "neg"]
    capsys.readouterr()
    (tmp_path / "ragged.vec").write_text("2 2\nsea 1 2\nland 1\n")
    assert main(["finetune", str(tmp_path / "ragged.vec"), "--task", "glue/sst2", "--data", "x", "--out", "y"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("error: ")


@pytest.mark.slow
def test_regex_model_is_served_and_runs_on_the_phone(tmp_path):
    import tensorflow as tf

    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load

    write_vectors(WordVectors(WORDS, TABLE / 50), tmp_path / "vectors.vec", "vec")
    about = {"file": "vectors.vec", "settings": {"words": "regex", "lowercase": True}}
    (tmp_path / "vectors.json").write_text(json.dumps(about))
    data = tiny.labelled(tmp_path / "data.tsv", 120)
    settings = {"epochs": 2, "batch": 20, "learning_rate": 0.1, "length": 16, "quiet": True}
    kb.finetune(tmp_path, "classification", data, out=tmp_path / "run", **settings)
    texts = ["the good cat", "A SAD dog", "terriblé film, don't", "", "Happy"]
    expected = kb.predict(tmp_path / "run", texts)
    kb.export(tmp_path / "run", tmp_path / "serving")
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    scores = [list(answer.scores.values()) for answer in expected]
    np.testing.assert_allclose(served(text=tf.constant(texts))["probabilities"].numpy(), scores, atol=1e-5)
    compress(tmp_path / "run", out=tmp_path / "a.tflite", texts=texts, min_agreement=0.9)
    assert [answer.label for answer in load(tmp_path / "a.tflite")(texts)] == [answer.label for answer in expected]
