"""Damaged folders: refused in one line, or read as what was written; never another model or other data where a hash tells."""

import hashlib
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from kerasbert.errors import InputError
from tests import tiny
from tests.hostile import fuzz, mutations


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with `model`, `hf`, `tf1`, `records-pairs` and the runs `run` and `run-2`."""
    import kerasbert as kb
    from kerasbert import registry
    from kerasbert.checkpoints.directory import built, save_model

    folder = tmp_path_factory.mktemp("good")
    family, base = registry.find("bert/tiny")
    tokenizer = tiny.tokenizer()
    encoder = built(family, base.derive(tiny.SPEC | {"embeddings.vocabulary": tokenizer.size}), "bert/tiny")
    draw = np.random.default_rng(0)
    head = {"kernel": draw.normal(size=(16, 2)).astype("float32"), "bias": np.zeros(2, "float32")}
    task = {"kind": "classification", "inputs": "text"}
    parts = {"encoder": encoder, "name": "bert/tiny", "tokenizer": tokenizer}
    save_model(folder / "model", heads={"classifier": head}, task=task, labels=["neg", "pos"], **parts)
    kb.export_checkpoint(folder / "model", folder / "hf")
    kb.export_checkpoint(folder / "model", folder / "tf1", "tf1")
    return folder


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Shards of several blocks."""
    from kerasbert.data import write_records

    folder = tmp_path_factory.mktemp("records")
    corpus = tiny.corpus(folder / "corpus.txt", documents=400)
    write_records([corpus], tiny.tokenizer(), folder / "records", length=24)
    return folder / "records"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run stopped after four updates, and the same after two."""
    from tests.hostile import resuming

    folder = tmp_path_factory.mktemp("runs")
    run = resuming.begin(folder / "run")
    before = shutil.copytree(run, folder / "before")
    shutil.rmtree(before / "checkpoints/step_4")
    return run, before


def check(table, lines, hashed=()):
    """Nothing bad, and nothing other in the groups in which a hash can tell."""
    assert sum(counts["error"] for counts in table.values())
    for group, counts in table.items():
        assert not any(counts[outcome] for outcome in fuzz.BAD), lines
        assert group not in hashed or not counts["other"], lines


def without_hashes(model: Path, draw: random.Random) -> None:
    """As a version of before wrote the directory."""
    try:
        content = json.loads((model / "model.json").read_text())
        kept = {name: value for name, value in content.items() if name not in ("files", "sha256")}
        (model / "model.json").write_text(json.dumps(kept))
    except (ValueError, AttributeError, RecursionError):
        pass  # damaged beyond that


def model_directory(worker, good, count):
    names = ["weights.safetensors", "model.json", "tokenizer/vocab.txt", "tokenizer/tokenizer.json"]
    place, half = good / "model", count // 2
    cases = [
        *mutations.folders(place, names, half, "hashes"),
        *mutations.folders(place, names, count - half, "no hashes", without_hashes),
    ]
    table, lines = fuzz.run(worker, "model_directory", place, cases)
    check(table, lines, hashed=["hashes"])


def hf(worker, good, count):
    names = ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    table, lines = fuzz.run(worker, "hf", good / "hf", mutations.folders(good / "hf", names, count))
    check(table, lines)


def tf1(worker, good, count):
    names = [f"bert_model.ckpt.{end}" for end in ("index", "data-00000-of-00001")]
    names += ["bert_config.json", "vocab.txt"]
    table, lines = fuzz.run(worker, "tf1", good / "tf1", mutations.folders(good / "tf1", names, count))
    check(table, lines, hashed=names[:2])


def anew(run: Path, draw: random.Random | None = None) -> None:
    """Give a checkpoint the hashes of the files as they are."""
    place = run / "checkpoints/step_4/manifest.json"
    try:
        content = json.loads(place.read_text())
        for name, entry in content["files"].items():
            data = (place.parent / name).read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        content.pop("sha256", None)
        said = json.dumps(content, sort_keys=True).encode()
        place.write_text(json.dumps(content | {"sha256": hashlib.sha256(said).hexdigest()}))
    except (ValueError, TypeError, AttributeError, KeyError, OSError, RecursionError):
        pass  # damaged beyond that


def both(run: Path, draw: random.Random) -> None:
    """Damage the checkpoint before, too."""
    place = run / "checkpoints/step_2" / draw.choice(["weights.safetensors", "manifest.json"])
    place.write_bytes(mutations.damaged(place.read_bytes(), draw)[1])


def run_checkpoint(worker, runs, count):
    files = ["weights.safetensors", "optimizer.safetensors", "manifest.json"]
    newest = [f"checkpoints/step_4/{name}" for name in files]
    others = ["run.json", "metrics.jsonl", "checkpoints/step_2/weights.safetensors", "checkpoints/step_2/manifest.json"]
    cases = [
        *mutations.folders(runs[0], newest, count // 2, "newest"),
        *mutations.folders(runs[0], newest, count // 10, "both", both),
        *mutations.folders(runs[0], others, count // 10, "others"),
        *mutations.folders(runs[0], newest, count - count // 2 - count // 5, "digest anew", anew),
    ]
    table, lines = fuzz.run(worker, "run_checkpoint", runs, cases)
    check(table, lines, hashed=("newest", "both", "others"))


def damaged_records(worker, records, count):
    from kerasbert.data.records import Records

    shards = Records(records).shards
    assert shards[0].blocks > 2
    names = [shards[0].file, "manifest.json"]
    table, lines = fuzz.run(worker, "records", records, mutations.folders(records, names, count))
    check(table, lines, hashed=names)


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"means": {"loss": 5}}, {"iterations": "x"}, {"skipped": None}, {"data": []}])
def test_a_checkpoint_that_does_not_fit_the_run_is_refused_in_one_line(runs, tmp_path, changed):
    from tests.hostile import resuming

    run = shutil.copytree(runs[0], tmp_path / "run")
    place = run / "checkpoints/step_4/manifest.json"
    content = json.loads(place.read_text())
    place.write_text(json.dumps(content | {"state": content["state"] | changed}))
    anew(run)
    with pytest.raises(
        InputError, match=r"^checkpoint .*step_4 (does not fit this run \(|reads its data at \[\])[^\n]*$"
    ):
        resuming.resume(run)


FORMATS = {
    "run checkpoint": (run_checkpoint, "tensorflow_worker", "runs"),
    "model directory": (model_directory, "tensorflow_worker", "good"),
    "HF folder": (hf, "tensorflow_worker", "good"),
    "TF1 checkpoint": (tf1, "tensorflow_worker", "good"),
    "records": (damaged_records, "worker", "records"),
}


def measure(name, request, count):
    """Mutations of a format."""
    function, worker, files = FORMATS[name]
    function(request.getfixturevalue(worker), request.getfixturevalue(files), count)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_slice_of_damaged_folders(name, request):
    measure(name, request, 30)


@pytest.mark.full
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_folders(name, request):
    measure(name, request, 500)
