"""Static embeddings: the distillation by hand, the mean without unknown pieces, folders of others there and back, the phone."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints.directory import read_tensors
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.static_embedding import principal, weights
from tests import tiny
from tests.checkpoints.theirs import parity

TEXTS = ["the cat sees", "the q\u0bf5 cat \u0bf5", "\u0bf5", "", "a dog , a dog " * 20, "[MASK] cats"]
TABLE = "embeddings/table"


@pytest.fixture(scope="module")
def encoder():
    model = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    model.tokenizer = tiny.tokenizer()
    return model


@pytest.fixture(scope="module")
def static(encoder, tmp_path_factory):
    """Distilled by the command, into vectors of 4 numbers."""
    folder = tmp_path_factory.mktemp("static")
    kb.save(encoder, folder / "encoder")
    assert main(["static", str(folder / "encoder"), "--dims", "4", "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_a_piece_has_the_encoders_vector_of_it_alone(encoder, static):
    model, vocabulary = kb.load(static), encoder.tokenizer.vocabulary
    kept = [piece for piece in vocabulary if piece not in ("[CLS]", "[SEP]", "[MASK]")]
    assert list(model.tokenizer.vocabulary) == kept
    alone = [encoder.tokenizer([""])["token_ids"][0].tolist() for _ in kept]
    rows = np.array([[ids[0], vocabulary.index(piece), ids[-1]] for ids, piece in zip(alone, kept)])
    given = {"token_ids": rows, "padding_mask": np.ones_like(rows), "segment_ids": np.zeros_like(rows)}
    vectors = np.asarray(encoder(given)["sequence"]).mean(1).astype("float64")
    centred = vectors - vectors.mean(0)
    found = np.array(read_tensors(static).read(TABLE)) / weights(len(kept), 1e-4)[:, None]
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found), np.abs(centred @ components[:4].T), atol=1e-4)
    assert (found.max(0) > -found.min(0)).all()  # the largest score is positive


def test_weights_and_components_are_refused_by_what_they_are(encoder, tmp_path):
    np.testing.assert_allclose(weights(3, 0.1), 0.1 / (0.1 + np.array([6, 4, 3]) / 13))
    assert principal(np.eye(3), 3)[1] == pytest.approx(1.0)
    wrong: list[tuple[dict, str]] = [
        ({"dims": 17}, "dims is 17, and a vector of this model has 16 numbers"),
        ({"dims": -1}, "dims must be a whole number, 0 for all of the encoder. Received: -1"),
        ({"sif": 1}, "sif must be a number from 0 to below 1"),
    ]
    for given, expected in wrong:
        with pytest.raises(InputError, match=expected):
            kb.static_embedding(encoder, tmp_path / "x", **given)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("dims", [0, 3, 16])
def test_what_is_told_of_the_table_is_what_it_holds(encoder, dims, tmp_path):
    (line,) = kb.static_embedding(encoder, tmp_path / "run", dims=dims)
    shape, whole = read_tensors(tmp_path / "run").shape(TABLE), read_tensors(tmp_path / "run").read(TABLE)
    pieces = encoder.tokenizer.size - 3  # [CLS], [SEP] and [MASK] stand in no text
    assert shape == (pieces, dims or 16)
    assert line.startswith(f"{pieces} pieces, vectors of {dims or 16} numbers")
    assert ("of the variance of 16" in line) == (dims > 0)
    assert line.endswith(f": {whole.size * 4 / 1e6:.1f} MB")
    assert ("100% of" in line) == (dims == 16)


def test_unknown_pieces_have_no_part_and_nothing_is_zeros(static):
    model = kb.load(static)
    table, ids = np.array(read_tensors(static).read(TABLE)), model.tokenizer.encode
    mean = table[[*ids("the"), *ids("cat")]].mean(0)
    found = kb.encode(model, ["the \u0bf5 cat", "\u0bf5", ""])
    np.testing.assert_allclose(found[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert not found[1:].any()
    np.testing.assert_allclose(kb.encode(model, ["the \u0bf5 cat"], pooling="mean")[0], mean, atol=1e-6)


def test_written_and_read_again_in_both_formats(static, tmp_path, capsys):
    expected = kb.encode(static, TEXTS)
    for target in ("model2vec", "sentence_transformers"):
        kb.export_checkpoint(static, tmp_path / target, target)
        kb.import_checkpoint(tmp_path / target, out=tmp_path / f"{target}-run", build=False)
        np.testing.assert_allclose(kb.encode(tmp_path / f"{target}-run", TEXTS[:1]), expected[:1], atol=1e-6)
    np.testing.assert_allclose(kb.encode(tmp_path / "model2vec-run", TEXTS), expected, atol=1e-6)
    assert kb.import_checkpoint(tmp_path / "model2vec", dry_run=True).fits
    assert "is read as model2vec; it looks like sentence_transformers too (--from)" in capsys.readouterr().err
    _counting(tmp_path / "sentence_transformers")
    kb.import_checkpoint(tmp_path / "sentence_transformers", out=tmp_path / "counts", build=False)
    with pytest.raises(InputError, match="model2vec leaves unknown pieces out of the mean, this model does not"):
        kb.export_checkpoint(tmp_path / "counts", tmp_path / "back", "model2vec")
    kb.export_checkpoint(tmp_path / "counts", tmp_path / "back")


def _counting(folder):
    """Give the unknown piece of a folder a vector."""
    table = np.array(Safetensors(folder / "model.safetensors").read("embedding.weight"))
    table[1] = 1.0
    write_safetensors(folder / "model.safetensors", {"embedding.weight": table.shape}, lambda _: table)


def test_damaged_and_strange_folders_are_refused(static, tmp_path):
    def changed(name, change, target="model2vec", file="config.json"):
        kb.export_checkpoint(static, tmp_path / name, target)
        content = json.loads((tmp_path / name / file).read_text())
        change(content)
        (tmp_path / name / file).write_text(json.dumps(content))
        return tmp_path / name

    cases = [
        (changed("length", lambda it: it.update(max_length="x")), {}, "expected a bool and a number of tokens"),
        (
            changed("left", lambda it: it["truncation"].update(direction="Left"), file="tokenizer.json"),
            {},
            "at its begin",
        ),
        (changed("fewer", lambda it: it["model"]["vocab"].popitem(), file="tokenizer.json"), {}, "1 misshaped"),
        (changed("pair", lambda it: None), {"pair": True}, "of which no pair is read"),
        (changed("model", lambda it: None), {"model": "bert/tiny"}, "received the model bert/tiny"),
    ]
    (tmp_path / "pair" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    cases.append((tmp_path / "pair", {}, "tokenizer.json is missing"))
    for folder, given, expected in cases:
        with pytest.raises(InputError, match=expected):
            kb.import_checkpoint(folder, out=tmp_path / "never", build=False, **given)
    assert not (tmp_path / "never").exists()


def test_what_has_special_tokens_or_another_pooling_is_not_written(static, encoder, tmp_path):
    kb.save(encoder, tmp_path / "encoder")
    with pytest.raises(InputError, match="is no table of vectors, which a model of model2vec is: kerasbert static"):
        kb.export_checkpoint(tmp_path / "encoder", tmp_path / "x", "model2vec")
    model = kb.load(static)
    model.task = model.task.optioned({"pooling": "max"})
    kb.save(model, tmp_path / "max")
    with pytest.raises(InputError, match="pools by max, a static embedding is a mean"):
        kb.export_checkpoint(tmp_path / "max", tmp_path / "x")


@pytest.mark.slow
def test_trained_served_and_on_the_phone(static, tmp_path):
    import tensorflow as tf

    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load

    rows = [("the cat sees", "the cat", 1.0), ("a dog", "the old house", 0.0)] * 8
    run = tmp_path / "run"
    kb.finetune(static, "sts", {"train": rows, "dev": rows}, out=run, epochs=2, batch=8, learning_rate=0.01, quiet=True)
    assert kb.load(run).spec.embeddings.left_out == (0, 1)
    expected = kb.encode(run, TEXTS)
    kb.export(run, tmp_path / "serving")
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(served["vector"].numpy(), expected, atol=1e-6)
    compress(run, out=tmp_path / "x.tflite", quantize="none", texts=[text for text in TEXTS if text])
    found = [answer.values for answer in load(tmp_path / "x.tflite", cache=False)(TEXTS)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@parity
def test_vectors_are_those_of_sentence_transformers(static, tmp_path):
    theirs = pytest.importorskip("sentence_transformers")
    kb.export_checkpoint(static, tmp_path / "st")
    expected, known = kb.encode(static, TEXTS), [0, 1, 2, 3, 4]  # they find [MASK] in a text
    model = theirs.SentenceTransformer(str(tmp_path / "st"), device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS)[known], expected[known], atol=1e-6)
    model.save_pretrained(str(tmp_path / "saved"))
    kb.import_checkpoint(tmp_path / "saved", out=tmp_path / "run", build=False)
    np.testing.assert_allclose(kb.encode(tmp_path / "run", TEXTS)[known], expected[known], atol=1e-6)


@pytest.mark.full  # CI does not install it
def test_vectors_are_those_of_model2vec(static, tmp_path):
    kb.export_checkpoint(static, tmp_path / "m2v", "model2vec")
    expected, known = kb.encode(static, TEXTS), [0, 1, 2, 3, 4]
    other = pytest.importorskip("model2vec").StaticModel.from_pretrained(tmp_path / "m2v")
    np.testing.assert_allclose(other.encode(TEXTS)[known], expected[known], atol=1e-6)
