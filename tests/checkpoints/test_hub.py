"""Import by name: from a hub that runs here, from its cache, and what is said where there is neither."""

import importlib
import json
import shlex
import subprocess
import sys

import pytest

import kerasbert as kb
from kerasbert.checkpoints import hub as hubs
from kerasbert.checkpoints import read_model_json, source
from kerasbert.cli import main
from tests.checkpoints.hub_server import COMMIT, hub
from tests.checkpoints.reference import hf_shapes, random_tensors, write_hf

pytest.importorskip("huggingface_hub")
NOWHERE = "http://127.0.0.1:9"  # a port that nothing listens to


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A repository: a model, and what must not be fetched."""
    folder = write_hf(tmp_path_factory.mktemp("repository"), random_tensors(hf_shapes()))
    for name in ("pytorch_model.bin", "README.md", "onnx/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not for us")
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub's own library, which asks the hub whatever HF_HUB_OFFLINE says."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_a_name_is_fetched_and_its_commit_recorded(files, cache, tmp_path, monkeypatch, name):
    with hub(name, files) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        encoder = kb.import_checkpoint(name, out=tmp_path / "run")
        assert kb.import_checkpoint(name, revision="main").source == encoder.source
    assert encoder.source == {"hub": name, "revision": COMMIT} == read_model_json(tmp_path / "run").source
    fetched = {path.rpartition("/")[2] for path in asked if "/resolve/" in path}
    assert fetched == {"config.json", "model.safetensors", "vocab.txt"}
    assert all(f"/resolve/{COMMIT}/" in path for path in asked if "/resolve/" in path)
    assert not any(path.endswith("onnx/model.safetensors") for path in asked)
    content = json.loads((tmp_path / "run" / "model.json").read_text())
    for name in ("source", "files", "sha256"):  # as of a model that was not fetched
        content.pop(name, None)
    (tmp_path / "run" / "model.json").write_text(json.dumps(content))
    assert read_model_json(tmp_path / "run").source is None


def test_what_was_fetched_is_found_again_without_a_network(files, cache, monkeypatch, capsys):
    with hub("bert-base-uncased", files) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        folder, _ = hubs.fetch("bert-base-uncased")
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    assert hubs.fetch("bert-base-uncased") == (folder, COMMIT)
    assert f"the hub cannot be reached: bert-base-uncased is commit {COMMIT} of the cache" in capsys.readouterr().err


def test_without_a_network_the_error_is_a_command_that_works(files, cache, tmp_path, monkeypatch):
    """The line's own command, run by the hub's own program against our hub."""
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    with pytest.raises(
        kb.InputError, match="no checkpoint at bert-base-uncased, and the hub did not give it: "
    ) as caught:
        kb.import_checkpoint("bert-base-uncased")
    command = shlex.split(str(caught.value).partition("network: ")[2].partition(";")[0])
    assert command[:3] == ["hf", "download", "bert-base-uncased"]
    program = [sys.executable, "-m", "huggingface_hub.cli.hf", *command[1:]]
    with hub("bert-base-uncased", files) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    kb.import_checkpoint(tmp_path / "bert-base-uncased")
    assert not (tmp_path / "bert-base-uncased" / "pytorch_model.bin").exists()


def test_no_such_name_and_no_safetensors(files, cache, tmp_path, monkeypatch):
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"")
    with hub("pickle", tmp_path / "pickle") as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(kb.InputError, match=f"pickle at {COMMIT} has no config.json and model.safetensors"):
            hubs.fetch("pickle")
        with pytest.raises(kb.InputError, match="no checkpoint at bret-base, and the hub did not give it: 404"):
            hubs.fetch("bret-base")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        kb.InputError,
        match=r"needs huggingface_hub: pip install huggingface_hub \(extras tensorflow.*hf download x",
    ):
        hubs.fetch("x")


def test_a_revision_is_of_a_name(files):
    with pytest.raises(kb.InputError, match=r"revision 'main' is of a name on the hub, and .* is none"):
        kb.import_checkpoint(files, revision="main")


def test_the_command(files, cache, tmp_path, monkeypatch, capsys):
    with hub("bert-base-uncased", files) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert main(["import", "bert-base-uncased", "--revision", COMMIT, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run")
    assert read_model_json(tmp_path / "run").source["revision"] == COMMIT


@pytest.mark.parametrize("name", ["owner/bert", "https://huggingface.co/owner/bert/tree/main", "hf.co/owner/bert"])
def test_a_name_stands_wherever_a_model_is_taken(files, cache, monkeypatch, capsys, name):
    """kb.load and every command; the commit is recorded, and said."""
    with hub("owner/bert", files) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        folder = source.directory(name)
        assert read_model_json(folder).source == {"hub": "owner/bert", "revision": COMMIT}
        assert kb.load_tokenizer(name).size == kb.load_tokenizer(files).size
        assert source.check(name) == "hub"
    assert len([path for path in asked if path == "/api/models/owner/bert"]) <= 2  # of the model, and of its tokenizer
    assert f"owner/bert is commit {COMMIT[:12]} of the hub: read as bert/" in capsys.readouterr().err or folder


def test_a_tokenizer_alone_needs_no_weights(tmp_path, cache, monkeypatch):
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    with hub("alone", tmp_path / "alone") as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert kb.load_tokenizer("alone").size == 6
        with pytest.raises(kb.InputError, match="no model directory alone.*expected both: pickles are not fetched"):
            kb.load("alone")
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    with pytest.raises(kb.InputError, match="no tokenizer at other; and the hub did not give it: "):
        kb.load_tokenizer("other")


@pytest.mark.slow
def test_a_fine_tuning_by_name_records_the_commit(files, cache, tmp_path, monkeypatch):
    rows = [(f"a {i}", "pos" if i % 2 else "neg") for i in range(40)]
    with hub("owner/bert", files) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        kb.finetune("owner/bert", "classification", rows, out=tmp_path / "run", steps=1, length=8, quiet=True)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["source"] == {"hub": "owner/bert", "revision": COMMIT}
