"""Children of a command import nothing from the current directory, where a data set may have brought a `json.py`."""

import ast
import json
import os
import subprocess

import pytest

import kerasbert as kb
from kerasbert import children
from kerasbert.errors import InputError
from tests import tiny
from tests.support import ROOT

PLANTED = ("json", "sys", "numpy", "tensorflow", "kerasbert", "sitecustomize", "string")


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A current directory whose modules leave a trace when they are imported."""
    folder = tmp_path / "download"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'a').write(__name__)\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path / "trace"


def ran(program: str, *arguments: str, **more) -> str:
    return subprocess.run(
        children.command(program, *arguments), capture_output=True, text=True, check=True, **more
    ).stdout


def test_a_child_runs_nothing_of_the_current_directory(planted):
    """With and without the paths of the parent, in which "" stands for the current directory."""
    program = "import json, string, sys, kerasbert.answers; print(json.dumps(sys.argv[1:]))"
    for paths in (None, ["", str(ROOT)]):
        assert json.loads(ran(program, "a", "b", env=children.environment(paths))) == ["a", "b"]
    assert not planted.exists()


def test_a_child_ends_with_a_parent_that_was_killed():
    """Those of `kerasbert lab` trained on alone for minutes, beside those of the same command that went on."""
    child = "import os, time; from kerasbert.children import end_with_parent; end_with_parent(0.02)\n"
    child += "print(os.getpid(), flush=True); time.sleep(60)"
    parent = "import subprocess, sys, time; from kerasbert import children\n"
    parent += "subprocess.Popen(children.command(sys.argv[1])); time.sleep(60)"
    command, environment = children.command(parent, child), children.environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == b""  # the child has it open while it runs


def test_an_empty_entry_of_pythonpath_is_not_handed_on(planted, monkeypatch):
    """`PYTHONPATH=:elsewhere`, which shells write easily, means the current directory to Python."""
    monkeypatch.setenv("PYTHONPATH", ":/nowhere")
    environment = children.environment()
    assert environment["PYTHONPATH"].split(":") == [str(ROOT), "/nowhere"]
    ran("import json", env=environment)
    assert not planted.exists()


def test_launches_are_measured_among_planted_modules(planted, monkeypatch):
    """`benchmark` starts the runtime in fresh processes; a child that fails gives no row, one that runs leaves no trace."""
    from kerasbert.mobile import launch_times

    monkeypatch.setattr(
        launch_times, "CHILD", "import json, string, kerasbert.answers\nprint(json.dumps([1.0, 2.0, 3.0]))"
    )
    found = launch_times.launches(ROOT / "x.tflite", "text", {"threads": 1, "plugin": [], "delegate": "xnnpack"})
    assert found["cold"] == {"load_ms": 1.0, "first_answer_ms": 2.0, "peak_memory_mb": 3.0}
    assert not planted.exists()


def test_records_are_made_by_processes_among_planted_modules(planted):
    """The program of `data --processes N` imports json before it has the parent's paths."""
    from kerasbert.data import processes

    assert processes.START.startswith("import json")
    program = processes.START.replace("processes.serve(int(sys.argv[1]))", "print('served')")
    assert ran(program, "3", json.dumps([*__import__("sys").path[1:]])).strip() == "served"
    assert not planted.exists()


@pytest.mark.parametrize("folder", ["kerasbert", "mobile", "tpu_scripts"])
def test_no_child_is_started_another_way(folder):
    """`sys.executable` stands in `children` alone."""
    found = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.List | ast.Tuple) and any(
                isinstance(each, ast.Attribute) and each.attr == "executable" for each in node.elts
            ):
                found.add(str(path.relative_to(ROOT)))
    assert found == ({"kerasbert/children.py"} if folder == "kerasbert" else set())


def test_a_fork_of_a_process_that_computed_says_so_and_does_not_wait_for_ever(monkeypatch):
    """The threads that compute are not in it: load and predict hung there without a word."""
    monkeypatch.setattr(children, "_COMPUTES", [])
    children.computing()
    children.computing()
    monkeypatch.setattr(children, "_COMPUTES", [os.getpid() + 1])
    with pytest.raises(InputError, match='fork of one in which TensorFlow has computed.*get_context."spawn".'):
        children.check_fork()
    with pytest.raises(InputError, match="fork of one"):
        kb.load("nowhere")


def test_a_path_that_is_none_computes_nothing(monkeypatch, tmp_path):
    """A fork after a wrong path was refused, although nothing had computed."""
    monkeypatch.setattr(children, "_COMPUTES", [])
    for call in (kb.load, lambda path: kb.predict(path, ["a"]), lambda path: kb.load(path, base=tmp_path / "b")):
        with pytest.raises(InputError):
            call(tmp_path / "nowhere")
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(InputError):
        kb.load(tmp_path)
    assert not children._COMPUTES
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    kb.save(encoder, tmp_path / "run")
    kb.load(tmp_path / "run")
    assert [os.getpid()] == children._COMPUTES
