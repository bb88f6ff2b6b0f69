"""A model that reads languages is fine-tuned, asked and served in one of them."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.data import write_records
from kerasbert.errors import InputError
from tests import tiny

TEXTS = ["the old dog sees", "a very good film", "stone"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Fine-tuned on French by the command line."""
    folder = tmp_path_factory.mktemp("xlm")
    files = {"en": [tiny.corpus(folder / "en.txt")], "fr": [tiny.corpus(folder / "fr.txt", seed=1)]}
    settings = {"length": 24, "packing": "doc", "language_ids": True}
    write_records(files, tiny.tokenizer(), folder / "records", **settings)
    changes = tiny.SPEC | {"embeddings.languages": 2}
    start = {"steps": 20, "batch": 8, "learning_rate": 1e-2, "changes": changes, "quiet": True}
    kb.pretrain("xlm/mlm-tlm-xnli15-1024", folder / "records", out=folder / "pretrained", **start)
    train = tiny.labelled(folder / "train.tsv", 200)
    arguments = ["finetune", folder / "pretrained", "--task", "classification", "--train", train, "--dev", train]
    arguments += ["--out", folder / "run", "--language", "fr", "--epochs", "2", "--learning-rate", "1e-2", "--quiet"]
    assert main(list(map(str, arguments))) == 0
    return folder / "run"


def scores(answers):
    return np.array([list(answer.scores.values()) for answer in answers])


@pytest.mark.full
def test_predict_evaluate_and_the_saved_model_read_the_language(run, tmp_path, capsys):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the SavedModel's tokenizer

    model = kb.load(run)
    assert model.task.settings == {"language": "fr"}
    french, english = (scores(kb.predict(model, TEXTS, language=name)) for name in ("fr", "en"))
    np.testing.assert_array_equal(scores(kb.predict(model, TEXTS)), french)
    assert np.abs(french - english).max() > 3e-4  # thirty times the tolerance below
    with pytest.raises(InputError, match="no language 'de'"):
        kb.predict(model, TEXTS, language="de")
    assert not np.array_equal(kb.encode(model, TEXTS), kb.encode(model, TEXTS, language="en"))
    assert main(["predict", str(run), TEXTS[0], "--language", "en", "--json"]) == 0
    capsys.readouterr()
    kb.export(run, tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    for name, expected in (("fr", french), ("en", english)):
        found = serve(text=tf.constant(TEXTS), language=tf.fill([3], name))["probabilities"].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="language: expected one of en, fr"):
        serve(text=tf.constant(TEXTS), language=tf.fill([3], "de"))


@pytest.mark.slow
def test_the_phone_reads_the_language(run, tmp_path):
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    mobile.compress(run, "float32", tmp_path / "x.tflite", texts=TEXTS * 10)
    runner = load(tmp_path / "x.tflite", cache=False)
    for name in (None, "fr", "en"):
        expected = scores(kb.predict(run, TEXTS, language=name))
        np.testing.assert_allclose(scores(runner(TEXTS, language=name)), expected, atol=1e-5)
