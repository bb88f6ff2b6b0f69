"""A replacement that is killed at every step it makes: the old or the new is whole, at once or after the next start."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kerasbert.errors import InputError
from kerasbert.storage import aside, files, places

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of processes with threads
CALLS = ("mkdir", "open", "rename", "replace", "unlink", "rmdir", "fsync", "close", "scandir")


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """No disk is waited for: what a kill leaves is the same."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def killed(work: Callable[[], None], number: int, after: bool) -> bool:
    """Do the work in a child that is killed at its n-th call of the system, before or after it; whether it was."""
    child = os.fork()
    if child == 0:
        left = number

        def wrapped(call: Callable) -> Callable:
            def counted(*arguments, **named):
                nonlocal left
                left -= 1
                if left == 0 and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    return call(*arguments, **named)
                finally:
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            return counted

        try:
            for name in CALLS:
                setattr(os, name, wrapped(getattr(os, name)))
            work()
        except BaseException:
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def folder(path: Path, content: str, count: int = 6) -> None:
    """A folder of ours, all of whose files hold the same."""
    with files.new_directory(path, replace=True) as new:
        (new / "part").mkdir()
        for i in range(count):
            (new / f"{i}.txt").write_text(content)
            (new / "part" / f"{i}.txt").write_text(content)


def whole(path: Path, count: int = 6) -> str | None:
    """What a folder of `folder` holds; None where there is none."""
    if not path.exists():
        return None
    held = [each.read_text() for each in path.rglob("*.txt")]
    assert len(held) == 2 * count
    assert len(set(held)) == 1
    assert not places.foreign(path)
    return held[0]


def exchanges(folder: Path) -> bool:
    """Whether two folders can change their names here."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    can = aside._exchanged(folder / "a", folder / "b")
    for name in ("a", "b"):
        (folder / name).rmdir()
    return can


def test_whoever_looks_finds_one_of_them(tmp_path):
    """There was none for an instant: `no model directory` of a model that was being replaced."""
    if not exchanges(tmp_path):
        pytest.skip("needs a system whose folders can change their names")
    folder(tmp_path / "out", "old", 1)
    absent, done = [], threading.Event()

    def look():
        while not done.is_set():
            absent.extend([1] * (not (tmp_path / "out" / "0.txt").exists()))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(100):
        folder(tmp_path / "out", str(number), 1)
    done.set()
    thread.join()
    assert not absent
    assert whole(tmp_path / "out", 1) == "99"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.full
@pytest.mark.parametrize("at_once", [True, False])
def test_folders(tmp_path, monkeypatch, at_once):
    """Old or new under the name or aside; after the next start under the name, and nothing else is left."""
    if at_once and not exchanges(tmp_path):
        pytest.skip("needs a system whose folders can change their names")
    if not at_once:
        monkeypatch.setattr(aside, "_exchanged", lambda new, path: False)
    path, kills, aside_count, seen = tmp_path / "out", 0, 0, set()
    for after in (False, True):
        number = 1
        while True:
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
            folder(path, "old")
            if not killed(lambda: folder(path, "new"), number, after):
                break
            kills, number = kills + 1, number + 1
            aside_count += whole(path) is None
            places.check_folder(path, replace=True)  # the next start
            seen.add(whole(path))
            assert os.listdir(tmp_path) == ["out"], number
    assert seen == {"old", "new"}
    assert kills >= 200
    assert (aside_count == 0) is at_once  # the instants between the two renames


@pytest.mark.slow
def test_new_folders_and_files(tmp_path):
    """A kill while something is made for the first time, or a file is replaced."""
    kills = 0
    works = {
        "made": (lambda: folder(tmp_path / "made", "new"), lambda: whole(tmp_path / "made"), {None, "new"}),
        "file": (
            lambda: files.write_atomic(tmp_path / "file", "new"),
            lambda: (tmp_path / "file").read_text(),
            {"old", "new"},
        ),
    }
    for name, (work, held, allowed) in works.items():
        for after in (False, True):
            number = 1
            while True:
                shutil.rmtree(tmp_path)
                tmp_path.mkdir()
                if name == "file":
                    (tmp_path / "file").write_text("old")
                if not killed(work, number, after):
                    break
                kills, number = kills + 1, number + 1
                aside.sweep(tmp_path)
                found = held()
                assert found in allowed
                assert os.listdir(tmp_path) == [name] * (found is not None)
    assert kills >= 50, kills


def test_living_ones_are_left_alone(tmp_path):
    """What another process is writing is neither swept nor put back; what is not ours is not looked at."""
    (tmp_path / ".thesis.new").write_text("mine")
    with files.new_directory(tmp_path / "out") as new:
        (new / "x.txt").write_text("x")
        if (child := os.fork()) == 0:
            aside.sweep(tmp_path)
            os._exit(0 if new.exists() else 1)
        assert os.waitpid(child, 0)[1] == 0
        aside.sweep(tmp_path)
        assert new.exists()
    assert sorted(os.listdir(tmp_path)) == [".thesis.new", "out"]


def test_the_next_version_is_the_one_that_is_next_when_it_is_whole(tmp_path):
    """Two that are written at once get a number each; names that are no version's, and a file of a number, are left alone."""
    base = tmp_path / "base"
    for name in ("0003", "notes", "v9", "9" * 19):
        (base / name).mkdir(parents=True)
    (base / "5").write_text("mine")
    with files.new_version(base) as one:
        (one.new / "x.txt").write_text("one")
        with files.new_version(base) as two:
            (two.new / "x.txt").write_text("two")
        assert two.path == base / "6"
    assert one.path == base / "7"
    assert [(base / name / "x.txt").read_text() for name in ("6", "7")] == ["two", "one"]
    with pytest.raises(InputError, match="no room"), files.new_version(base):
        raise InputError("no room")
    assert sorted(os.listdir(base)) == ["0003", "5", "6", "7", "9" * 19, "notes", "v9"]
    assert (base / "5").read_text() == "mine"


def test_two_at_once(tmp_path):
    """One wins, the other gets one line; with --overwrite both may, one after the other, and the folder is whole."""
    for replace in (False, True):
        path = tmp_path / f"out{replace}"
        if replace:
            folder(path, "old")
        code = (
            "import sys, time; from pathlib import Path; from kerasbert.storage import files\n"
            "from tests.storage.test_replacing import folder\n"
            "path, content, replace = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == 'True'\n"
            "try:\n"
            "    with files.new_directory(path, replace) as new:\n"
            "        (new / 'part').mkdir()\n"
            "        for i in range(6): (new / f'{i}.txt').write_text(content); (new / 'part' / f'{i}.txt').write_text(content)\n"
            "        time.sleep(0.3)\n"
            "except ValueError as error: sys.exit(f'error: {error}')\n"
        )
        root = Path(__file__).resolve().parents[2]
        begin = [sys.executable, "-c", code, str(path)]
        both = [
            subprocess.Popen([*begin, content, str(replace)], cwd=root, stderr=subprocess.PIPE, text=True)
            for content in ("a", "b")
        ]
        said = [(each.communicate()[1], each.returncode) for each in both]
        assert sum(status == 0 for _, status in said) >= 1, said
        lines = [line for line, status in said if status]
        assert all(line.count("\n") == 1 and ("is kept" in line or "exists already" in line) for line in lines), said
        assert whole(path) in ("a", "b")
    assert sorted(os.listdir(tmp_path)) == ["outFalse", "outTrue"]


def test_failure_within_leaves_the_old_one(tmp_path):
    folder(tmp_path / "out", "old")

    def fails(error: type[Exception] | None) -> None:
        with files.new_directory(tmp_path / "out", replace=True) as new:
            (new / "x").write_text("new")
            if error:
                raise error("lost")
            (tmp_path / "out" / "thesis").write_text("written while it was computed")

    with pytest.raises(KeyError, match="lost"):
        fails(KeyError)
    with pytest.raises(InputError, match="holds thesis, which is not kerasbert's"):
        fails(None)
    (tmp_path / "out" / "thesis").unlink()
    assert whole(tmp_path / "out") == "old"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("rounds", [12])
def test_random_kills(tmp_path, rounds):
    """SIGKILL at random instants of a process that replaces a folder again and again."""
    path = tmp_path / "out"
    folder(path, "old")
    for i in range(rounds):
        if (child := os.fork()) == 0:
            while True:
                folder(path, f"{i}")
        time.sleep(0.003 + 0.0037 * i)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        places.check_folder(path, replace=True)
        assert whole(path) is not None
        assert os.listdir(tmp_path) == ["out"]


def test_a_file_may_be_deleted_after_each_look_at_it(tmp_path, monkeypatch):
    """Another process deletes what is replaced, and gives its name to what it writes, between any two calls of ours."""
    path, look = tmp_path / "file", os.stat
    path.write_text("old")

    def then_gone(name, *arguments, **named):
        found = look(name, *arguments, **named)
        if os.fspath(name) == os.fspath(path):
            path.unlink()
        return found

    monkeypatch.setattr(os, "stat", then_gone)
    files.write_atomic(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "new"
    begun = tmp_path / ".out.0123456789ab.kerasbert-new"
    begun.symlink_to(tmp_path / "gone")  # seen in the folder, and no longer there
    assert aside.newest(tmp_path / "out") is None
