"""One command writes a place at a time."""

import os
import threading

import pytest

from kerasbert.cli import outputs
from kerasbert.cli.parser import command_line, run
from kerasbert.errors import InputError
from kerasbert.storage.aside import claimed, sweep
from tests.support import python

TOLD = "is being written by another command: wait for it, or choose another place"


def other(path, several=False):
    """What another command, here another thread, is told of a place."""
    told = []

    def claim():
        try:
            with claimed(path, several):
                pass
        except InputError as error:
            told.append(str(error))

    thread = threading.Thread(target=claim)
    thread.start()
    thread.join()
    return told


def test_a_place_is_claimed_by_one(tmp_path):
    out = tmp_path / "new" / "folder" / "o.csv"
    with claimed(out), claimed(out):
        assert other(out) == [f"{out} {TOLD}"]
        assert other(out, several=True) == [f"{out} {TOLD}"]
        assert not other(tmp_path / "p.csv")
        sweep(out.parent)
        assert other(out)
    assert not list(tmp_path.iterdir())
    assert not other(out)


def test_a_link_is_the_place_that_it_leads_to(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with claimed(tmp_path / "run"):
        assert other(tmp_path / "link")


def test_a_run_on_several_machines_is_one(tmp_path):
    with claimed(tmp_path / "run", several=True):
        assert not other(tmp_path / "run", several=True)
        assert other(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_command_claimed_is_free(tmp_path):
    code = "import os, sys; from kerasbert.storage.aside import claimed; c = claimed(sys.argv[1]); c.__enter__(); os._exit(9)"
    assert python("-c", code, str(tmp_path / "o"), check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    with claimed(tmp_path / "o"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["folder", "table", "records", "within", "run"])
def test_a_second_command_is_refused(tmp_path, monkeypatch, capsys, kind):
    """Both ended with status 0, and the later one had the place."""
    monkeypatch.chdir(tmp_path)

    def add(declare):
        made = declare("do", lambda options: os.write(1, b"") and None, "does")
        outputs.writes(made.add_argument("--out", metavar="DIR"), kind)

    module = type("Module", (), {"add": staticmethod(add)})
    with claimed("o", several=kind == "run"):
        told = []
        thread = threading.Thread(
            target=lambda: told.append(
                run(lambda: command_line("p", "d", {"do": "p do"}, [module]), ["do", "--out", "o"])
            )
        )
        thread.start()
        thread.join()
    refused = kind not in ("within", "run")
    assert told == [2 if refused else 0]
    assert (TOLD in capsys.readouterr().err) is refused


def test_a_place_that_cannot_be_is_told_first(tmp_path, monkeypatch):
    """Nothing is made beside it."""
    monkeypatch.chdir(tmp_path)
    made = []

    def add(declare):
        command = declare("do", lambda options: made.append(1), "does")
        outputs.writes(command.add_argument("--out", metavar="DIR"), "folder")

    module = type("Module", (), {"add": staticmethod(add)})
    for place in ("", ".", "/", "/dev/null"):
        assert run(lambda: command_line("p", "d", {"do": "p do"}, [module]), ["do", "--out", place]) == 2
    assert not made
    assert not list(tmp_path.iterdir())
