"""The model directory: what is written is read, and nothing else is."""

import copy
import json

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.checkpoints import head_names, load_encoder, load_weights, read_model_json, read_tensors, save_model
from kerasbert.checkpoints.directory import Weights, built, named_weights
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from kerasbert.text.languages import read_languages
from tests.checkpoints import presets
from tests.checkpoints.reference import VOCABULARY

BERT = registry.family("bert")
SPEC = BERT.spec.derive(
    {
        "hidden": 6,
        "blocks.layers": 2,
        "attention.heads": 3,
        "feedforward.width": 7,
        "embeddings.vocabulary": 13,
        "embeddings.positions": 10,
    }
)
HEAD = {"kernel": np.arange(12, dtype=np.float32).reshape(6, 2), "bias": np.float32([1, 2])}


@pytest.fixture
def saved(tmp_path):
    encoder = built(BERT, SPEC)
    rng = np.random.default_rng(0)
    for variable in named_weights(encoder).values():
        variable.assign(rng.normal(size=variable.shape))
    save_model(
        tmp_path / "run",
        encoder=encoder,
        name="bert/toy",
        heads={"classifier": HEAD},
        tokenizer=WordPiece(VOCABULARY),
        task={"kind": "classification", "inputs": "text"},
        labels=["bad", "good"],
    )
    return encoder, tmp_path / "run"


def edit(folder, *without, **changes):
    """Change model.json by hand: its hash is removed, as the error says."""
    path = folder / "model.json"
    content = {name: value for name, value in json.loads(path.read_text()).items() if name not in ("sha256", *without)}
    path.write_text(json.dumps(content | changes))


def rewrite(folder, change):
    """Write the weights again after `change` edited the dict of them."""
    tensors = read_tensors(folder)
    values = {name: tensors.read(name) for name in tensors.names()}
    change(values)
    shapes = {name: value.shape for name, value in values.items()}
    write_safetensors(folder / "weights.safetensors", shapes, values.__getitem__)
    edit(folder, "files")


def test_files(saved):
    _, folder = saved
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        ".kerasbert",
        "model.json",
        "tokenizer/tokenizer.json",
        "tokenizer/vocab.txt",
        "weights.safetensors",
    ]
    content = json.loads((folder / "model.json").read_text())
    assert list(content) == ["format", "family", "name", "spec", "task", "labels", "plugin", "files", "sha256"]
    assert list(content["files"]) == ["tokenizer/tokenizer.json", "tokenizer/vocab.txt", "weights.safetensors"]
    assert (content["format"], content["family"], content["name"]) == (1, "bert", "bert/toy")
    assert "block_1/attention/query/kernel" in read_tensors(folder).names()
    assert head_names(read_tensors(folder)) == ["classifier"]


def test_round_trip(saved):
    encoder, folder = saved
    loaded, info = load_encoder(folder)
    assert (info.spec, info.labels, info.task["kind"]) == (SPEC, ("bad", "good"), "classification")
    assert tuple(loaded.labels) == ("bad", "good")
    assert loaded.tokenizer.digest() == WordPiece(VOCABULARY).digest()
    for name, variable in named_weights(encoder).items():
        np.testing.assert_array_equal(named_weights(loaded)[name].value.numpy(), variable.value.numpy(), err_msg=name)


def test_the_same_model_gives_the_same_bytes(saved, tmp_path):
    encoder, folder = saved
    loaded, info = load_encoder(folder)
    parts = {"name": info.name, "heads": {"classifier": HEAD}, "tokenizer": loaded.tokenizer, "task": info.task}
    save_model(tmp_path / "again", encoder=loaded, labels=info.labels, **parts)
    for path in folder.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(folder)).read_bytes(), path
    with pytest.raises(InputError, match="again exists already"):
        save_model(tmp_path / "again", encoder=encoder, **parts)
    save_model(tmp_path / "again", encoder=encoder, replace=True, **parts)


def test_a_failed_save_leaves_nothing(saved, tmp_path):
    encoder, _ = saved

    class Broken:
        def save(self, directory):
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write .*full: No space left on device"):
        save_model(tmp_path / "full", encoder=encoder, name="bert", tokenizer=Broken())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_head_is_loaded_by_its_prefix(saved):
    import keras

    class Head(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(6, 2), name="kernel")
            self.bias = self.add_weight(shape=(2,), name="bias")

    head = Head(name="classifier")
    head.build(None)
    load_weights(saved[1], head, "heads/classifier/")
    np.testing.assert_array_equal(head.kernel.value.numpy(), HEAD["kernel"])
    rewrite(saved[1], lambda values: values.pop("heads/classifier/bias"))
    with pytest.raises(InputError, match=r"1 missing: heads/classifier/bias \[2\]. Load it"):
        load_weights(saved[1], head, "heads/classifier/")


def test_every_tensor_that_does_not_fit_is_listed(saved):
    def change(values):
        del values["pooler/bias"], values["block_0/attention/key/bias"]
        values["block_2/attention/key/bias"] = np.zeros(6, np.float32)
        values["pooler/kernel"] = np.zeros((6, 5), np.float32)

    rewrite(saved[1], change)
    message = (
        r"does not fit the model. 2 missing: block_0/attention/key/bias \[6\], pooler/bias \[6\]; "
        r"1 extra: block_2/attention/key/bias \[6\]; 1 misshaped: pooler/kernel received \[6, 5\] expected \[6, 6\]. Load"
    )
    with pytest.raises(InputError, match=message):
        load_encoder(saved[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2, expected 1: use the version that wrote it"),
        ({"format": None}, "has format None, expected 1"),
        ({"family": "birt"}, "no model family 'birt'. Nearest: 'bert'"),
        (
            {"family": "mine", "plugin": {"file": "mine.py", "sha256": ""}},
            "comes with the plug-in mine.py: pass it as --plugin",
        ),
        ({"spec": None}, "model.json is damaged: expected family"),
        ({"labels": "bad good"}, "model.json is damaged: expected family"),
        ({"labels": [1]}, "model.json is damaged: expected family"),
        ({"task": []}, "model.json is damaged: expected family"),
        ({"spec": {"embeddings": 3}}, "model.json is damaged: its spec is not the nested object"),
        ({"generation": "beams"}, "model.json is damaged: expected generation to be options by name"),
        ({"generation": {"tasks": "beams"}}, "model.json is damaged: expected generation to be options by name"),
        ({"generation": {"tasks": {"summarization": 4}}}, "is damaged: expected generation to be options by name"),
        ({"spec": {"hiden": 6}}, "no spec field 'hiden'. Nearest: 'hidden'"),
    ],
)
def test_model_json_is_checked(saved, changes, message):
    edit(saved[1], **changes)
    with pytest.raises(InputError, match=message):
        read_model_json(saved[1])


def test_damage(saved, tmp_path):
    with pytest.raises(InputError, match="is no model directory"):
        load_encoder(tmp_path)
    weights = saved[1] / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"weights.safetensors is damaged or truncated: its header describes"):
        load_encoder(saved[1])
    weights.unlink()
    with pytest.raises(InputError, match=r"cannot read .*weights.safetensors: No such file"):
        load_encoder(saved[1])


def swap(path, old: bytes, new: bytes):
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_a_changed_file_is_refused_and_the_way_out_works(saved):
    _, folder = saved
    swap(folder / "tokenizer" / "vocab.txt", b"\nh\n", b"\nz\n")
    with pytest.raises(
        InputError, match=r"vocab.txt is not the file that was written .* remove \"files\" and \"sha256\""
    ):
        load_encoder(folder)
    edit(folder, "files")
    assert load_encoder(folder)[0].tokenizer.digest() == WordPiece([*VOCABULARY[:-1], "z"]).digest()


def test_changed_weights_are_refused(saved):
    _, folder = saved
    load_encoder(folder)  # what was read before is not remembered
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-7] ^= 1
    (folder / "weights.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="weights.safetensors is not the file that was written"):
        load_encoder(folder)
    with pytest.raises(InputError, match="weights.safetensors is not the file that was written"):
        read_tensors(folder)


def test_a_changed_setting_is_refused(saved):
    swap(saved[1] / "model.json", b"1e-12", b"1e-02")
    with pytest.raises(InputError, match=r"model.json is not as it was written: .* remove \"sha256\" from it"):
        read_model_json(saved[1])


def test_a_missing_tokenizer_file_is_named(saved):
    (saved[1] / "tokenizer" / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"tokenizer/vocab.txt is missing"):
        read_model_json(saved[1])


def test_a_directory_without_hashes_is_read(saved):
    encoder, folder = saved
    edit(folder, "files")
    loaded, _ = load_encoder(folder)
    np.testing.assert_array_equal(loaded.weights[0].numpy(), encoder.weights[0].numpy())


def test_weights_that_are_not_finite_are_named_and_nothing_is_assigned(saved):
    encoder, folder = saved

    def change(values):
        values["pooler/kernel"][2, 1] = np.nan
        values["block_1/feedforward/inner/bias"] = np.full(7, -np.inf, np.float32)

    before = [variable.numpy() for variable in encoder.weights]
    rewrite(folder, lambda values: (values.update({n: v.copy() for n, v in values.items()}), change(values)))
    with pytest.raises(
        InputError, match=r"holds nan or inf in block_1/feedforward/inner/bias, pooler/kernel: no model"
    ):
        load_weights(folder, encoder)
    assert all((a == b.numpy()).all() for a, b in zip(before, encoder.weights))


def test_languages_of_the_call_or_of_the_tokenizer_stand_beside_its_files(tmp_path):
    spec = presets.spec_of("bert")
    encoder, own = Weights(spec, presets.arrays_of("bert", spec)), {"en": 0, "fr": 1}
    for name, given, held in (("call", own, None), ("tokenizer", None, own), ("none", None, None)):
        tokenizer = copy.copy(presets.TOKENIZERS["bert"])
        if held:
            tokenizer.languages = held
        save_model(tmp_path / name, encoder=encoder, name="bert", tokenizer=tokenizer, languages=given)
        assert read_languages(tmp_path / name / "tokenizer") == (given or held), name
