"""Finding and opening checkpoints."""

import json

import numpy as np
import pytest

from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.errors import InputError
from tests.checkpoints.reference import open_checkpoint


def write(path, **values):
    values = {name: np.float32(value) for name, value in values.items()}
    write_safetensors(path, {name: value.shape for name, value in values.items()}, values.__getitem__)


def index(folder, **weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def save_tf1(prefix, **values):
    import tensorflow as tf

    tensors = [tf.constant(value) for value in values.values()]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=list(values), shape_and_slices=[""] * len(values), tensors=tensors
    )


def test_a_folder_a_file_and_shards(tmp_path):
    write(tmp_path / "one.safetensors", a=[1], b=[2])
    write(tmp_path / "two.safetensors", c=[[3, 4]])
    index(tmp_path, a="one.safetensors", b="one.safetensors", c="two.safetensors")
    reader, folder = open_checkpoint(tmp_path, "hf")
    assert folder == tmp_path
    assert reader.names() == ["a", "b", "c"]
    assert reader.shape("c") == (1, 2)
    np.testing.assert_array_equal(reader.read("c"), [[3, 4]])
    single, folder = open_checkpoint(tmp_path / "two.safetensors", "hf")
    assert (single.names(), folder) == (["c"], tmp_path)


def test_shards_that_do_not_fit_their_index(tmp_path):
    write(tmp_path / "one.safetensors", a=[1])
    index(tmp_path, a="one.safetensors", b="two.safetensors")
    with pytest.raises(InputError, match=r"names two.safetensors, which is not there"):
        open_checkpoint(tmp_path, "hf")
    index(tmp_path, a="one.safetensors", b="one.safetensors", c="one.safetensors")
    with pytest.raises(InputError, match=r"the shards of .* lack 2 tensors: b, c"):
        open_checkpoint(tmp_path, "hf")
    write(tmp_path / "two.safetensors", a=[1])
    index(tmp_path, a="one.safetensors", b="two.safetensors")
    with pytest.raises(InputError, match="a lies in two shards"):
        open_checkpoint(tmp_path, "hf")


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "sub/one.safetensors", ".."])
def test_no_shard_outside_the_folder(tmp_path, name):
    index(tmp_path, a=name)
    with pytest.raises(InputError, match="expected a file in the same folder"):
        open_checkpoint(tmp_path, "hf")


@pytest.mark.parametrize("content", [{}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_an_index_without_a_map(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="has no weight_map"):
        open_checkpoint(tmp_path, "hf")


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match=r"holds no model.safetensors"):
        open_checkpoint(tmp_path, "hf")
    with pytest.raises(InputError, match="no checkpoint at"):
        open_checkpoint(tmp_path / "nowhere", "hf")
    (tmp_path / "model.h5").write_text("")
    with pytest.raises(InputError, match=r"Expected .safetensors, .index.json or .bin"):
        open_checkpoint(tmp_path / "model.h5", "hf")
    with pytest.raises(
        InputError,
        match=r"no checkpoint format 'kerashub'. Nearest: 'keras_hub'. All: model2vec, sentence_transformers, hf,",
    ):
        open_checkpoint(tmp_path, "kerashub")
    with pytest.raises(InputError, match="no checkpoint format 'xyzzy'. All: "):  # like none of them
        open_checkpoint(tmp_path, "xyzzy")


def test_a_pickle_is_refused_unread(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(InputError, match=r"is a pickle, which can run code.*allow_pickle=True"):
        open_checkpoint(tmp_path, "hf")


def test_tf1_by_folder_prefix_and_index(tmp_path):
    save_tf1(tmp_path / "model.ckpt-7", **{"bert/a": [1.0, 2.0], "global_step": 7})
    for path in (tmp_path, tmp_path / "model.ckpt-7", tmp_path / "model.ckpt-7.index"):
        reader, folder = open_checkpoint(path, "tf1")
        assert (folder, reader.names(), reader.shape("bert/a")) == (tmp_path, ["bert/a", "global_step"], (2,))
        np.testing.assert_array_equal(reader.read("bert/a"), [1, 2])
    with pytest.raises(InputError, match=r"global_step of .* is int32, expected floats"):
        reader.read("global_step")


def test_tf1_choices(tmp_path):
    with pytest.raises(InputError, match="has these TensorFlow checkpoints: none"):
        open_checkpoint(tmp_path, "tf1")
    with pytest.raises(InputError, match=r"no TensorFlow checkpoint at .*bert \(no file bert.index\)"):
        open_checkpoint(tmp_path / "bert", "tf1")
    for name in ("a.ckpt", "b.ckpt"):
        save_tf1(tmp_path / name, x=[1.0])
    with pytest.raises(InputError, match=r"a.ckpt.index, b.ckpt.index. Expected one: give the path"):
        open_checkpoint(tmp_path, "tf1")
    save_tf1(tmp_path / "bert_model.ckpt", y=[1.0])
    assert open_checkpoint(tmp_path, "tf1")[0].names() == ["y"]


def test_tf1_damage(tmp_path):
    save_tf1(tmp_path / "a.ckpt", x=np.ones(1000, np.float32))
    data = tmp_path / "a.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(InputError, match=r"cannot read (x of|the TensorFlow checkpoint) .*a.ckpt: "):
        open_checkpoint(tmp_path, "tf1")[0].read("x")
    (tmp_path / "a.ckpt.index").write_bytes(b"no table")
    with pytest.raises(InputError, match=r"cannot read the TensorFlow checkpoint .*a.ckpt: "):
        open_checkpoint(tmp_path, "tf1")


def test_tf2_object_checkpoints_are_refused(tmp_path):
    import tensorflow as tf

    tf.train.Checkpoint(v=tf.Variable([1.0])).write(str(tmp_path / "a.ckpt"))
    with pytest.raises(InputError, match="is a TF2 object checkpoint, expected TF1"):
        open_checkpoint(tmp_path, "tf1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is no json"),
        (b"\xff", "is no json"),
        (b"[]", "holds list, expected a json object"),
        (b"[" * 99_999, "is no json"),
    ],
)
def test_json(tmp_path, content, message):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_json(tmp_path / "x.json")


def test_json_of_bounded_size(tmp_path):
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(64_000_001)
    with pytest.raises(InputError, match="has 64000001 bytes, expected at most 64000000"):
        read_json(tmp_path / "x.json")
