"""A run with --overwrite keeps the old one until it has a complete checkpoint of its own."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.errors import InputError, NonFinite
from kerasbert.storage import places
from kerasbert.testing.battery import eagerly
from kerasbert.training import runs
from kerasbert.training.checkpoints import Checkpoints
from kerasbert.training.runs import Run, open_run
from tests import tiny
from tests.storage.test_replacing import killed
from tests.support import often
from tests.training.test_pretrain import ARGUMENTS

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # of processes with threads
    pytest.mark.filterwarnings("ignore:Even though the `tf.config"),
]


def state(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def begun(out: Path, settings: dict, overwrite: bool = False) -> Run:
    """A run with the files of two checkpoints, as the trainer writes them, without what it learns."""
    run = open_run(out, "pretrain", settings, overwrite=overwrite)
    run.log({"step": 1})
    checkpoints = Checkpoints(run.directory)
    for step in (0, 1, 2):
        checkpoints.save(step, {"weights": {"w": np.full(2, step, "float32")}}, {"data": 1})
        if step:
            run.settle()
            checkpoints.move(run.directory)
    run.finish()
    return run


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.full
def test_kills(tmp_path):
    """At every call of the system: the old run is whole, or the new one with a checkpoint to go on from."""
    old, out, kills, seen = tmp_path / "old", tmp_path / "runs" / "x", 0, set()
    begun(old, {"steps": 5, "seed": 0})
    before = state(old)
    for after in (False, True):
        number = 1
        while True:
            shutil.rmtree(out.parent, ignore_errors=True)
            shutil.copytree(old, out)
            if not killed(lambda: begun(out, {"steps": 5, "seed": 1}, overwrite=True), number, after):
                break
            kills, number = kills + 1, number + 3
            runs.check_place(out)  # the next start
            seed = json.loads((out / "run.json").read_text())["settings"]["seed"]
            seen.add(seed)
            if seed == 0:
                assert state(out) == before
            else:
                assert open_run(out, "pretrain", {"steps": 5, "seed": 1}).directory == out
                assert Checkpoints(out).latest().step in (1, 2)
            assert not places.foreign(out)
            assert os.listdir(out.parent) == ["x"]
    assert seen == {0, 1}
    assert kills > 100


def test_what_is_not_ours_in_a_run(tmp_path):
    begun(tmp_path / "run", {"steps": 5})
    for name in (
        "thesis.txt",
        "checkpoints/step_2/thesis.txt",
        "tensorboard/mine",
        "tokenizer/notes",
        "dumps/x",
        ".mine",
    ):
        path = tmp_path / "run" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        with pytest.raises(InputError, match=f"holds {name}, which is not kerasbert's: it is kept"):
            open_run(tmp_path / "run", "pretrain", {"steps": 5}, overwrite=True)
        path.unlink()
    run = open_run(tmp_path / "run", "pretrain", {"steps": 6}, overwrite=True)
    (tmp_path / "run" / "thesis.txt").write_text("written since")
    with pytest.raises(InputError, match="holds thesis.txt"):
        run.settle()
    run.abandon()
    assert os.listdir(tmp_path) == ["run"]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return tiny.records(folder)


def train(records, out, **more):
    arguments = ARGUMENTS | {"steps": 4, "save_every": 2, "quiet": True, "overwrite": True}
    with eagerly():
        return kb.pretrain("bert/tiny", records, out=out, **arguments | more)


@pytest.fixture(scope="module")
def whole(records, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    train(records, out, seed=0)
    return out


@pytest.mark.parametrize("when", often((1, 2, 3), 3))
def test_interrupted(records, whole, tmp_path, monkeypatch, when):
    """Before its first checkpoint a run that fails leaves the old one to the byte; after it, one to go on from."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    log = Run.log

    def dying(self, record):
        log(self, record)
        assert (self.directory == out) == (record["step"] > 2)
        if record["step"] == when:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", dying)
        with pytest.raises(RuntimeError, match="killed"):
            train(records, out, seed=1, log_every=1)
    assert os.listdir(tmp_path) == ["run"]
    if when < 3:
        assert state(out) == state(whole)
    train(records, out, seed=1, log_every=1, overwrite=when < 3)
    train(records, tmp_path / "left-alone", seed=1, log_every=1)
    assert (out / "weights.safetensors").read_bytes() == (tmp_path / "left-alone" / "weights.safetensors").read_bytes()
    assert [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4]
    assert not places.foreign(out)


@pytest.mark.slow
def test_not_finite(records, whole, tmp_path):
    """The dump is kept in a folder beside the old run, which has its place."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    with pytest.raises(NonFinite, match=r"kerasbert replay .*run\.failed/dumps/step_"):
        train(records, out, seed=1, learning_rate=1e30, clip=0.0, warmup=0)
    assert state(out) == state(whole)
    assert sorted(os.listdir(tmp_path)) == ["run", "run.failed"]


@pytest.mark.parametrize(("wrong", "said"), [
    ({"steps": 0}, "steps must be a whole number of at least 1"),
    ({"steps": -3}, "steps must be a whole number of at least 1"),
    ({"batch": 999999}, "batch is 999999, the training rows are .*: lower --batch"),
    ({"out": "/proc/run"}, "cannot write /proc/run"),
    ({"out": "."}, "is the current directory"),
])  # fmt: skip
def test_refused_before_anything_is_touched(records, whole, tmp_path, wrong, said, monkeypatch):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        train(records, **{"out": out, "seed": 1} | wrong)
    assert state(out) == state(whole)
    assert os.listdir(tmp_path) == ["run"]


def test_fine_tuning_is_refused_early(whole, tmp_path, capsys):
    data = tiny.labelled(tmp_path / "data.tsv")
    line = ["finetune", whole, "--task", "classification", "--data", data, "--out", tmp_path / "out"]
    for more, said in {
        ("--epochs", "0"): "epochs must be a whole number of at least 1. Received: 0",
        ("--steps", "0"): "steps must be a whole number of at least 1. Received: 0",
        ("--batch", "99999"): "lower --batch",
        ("--batch", "0"): "batch must be a whole number of at least 1",
    }.items():
        assert cli.main([*map(str, line), *more, "--quiet"]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_places_of_a_run(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="is what is read"):
        runs.check_place(whole, overwrite=True, inputs=[str(whole)])
    with pytest.raises(InputError, match="holds .*step_4, which is read: it is kept"):
        runs.check_place(whole, overwrite=True, inputs=[{"train": whole / "checkpoints" / "step_4"}])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("mine")
    with pytest.raises(InputError, match="holds something that is not a run"):
        runs.check_place("mine", overwrite=True)
