"""Two trainings of one run are kept apart."""

import os

import pytest

from kerasbert.errors import InputError
from kerasbert.training.run_lock import RunLock
from kerasbert.training.runs import open_run


def test_a_run_is_trained_by_one(tmp_path):
    out = tmp_path / "run"
    first = RunLock(out)  # nothing is there yet, and nothing is made
    assert not out.exists()
    RunLock(out).release()
    out.mkdir()
    first.take()
    first.take()
    with pytest.raises(InputError, match="is being trained by another process: wait for it, or choose another --out"):
        RunLock(out)
    first.release()
    RunLock(out).release()
    for place in (None, "gs://bucket/run", tmp_path / "nowhere" / "run"):
        RunLock(place).release()


def test_the_name_is_locked_whatever_folder_has_it(tmp_path):
    out, link = tmp_path / "run", tmp_path / "link"
    out.mkdir()
    link.symlink_to(out)
    lock = RunLock(out)
    with pytest.raises(InputError, match="is being trained"):
        RunLock(link)
    os.rename(out, tmp_path / "older")
    out.mkdir()
    lock.take()
    with pytest.raises(InputError, match="is being trained"):
        RunLock(out)
    RunLock(tmp_path / "older").release()
    lock.release()


def test_a_run_that_takes_the_place_of_another_one_goes_on_being_locked(tmp_path):
    out = tmp_path / "run"
    open_run(out, "pretrain", {"steps": 1})
    lock = RunLock(out)
    run = open_run(out, "pretrain", {"steps": 2}, overwrite=True)
    run.lock = lock
    with pytest.raises(InputError, match="is being trained"):
        RunLock(out)
    run.settle()
    with pytest.raises(InputError, match="is being trained"):
        RunLock(out)
    lock.release()
    RunLock(out).release()
