"""Folders for a while: gone with their process, and after a kill with the next one."""

import os
import re
import signal
import subprocess
import sys

import pytest

from kerasbert.storage import aside, scratch
from tests.support import ROOT, python

MADE = (
    "from kerasbert.storage import scratch; import os, sys; made = scratch.made(); (made / 'x').write_text('x'); "
    "print(made, flush=True)"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A TMPDIR of its own."""
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    scratch.sweep.cache_clear()
    yield tmp_path
    scratch.sweep.cache_clear()


def test_a_folder_goes_with_its_block_or_its_process(place):
    with scratch.folder() as one:
        assert list(place.iterdir()) == [place / os.path.basename(one)]
        assert (place / os.path.basename(one)).stat().st_mode & 0o777 == 0o700
    scratch.remove(scratch.made())
    python("-c", MADE, TMPDIR=str(place))
    assert not list(place.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_one(place):
    """A SavedModel of the model's size stayed for ever; a living one's, and what has another name, stays."""
    python("-c", f"{MADE}; os._exit(9)", check=False, TMPDIR=str(place))
    (left,) = place.iterdir()
    mine = place / "kerasbert-temporary.mine"
    mine.mkdir()
    command = [sys.executable, "-c", f"{MADE}; sys.stdin.read()"]
    about = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(place)}, **about) as living:
        held = place / os.path.basename(living.stdout.readline().strip())
        with scratch.folder():
            assert not left.exists()
            assert (held / "x").exists()
        living.send_signal(signal.SIGKILL)
    assert held.exists()
    assert mine.exists()


def test_one_that_a_sweep_took_before_it_was_locked_is_made_again(place, monkeypatch):
    make = scratch.tempfile.mkdtemp
    taken = []

    def mkdtemp(**options):
        path = make(**options)
        if not taken:
            taken.append(path)
            aside.remove_left(scratch.Path(path))
        return path

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", mkdtemp)
    with scratch.folder() as made:
        assert os.path.isdir(made)
        assert made not in taken


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_that_ends_leaves_its_parents(place):
    code = f"{MADE}; child = os.fork(); child or sys.exit(); os.waitpid(child, 0); print((made / 'x').exists())"
    assert python("-c", code, TMPDIR=str(place)).stdout.split()[-1] == "True"
    assert not list(place.iterdir())


def test_temporary_folders_are_made_here():
    """`tempfile` makes what nobody sweeps: elsewhere beside an output, or in a tool of the developers'."""
    found = []
    for folder in ("kerasbert", "mobile"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if re.search(r"TemporaryDirectory\(\)|mkdtemp|TemporaryDirectory\(prefix=\S+\)", path.read_text("utf-8")):
                found.append(path.relative_to(ROOT).as_posix())
    assert found == ["kerasbert/storage/scratch.py", "mobile/native/android.py", "mobile/native/page.py"]
