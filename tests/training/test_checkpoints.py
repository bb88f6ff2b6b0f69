"""Checkpoints: whole or not there, verified, the one before as a way back; written while training goes on."""

import json
import shutil
import threading
import types

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.storage import folders
from kerasbert.training import checkpoints as module
from kerasbert.training.checkpoints import Checkpoints


def save(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.begin(step, {"weights": {"w": np.full(50, step, "float32")}}, {"iterations": step})
    checkpoints.wait()


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def truncate(path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def another_number(path) -> None:
    path.write_text(path.read_text().replace('"iterations": 3', '"iterations": 2'))


@pytest.fixture(params=["local", "ram"])
def folder(request, tmp_path):
    """A run's directory, on the disk and in TensorFlow's file system in memory, which stands in for gs://."""
    return tmp_path if request.param == "local" else f"ram://{tmp_path.name}/run"


def test_saved_and_read_back_two_are_kept(folder):
    checkpoints = Checkpoints(folder)
    assert checkpoints.latest() is None
    save(checkpoints, 2, 3, 10)
    assert folders.names(checkpoints.folder) == ["step_10", "step_3"]
    found = Checkpoints(folder).latest()
    assert (found.step, found.state) == (10, {"iterations": 10})
    assert (found.tensors("weights").read("w") == 10).all()


def test_every_fourth_update_is_kept_for_good(folder):
    checkpoints = Checkpoints(folder, keep_every=4)
    save(checkpoints, 0, 2, 4, 6, 8, 10, 11, 12, 13, 14)
    assert folders.names(checkpoints.folder) == ["step_12", "step_13", "step_14", "step_4", "step_8"]


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        ("weights.safetensors", flip, "weights.safetensors has another sha256"),
        ("weights.safetensors", truncate, r"weights.safetensors has \d+ bytes instead of \d+"),
        ("weights.safetensors", lambda path: path.unlink(), "FileNotFoundError"),
        ("manifest.json", truncate, "JSONDecodeError"),
        ("manifest.json", lambda path: path.write_text("[" * 100_000), "RecursionError"),
        ("manifest.json", another_number, "manifest.json has another sha256"),
    ],
)
def test_a_damaged_one_falls_back_and_is_replaced(tmp_path, name, damage, problem):
    save(Checkpoints(tmp_path), 2, 3)
    damage(tmp_path / "checkpoints" / "step_3" / name)
    again = Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match=rf"step_3 is damaged \(.*{problem}.*\); trying the one before"):
        assert again.latest().step == 2
    save(again, 4)
    # the damaged one does not count as one of the two that are kept
    assert folders.names(again.folder) == ["step_2", "step_4"]


def test_at_an_address_without_its_manifest_it_does_not_exist():
    folder = "ram://bucket/unfinished"
    save(Checkpoints(folder), 2, 3)
    folders.tf.io.gfile.remove(f"{folder}/checkpoints/step_3/manifest.json")
    again = Checkpoints(folder)
    assert again.latest().step == 2
    again.remove_unfinished()
    assert folders.names(again.folder) == ["step_2"]


def test_a_damaged_one_at_an_address_falls_back():
    folder = "ram://bucket/damaged"
    save(Checkpoints(folder), 2, 3)
    path = f"{folder}/checkpoints/step_3/weights.safetensors"
    folders.write(path, folders.read(path)[:-4] + b"oops")
    with pytest.warns(UserWarning, match=r"step_3 is damaged \(weights.safetensors has another sha256\)"):
        found = Checkpoints(folder).latest()
    assert (found.tensors("weights").read("w") == 2).all()


def test_all_damaged_is_an_error_and_not_a_fresh_start(tmp_path):
    save(Checkpoints(tmp_path), 2, 3)
    for step in (2, 3):
        flip(tmp_path / "checkpoints" / f"step_{step}" / "weights.safetensors")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(InputError, match=r"every checkpoint in .* is damaged \(steps 2, 3\): put a good copy there"),
    ):
        Checkpoints(tmp_path).latest()


def test_training_goes_on_while_one_is_written_and_the_one_before_stays(tmp_path, monkeypatch):
    checkpoints, go, write = Checkpoints(tmp_path), threading.Event(), module._write
    save(checkpoints, 1)

    def slow(*arguments):
        write(*arguments)
        assert go.wait(60)

    monkeypatch.setattr(module, "_write", slow)
    weights = np.zeros(50, "float32")
    checkpoints.begin(2, {"weights": {"w": weights}}, {})
    # here the training would be; whoever is killed now finds the one before
    assert Checkpoints(tmp_path).latest().step == 1
    assert not (tmp_path / "checkpoints" / "step_2").exists()
    go.set()
    checkpoints.wait()
    assert Checkpoints(tmp_path).latest().step == 2


def test_an_error_of_the_thread_is_raised_where_the_training_is(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    checkpoints.begin(2, {}, {})
    checkpoints._thread.join()
    with pytest.raises(InputError, match=r"cannot write .*step_2: No space left on device"):
        checkpoints.check()
    assert folders.names(checkpoints.folder) == ["step_1"]
    checkpoints.begin(3, {}, {})
    with pytest.raises(InputError, match="cannot write"):
        checkpoints.wait()
    checkpoints.check()  # told once


def test_what_a_killed_process_left_is_removed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    shutil.copytree(tmp_path / "checkpoints" / "step_1", tmp_path / "checkpoints" / ".step_2.x7")
    (tmp_path / "checkpoints" / "best.safetensors").write_bytes(b"kept")
    checkpoints.remove_unfinished()
    assert folders.names(checkpoints.folder) == ["best.safetensors", "step_1"]


def test_the_manifest_says_what_there_is(tmp_path):
    save(Checkpoints(tmp_path), 3)
    manifest = json.loads((tmp_path / "checkpoints" / "step_3" / "manifest.json").read_text())
    assert manifest["step"] == 3
    assert manifest["files"].keys() == {"weights.safetensors"}


def test_a_disk_without_room_is_told_before_the_updates(tmp_path, monkeypatch):
    """As many as there are at once: two are kept, and one is written before the oldest goes."""
    checkpoints, variables = Checkpoints(tmp_path), [np.zeros((500, 300), "float32"), np.zeros(100_000, "float32")]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2_500_000))
    for updates, every in ((100, 0), (100, 100), (100, 50)):
        checkpoints.check_room(variables, updates, every)
    told = (
        r"checkpoints in .* will take 3\.0 MB \(3 of 1\.0\), and 2\.5 MB are free\. Free space or choose another place"
    )
    with pytest.raises(InputError, match=told):
        checkpoints.check_room(variables, 1000, 10)
    save(checkpoints, 1)
    checkpoints.check_room(variables, 1000, 10)  # one is there
    Checkpoints("ram://room/run").check_room(variables, 1000, 10)
    with pytest.raises(InputError, match=r"will take 3\.0 MB \(1 of 3\.0\)"):
        checkpoints.check_room(3 * variables, 5, 0)
