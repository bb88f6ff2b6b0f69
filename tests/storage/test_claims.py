"""One command writes a place at a time."""

import os
import threading

import pytest

import kerasbert as kb
from kerasbert.cli import outputs
from kerasbert.cli.parser import command_line, run
from kerasbert.errors import InputError
from kerasbert.mobile import distill, prune
from kerasbert.storage.aside import claimed, sweep
from kerasbert.storage.files import digest
from kerasbert.storage.places import check_folder
from tests.support import python

TOLD = "is being written by another process: wait for it, or choose another place"


def elsewhere(call, *arguments, **options):
    """What another process, here another thread, is told that makes a call."""
    told = []

    def made():
        try:
            call(*arguments, **options)
        except InputError as error:
            told.append(str(error))

    thread = threading.Thread(target=made)
    thread.start()
    thread.join()
    return told


def other(path, several=False):
    """What another one is told of a place."""

    def claim():
        with claimed(path, several):
            pass

    return elsewhere(claim)


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


ROWS = {"train": [("a", "x"), ("b", "y")]}
CALLS = {  # functions that write `o`: what they read is not there, for the place is asked for before
    "pretrain": lambda out: kb.pretrain("bert/tiny", "records", steps=1, out=out),
    "finetune": lambda out: kb.finetune("run", task="classification", data=ROWS, out=out),
    "finetune_tasks": lambda out: kb.finetune_tasks("run", {"classification": ROWS}, out=out),
    "export": lambda out: kb.export("run", out),
    "export_checkpoint": lambda out: kb.export_checkpoint("run", out),
    "import_checkpoint": lambda out: kb.import_checkpoint("run", out=out),
    "save": lambda out: kb.save(None, out),
    "static_embedding": lambda out: kb.static_embedding("run", out),
    "train_tokenizer": lambda out: kb.train_tokenizer("a.txt", out=out),
    "Index.build": lambda out: kb.Index.build("run", ["a"], out),
    "compress": lambda out: kb.mobile.compress("run", out=out),
    "compress golden": lambda out: kb.mobile.compress("run", out="new", golden=out),
    "trim": lambda out: kb.mobile.trim("run", out=out, size=3),
    "distill": lambda out: distill.distill("run", "bert/tiny", ROWS, out=out),
    "prune.layers": lambda out: prune.layers("run", out=out, keep=[0]),
    "prune.heads": lambda out: prune.heads("run", ROWS, out=out, share=0.5),
    "prune.width": lambda out: prune.width("run", ROWS, out=out, share=0.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_refused_where_another_one_writes(tmp_path, monkeypatch, name):
    """Two programs wrote one place at the same time, and the later one had it."""
    monkeypatch.chdir(tmp_path)
    with claimed("o"):
        (told,) = elsewhere(CALLS[name], "o")
    assert told.removeprefix("classification: ") == f"o {TOLD}"
    assert not list(tmp_path.iterdir())


def test_a_function_keeps_its_place_while_it_works(tmp_path, monkeypatch):
    """The place of a call is free again after it, with an error or without; a look outside of a call keeps nothing."""
    monkeypatch.chdir(tmp_path)
    told = []

    def read_lines(*_, **__):
        told.extend(other("o"))
        raise InputError("no text")

    monkeypatch.setattr("kerasbert.data.vocabulary.read_lines", read_lines)
    with pytest.raises(InputError, match="no text"):
        kb.train_tokenizer("a.txt", out="o")
    assert told == [f"o {TOLD}"]
    assert not other("o")
    check_folder("o")
    assert not other("o")
    assert not list(tmp_path.iterdir())


def test_a_claim_in_a_model_directory_is_no_part_of_it(tmp_path):
    """A report that is written there meanwhile made it another model."""
    (tmp_path / "model.json").write_text("{}")
    before = digest(tmp_path)
    with claimed(tmp_path / "report.html"):
        assert digest(tmp_path) == before
