"""The table of formats: what a path looks like, which options a format reads, a format that a plug-in brings."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import fit, formats, source
from kerasbert.checkpoints.formats import ImportOptions, find
from kerasbert.checkpoints.names import Dialect
from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonView
from tests.checkpoints.reference import hf_shapes, random_tensors, write_hf
from tests.support import forgotten

FILES = {
    "hf": ("config.json", "model.safetensors"),
    "sentence_transformers": ("config.json", "model.safetensors", "modules.json"),
    "keras_hub": ("config.json", "model.weights.h5"),
    "tf1": ("bert_config.json", "bert_model.ckpt.index"),
    "allennlp": ("elmo_options.json", "elmo_weights.hdf5"),
    "kerasbert": ("model.json", "weights.safetensors"),
    "vectors": ("vectors.json",),
    "peft": ("adapter_config.json",),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A BERT of Hugging Face, and the same written as TF1."""
    folder = tmp_path_factory.mktemp("theirs")
    kb.import_checkpoint(write_hf(folder / "hf", random_tensors(hf_shapes())), out=folder / "run", build=False)
    kb.export_checkpoint(folder / "run", folder / "tf1", "tf1")
    return folder


def named(format):
    """The name that a format is registered by."""
    return next(name for name, each in registry.FORMATS.items() if each is format)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_is_known_by_its_files(name, tmp_path):
    for file in FILES[name]:
        (tmp_path / file).touch()
    assert named(find(tmp_path, None)) == name


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("words.vec.gz", None, "vectors"),
        ("bert_model.ckpt", None, "tf1"),
        ("bert_model.ckpt.index", None, "tf1"),
        ("weights.safetensors", None, "hf"),
        ("nothing/here", None, "hf"),
        ("google-bert/bert-base-uncased", None, "hf"),
        (".", "hf", "sentence_transformers"),
        (".", "tf1", "tf1"),
    ],
)
def test_files_prefixes_and_names(path, source, expected, tmp_path):
    for file in ("words.vec.gz", "bert_model.ckpt.index", "weights.safetensors", "modules.json"):
        (tmp_path / file).touch()
    assert named(find(tmp_path / path, source)) == expected


def test_of_several_formats_the_one_that_is_taken_is_told(tmp_path, capsys):
    for name in ("hf", "tf1"):
        for file in FILES[name]:
            (tmp_path / file).touch()
    assert named(find(tmp_path, None)) == "hf"
    assert capsys.readouterr().err == f"{tmp_path} is read as hf; it looks like tf1 too (--from)\n"
    assert named(find(tmp_path, "tf1")) == "tf1"
    (tmp_path / "modules.json").touch()
    (tmp_path / "bert_model.ckpt.index").unlink()
    assert named(find(tmp_path, None)) == "sentence_transformers"
    assert capsys.readouterr().err == ""


def test_no_format_is_named_for_what_is_plain(theirs, tmp_path):
    for path in (theirs / "hf", theirs / "tf1", theirs / "tf1" / "bert_model.ckpt"):
        coverage = kb.import_checkpoint(path, dry_run=True)
        assert coverage.fits
        assert len(coverage.pairs) == len(kb.import_checkpoint(theirs / "hf", "hf", dry_run=True).pairs)
    with pytest.raises(InputError, match="is a model directory of kerasbert already: name the model"):
        kb.import_checkpoint(theirs / "run")


def test_a_command_says_what_to_do_with_a_folder_of_others(theirs):
    with pytest.raises(
        InputError, match=r"is a TensorFlow 1 checkpoint: kerasbert import .*tf1 --out DIR makes a model directory"
    ):
        source.check(theirs / "tf1")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("allennlp", {"pair": True}, "is an ELMo of AllenNLP, of which no pair is read: leave that out"),
        ("allennlp", {"graph": "a.spo", "pair": True}, "no pair and no graph is read"),
        ("tf1", {"revision": "main"}, "is a TensorFlow 1 checkpoint, of which no revision is read"),
        ("vectors", {"tokenizer": "none"}, "is word vectors, of which no tokenizer is read"),
        ("kerasbert", {"ignore": ["a"]}, "no ignore is read"),
    ],
)
def test_an_option_that_nothing_reads_is_refused(name, options, expected, tmp_path):
    for file in FILES[name]:
        (tmp_path / file).touch()
    with pytest.raises(InputError, match=expected):
        kb.import_checkpoint(tmp_path, model="average/base" if name == "vectors" else None, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES[name])


def test_options_at_their_default_are_none(tmp_path):
    asked = ImportOptions(pair=False, ignore=(), allow_pickle=False)
    assert asked.given() == []
    with pytest.raises(InputError, match="import_checkpoint has no option 'tokeniser'. Nearest: 'tokenizer'"):
        kb.import_checkpoint(tmp_path, tokeniser="x")


def test_what_is_only_read_is_not_written(theirs, tmp_path):
    expected = "model2vec, sentence_transformers, hf, keras_hub, tf1, allennlp, peft are"
    with pytest.raises(InputError, match=f"word vectors is read here and not written: {expected}"):
        kb.export_checkpoint(theirs / "run", tmp_path / "out", "vectors")
    with pytest.raises(InputError, match="answers with no vectors, which a model of sentence-transformers is for"):
        kb.export_checkpoint(theirs / "run", tmp_path / "out", "sentence_transformers")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="has no modules.json, which a model of sentence-transformers has"):
        kb.import_checkpoint(theirs / "hf", "sentence_transformers")


# A format of a stranger: npz and json, a name a weight


class Arrays:
    """A Reader of an npz."""

    def __init__(self, path):
        self.arrays = np.load(path)

    def names(self):
        return sorted(self.arrays.files)

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name):
        return self.arrays[name].astype("float32")

    stored = read


class Npz(fit.NamedFormat):
    """arrays.npz and settings.json, whose names are those of Hugging Face with slashes."""

    title = "a folder of arrays"

    def looks_like(self, path):
        return (path / "arrays.npz").is_file()

    def open(self, path, asked):
        settings = JsonView(json.loads((path / "settings.json").read_text()))
        return formats.Opened(path, path, Arrays(path / "arrays.npz"), settings)

    def dialect(self, family):
        theirs: Dialect = family.names["hf"]
        rows = tuple((ours, name.replace(".", "/"), *rule) for ours, name, *rule in theirs.rows)
        leaves = {leaf: (suffix.replace(".", "/"), *rule) for leaf, (suffix, *rule) in theirs.leaves.items()}
        tied = {copy.replace(".", "/"): theirs.originals(copy)[0].replace(".", "/") for copy in theirs.tied}
        return dataclasses.replace(theirs, rows=rows, leaves=leaves, tied=tied, renames=(), prefix="bert/", ignored={})


def test_a_format_of_a_plug_in(theirs, tmp_path):
    tensors = random_tensors(hf_shapes())
    np.savez(tmp_path / "arrays.npz", **{name.replace(".", "/"): value for name, value in tensors.items()})
    (tmp_path / "settings.json").write_text((theirs / "hf" / "config.json").read_text())
    with forgotten():
        registry.register_format("npz", Npz())
        assert named(find(tmp_path, None)) == "npz"
        found = kb.import_checkpoint(tmp_path, out=tmp_path / "run")
        expected = kb.import_checkpoint(write_hf(tmp_path / "hf", tensors))
        batch = {
            "token_ids": np.array([[2, 5, 3]]),
            "padding_mask": np.ones((1, 3), bool),
            "segment_ids": np.zeros((1, 3), int),
        }
        assert np.array_equal(found(batch)["sequence"], expected(batch)["sequence"])
        with pytest.raises(InputError, match="a folder of arrays is read here and not written"):
            kb.export_checkpoint(tmp_path / "run", tmp_path / "out", "npz")
        (tmp_path / "settings.json").write_text(
            json.dumps(json.loads((theirs / "hf/config.json").read_text()) | {"hue": 1})
        )
    with pytest.raises(InputError, match="holds no model.safetensors"):
        kb.import_checkpoint(tmp_path)


def test_a_format_that_cannot_work_is_refused_where_it_is_registered():
    class Blind(fit.NamedFormat):
        def looks_like(self, path: Path) -> bool:
            return False

    with pytest.raises(TypeError, match="abstract method.*open"):
        Blind()
    with forgotten():
        with pytest.raises(InputError, match="the checkpoint format 'x' is 3, expected an instance"):
            registry.register_format("x", 3)
        format = Npz()
        format.reads = ("tokeniser",)
        with pytest.raises(InputError, match="no option of an import 'tokeniser'. Nearest: 'tokenizer'"):
            registry.register_format("x", format)
        with pytest.raises(InputError, match="'hf' is registered already"):
            registry.register_format("hf", Npz())
