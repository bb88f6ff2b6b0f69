"""Checkpoints of TensorFlow 1: which file is meant, what is read of it, what is written; `test_hf` has BERT there and back."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import tf1
from kerasbert.checkpoints.formats import Opened
from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from tests.checkpoints import presets

FORMAT = registry.FORMATS["tf1"]
VALUES = {"b/kernel": np.arange(6, dtype="float32").reshape(2, 3), "a": np.float32([0.5])}


def checkpoint(prefix: Path, values=VALUES) -> Path:
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=[tf.constant(value) for value in values.values()],
    )
    return prefix


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tf1")
    checkpoint(folder / "model.ckpt-7")
    return folder


def test_one_checkpoint_is_found_by_its_folder_its_prefix_or_its_index(folder):
    for path in (folder, folder / "model.ckpt-7", folder / "model.ckpt-7.index"):
        assert tf1._prefix(path) == folder / "model.ckpt-7"
        assert FORMAT.looks_like(path)
        opened = FORMAT.open(path, None)
        assert (opened.path, opened.folder, opened.config) == (path, folder, None)
    for path in (folder / "other", folder.parent / "nothing"):
        assert not FORMAT.looks_like(path)
        with pytest.raises(InputError, match=rf"no TensorFlow checkpoint at {path} \(no file {path.name}.index\)"):
            tf1._prefix(path)
    with pytest.raises(InputError, match=r"no TensorFlow checkpoint at .*model.ckpt \(no file model.ckpt.index\)"):
        tf1._prefix(folder / "model.ckpt")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "these TensorFlow checkpoints: none. Expected one"),
        (["a", "b"], "these TensorFlow checkpoints: a.index, b.index. Expected one: give the path of one"),
        (["bert_model.ckpt", "a"], "bert_model.ckpt"),
        (["bert_model.ckpt"], "bert_model.ckpt"),
        (["a"], "a"),
    ],
)
def test_of_several_googles_name_is_the_model(names, expected, tmp_path):
    for name in names:
        (tmp_path / f"{name}.index").touch()
    if names and "checkpoints" not in expected:
        assert tf1._prefix(tmp_path) == tmp_path / expected
    else:
        with pytest.raises(InputError, match=expected):
            tf1._prefix(tmp_path)


def test_tensors_are_read_as_float32(tmp_path):
    values = VALUES | {
        "half": np.float16([1, -2]),
        "brain": np.array([1, -2], ml_dtypes.bfloat16),
        "double": np.float64([1, -2]),
        "step": np.int64([7]),
    }
    tensors = tf1.TF1(checkpoint(tmp_path / "x", values))
    assert tensors.names() == ["a", "b/kernel", "brain", "double", "half", "step"]
    assert [tensors.shape(name) for name in ("a", "b/kernel")] == [(1,), (2, 3)]
    for name in ("a", "b/kernel", "half", "brain", "double"):
        assert tensors.read(name).dtype == np.float32
        np.testing.assert_array_equal(tensors.read(name), values[name].astype("float32"))
    assert tensors.stored("step").tolist() == [7]
    with pytest.raises(InputError, match=f"step of {tmp_path / 'x'} is int64, expected floats"):
        tensors.read("step")


def test_what_is_no_such_checkpoint_is_one_line(tmp_path):
    (tmp_path / "damaged.index").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match=f"cannot read the TensorFlow checkpoint {tmp_path / 'damaged'}: ") as error:
        tf1.TF1(tmp_path / "damaged")
    assert "\n" not in str(error.value)
    prefix = tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "two"))
    with pytest.raises(InputError, match=r"two is a TF2 object checkpoint, expected TF1 with named tensors"):
        tf1.TF1(Path(prefix))
    whole = checkpoint(tmp_path / "cut")
    data = tmp_path / "cut.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:4])
    with pytest.raises(InputError, match=f"cannot read b/kernel of {whole}: ") as error:
        tf1.TF1(whole).read("b/kernel")
    assert "\n" not in str(error.value)
    assert tf1._first_line(ValueError()) == "ValueError"
    assert tf1._first_line(ValueError("one\ntwo")) == "one"


@pytest.mark.parametrize(
    ("config", "family"),
    [(None, None), ({}, None), ({"use_relative_position": True}, "nezha"), ({"use_relative_position": False}, None)]
    + [({"use_relative_position": 1}, None), ({"hidden_size": True}, None)],
)
def test_a_switch_of_the_configuration_names_the_family(config, family, tmp_path):
    assert FORMAT.family_of(Opened(tmp_path, tmp_path, None, config)) == family


@pytest.mark.parametrize("own", [False, True])
def test_what_is_written(own, tmp_path, capsys):
    tokenizer = presets.TOKENIZERS["bert"]
    if own:
        tokenizer = WordPiece(presets.WORDS, template=("$A [SEP]", "$A [SEP] $B:1 [SEP]:1"))
    arrays = presets.directory(tmp_path / "run", "bert", tokenizer=tokenizer)
    capsys.readouterr()
    kb.export_checkpoint(tmp_path / "run", tmp_path / "out", "tf1")
    assert ("a tf1 checkpoint is a vocabulary alone: the template $A [SEP] | " in capsys.readouterr().err) == own
    stem = "bert_model.ckpt"
    files = {"bert_config.json", f"{stem}.index", f"{stem}.data-00000-of-00001", "vocab.txt", ".kerasbert"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    assert (tmp_path / "out/vocab.txt").read_text("utf-8").split() == presets.WORDS
    config = json.loads((tmp_path / "out/bert_config.json").read_text())
    assert (config["hidden_size"], config["vocab_size"], list(config)) == (20, 301, sorted(config))
    tensors = tf1.TF1(tmp_path / "out" / stem)
    np.testing.assert_array_equal(tensors.read("bert/embeddings/word_embeddings"), arrays["embeddings/tokens/table"])
    kernel = tensors.read("bert/encoder/layer_1/intermediate/dense/kernel")
    np.testing.assert_array_equal(kernel, arrays["block_1/feedforward/inner/kernel"])


def test_without_a_tokenizer_no_vocabulary_is_written(tmp_path):
    presets.directory(tmp_path / "run", "bert")
    kb.export_checkpoint(tmp_path / "run", tmp_path / "out", "tf1")
    assert not (tmp_path / "out/vocab.txt").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "bert_model.ckpt.index").mkdir()
    with pytest.raises(
        InputError, match=r"cannot write the TensorFlow checkpoint: .*\. Nothing was left there"
    ) as error:
        tf1.write(tmp_path, {}, {"a": (1,)}, VALUES.__getitem__)
    assert "\n" not in str(error.value)
    assert "[Op:" not in str(error.value)
