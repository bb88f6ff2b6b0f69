"""kerasbert-mobile: output for people and machines, errors in one line with status 2."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

import kerasbert
from kerasbert import registry
from kerasbert.cli.parser import decoding
from kerasbert.data.reading import Stream
from kerasbert.errors import InputError
from kerasbert.mobile import cli, launch_times, samples
from kerasbert.mobile.cli import main
from kerasbert.tasks import tables
from tests.mobile.conftest import rows
from tests.support import ROOT, python


def test_run_prints_one_object_per_text(float_file, capsys):
    assert main(["run", str(float_file[0]), "a good film", "very bad", "--json", "--no-cache"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert sum(lines[0]["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert lines[0]["score"] == max(lines[0]["scores"].values())


def test_run_reads_lines(float_file, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a good film\n\nbad \xff\r\n")))
    assert main(["run", str(float_file[0]), "--no-cache"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[-1] for row in rows] == ["a good film", "", "bad \ufffd"]  # the third answer is the third line's
    assert {row[0] for row in rows} <= {"negative", "neutral", "positive", ""}


@pytest.mark.parametrize("stdin", [True, False])
@pytest.mark.parametrize("json_option", [True, False])
def test_a_text_that_cannot_be_read_ends_no_service(stdin, json_option, float_file, capsys, monkeypatch):
    """It was told as "FILE carries a damaged tokenizer", and the lines behind it had no answer."""
    from kerasbert.answers.classification import ClassificationKind

    packed = ClassificationKind.rows

    def rows(kind, tokenizer, parts, length):
        if parts[0] == "no mask":
            raise InputError("'no mask' has no mask, expected [MASK]")
        return packed(kind, tokenizer, parts, length)

    monkeypatch.setattr(ClassificationKind, "rows", rows)
    texts = ["a good film", "no mask", "", "bad", " \u200b"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    options = [*(() if stdin else texts), "--no-cache", *(["--json"] if json_option else ())]
    assert main(["run", str(float_file[0]), *options]) == 2
    out, err = capsys.readouterr()
    line = f"{'line' if stdin else 'text'} 2: 'no mask' has no mask, expected [MASK]"
    if json_option:
        found = [json.loads(each) for each in out.splitlines()]
        assert [found[1], found[2], found[4]] == [{"error": line}, None, None]
        assert {"label"} <= found[0].keys() & found[3].keys()
    else:
        assert [bool(each) for each in out.splitlines()] == [True, False, False, True, False]
    assert err.splitlines() == [f"error: {line}", "2 of 5 texts hold nothing to read and have no answer: 3, 5"]


def test_run_answers_a_line_before_the_next_one_comes(float_file):
    command = [sys.executable, "-m", "kerasbert.mobile.cli", "run", float_file[0], "--no-cache"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        for line in (b"a good film\n", b"\n", b"bad\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()  # of nothing to read an empty line
            assert answer == line if line == b"\n" else answer.endswith(b"\t" + line)
        process.stdin.close()
        assert process.wait() == 0


def test_options_stand_between_texts(float_file, tmp_path, capsys):
    """`run FILE --threads 2 TEXT` was "unrecognized arguments: TEXT"; the n-th line is the n-th text's, of two lines too."""
    for options in (["--threads", "2"], ["--cache", str(tmp_path)]):
        assert main(["run", str(float_file[0]), *options, "a good film", "--json", "bad"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["run", str(float_file[0]), "a good\nfilm", "bad"]) == 0
    assert [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()] == ["a good film", "bad"]
    asked = cli.parser().parse_args(["run", "FILE", "--pair", "A", "B"])
    assert (asked.pair, asked.texts) == (True, ["A", "B"])


def test_a_pair_is_two_texts_or_a_line_with_a_tab(tmp_path, monkeypatch, capsys):
    """Of `--texts` of `compress` and `benchmark` too; a blank line is a pair without text, and keeps its place."""
    path = tmp_path / "pairs.txt"
    path.write_text("a\tb\n\nc\td\n")
    assert samples.read(path, pair=True) == [("a", "b"), ("c", "d")]
    model = types.SimpleNamespace(bundle=types.SimpleNamespace(parts=(), pair=True))
    options = types.SimpleNamespace(texts=[], pair=False)
    made = cli._inputs(options, model, Stream(io.BytesIO(b"a\tb\n\nc d\n")))
    assert [next(made)(), next(made)()] == [("a", "b"), ""]
    with pytest.raises(InputError, match="the input has 0 tabs, expected 1"):
        next(made)()


def test_a_question_and_its_context_are_a_pair_of_arguments_too():
    """`kerasbert predict --pair` takes them so; `run` read two questions, and refused --pair."""
    kind = types.SimpleNamespace(lists=frozenset())
    model = types.SimpleNamespace(bundle=types.SimpleNamespace(parts=("question", "context"), pair=False), kind=kind)
    options = types.SimpleNamespace(texts=["who", "Ann sings", "where", "in Rome"], pair=True)
    assert [made() for made in cli._inputs(options, model, options.texts)] == [
        ("who", "Ann sings"),
        ("where", "in Rome"),
    ]
    options.texts = ["who"]
    with pytest.raises(InputError, match="received 1 texts, expected pairs"):
        next(cli._inputs(options, model, options.texts))


def test_a_truncated_text_is_said(float_file, capsys):
    assert main(["run", str(float_file[0]), "--no-cache", "--json", "good " * 30, "bad"]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line).get("truncated") for line in printed.out.splitlines()] == [True, None]
    assert printed.err == "1 of 2 texts have more than 24 tokens and are truncated\n"


def test_an_unexpected_error_is_one_line_and_status_1(float_file, capsys, monkeypatch):
    monkeypatch.setattr(cli, "load", lambda options: {}["x"])
    assert main(["run", str(float_file[0]), "x"]) == 1
    assert capsys.readouterr().err == (
        "error: unexpected KeyError: 'x'. Run it again with --debug and report what it shows\n"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["comprss", "run"], "no command 'comprss'. Nearest: 'compress'"),
        (["compress", "run", "--ouut", "x"], "no option '--ouut'. Nearest: '--out'"),
        (["run"], "the following arguments are required: FILE"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_a_mistyped_command_line_is_one_line(arguments, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = capsys.readouterr().err
    assert error.startswith(f"error: {text}")
    assert error.count("\n") == 1


def test_version_and_help_of_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"{kerasbert.__version__}\n"
    for name, example in cli.EXAMPLES.items():
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        assert example in capsys.readouterr().out
        assert cli.parser().parse_args(shlex.split(example)[1:]).plugin == []


def test_a_plug_in_is_loaded_before_the_command(float_file, tmp_path, capsys, monkeypatch):
    """A family of a third party could not be compressed; `ledger`'s own processes load the file too."""
    monkeypatch.setattr(registry, "PLUGINS", {})
    monkeypatch.setattr(registry, "_paths", {})
    (tmp_path / "mine.py").write_text("print('loaded')\n")
    assert main(["inspect", str(float_file[0]), "--plugin", str(tmp_path / "mine.py")]) == 0
    assert capsys.readouterr().out.startswith("loaded\n")
    assert str(tmp_path / "mine.py") in registry.plugin_files()
    assert main(["inspect", str(float_file[0]), "--plugin", "absent.py"]) == 2
    assert capsys.readouterr().err == "error: no plug-in file absent.py\n"


def test_inspect_says_what_a_file_is(float_file, any_file, mediapipe_file, capsys):
    assert main(["inspect", str(float_file[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lengths"] == [8, 12, 24]
    assert found["any_length"] is False
    assert found["target"] == "kerasbert"
    assert found["quantization"] == "float32"
    assert found["operators"]["FULLY_CONNECTED"] > 0
    assert not [name for name in found["operators"] if name.startswith("Flex")]
    assert main(["inspect", str(any_file[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["lengths"], found["any_length"]) == ([24], True)
    assert found["signatures"] == ["any_length"]
    assert main(["inspect", str(mediapipe_file[0])]) == 0
    assert "mediapipe" in capsys.readouterr().out


def test_benchmark_measures(float_file, capsys):
    assert main(["benchmark", str(float_file[0]), "--json", "--no-cache", "--rounds", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["p50_ms"] <= found["p90_ms"]
    assert found["bytes"] == float_file[0].stat().st_size
    assert found["texts"] == 200
    assert list(found["buckets"]) == ["8", "12", "24"]
    assert min(found["buckets"].values()) > 0
    assert all(each["load_ms"] < each["first_answer_ms"] for each in found["launch"].values())
    assert set(found["launch"]) == {"cold", "cached"}
    most = found["memory_of_all_lengths_mb"]
    assert set(most) == {"ai-edge-litert CompiledModel", "ai-edge-litert Interpreter"}
    assert min(most.values()) > 20  # numpy and the interpreter alone
    assert set(found["tokens_per_second"]) == {"ids_first", "ids_again", "offsets_first", "offsets_again"}
    operators = found["operators"]
    assert 0 < operators["xnnpack"] <= operators["operators"]
    assert operators["share"] == round(operators["xnnpack"] / operators["operators"], 3)


@pytest.mark.parametrize("command", ["run", "verify", "benchmark", "nearest", "index"])
def test_a_delegate_is_asked_for_by_every_command_that_runs_a_file(command, float_file, tmp_path, capsys, monkeypatch):
    """One that is not there is refused by each."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a good film\n")
    (tmp_path / "x.golden").write_text("")
    more = {
        "run": ["x"],
        "verify": ["x.golden"],
        "benchmark": [],
        "nearest": ["x", "--among", "texts.txt"],
        "index": ["texts.txt", "--out", "x.kbindex"],
    }[command]
    for delegate, said in (("nnapi", "no delegate 'nnapi'. All: xnnpack"), ("npu", "npu does not run ")):
        assert main([command, str(float_file[0]), *more, "--delegate", delegate]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {said}")
        assert error.count("\n") == 1


def test_what_is_measured_in_other_processes_is_of_the_delegate(float_file):
    """One that is not there measures nothing there."""
    how = {"threads": 1, "plugin": [], "windows": 1024, "delegate": "npu"}
    assert (launch_times.launches(float_file[0], "x", how), launch_times.memory(float_file[0], how)) == ({}, {})


def test_benchmark_of_a_directory_refuses_what_is_of_a_tflite(tmp_path, capsys):
    (tmp_path / "model.json").write_text("{}")
    for option in (["--delegate", "gpu"], ["--cache", "x"], ["--windows", "3"], ["--no-cache"]):
        assert main(["benchmark", str(tmp_path), *option]) == 2
        assert capsys.readouterr().err == (
            f"error: {option[0]} would not be used with the other options given: leave it out\n"
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "absent.tflite", "x"], "no file absent.tflite"),
        (["inspect", __file__], "carries no readable bundle"),
        (["benchmark", "absent.tflite"], "no file absent.tflite"),
        (["compress", "absent", "--out", "x.tflite"], "absent"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert text in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback():
    """As `kerasbert --debug`."""
    with pytest.raises(InputError, match="no file absent.tflite"):
        main(["inspect", "absent.tflite", "--debug"])


def test_a_missing_package_says_which_extra(float_file, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module', name='numpy')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kerasbert.mobile.cli import main; "
    done = python("-c", code + f"sys.exit(main(['run', {str(float_file[0])!r}, 'x']))", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: this command needs numpy, which is not installed")
    assert "[device]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_line_imports_nothing_heavy():
    code = (
        "import sys, kerasbert.mobile.cli; assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules), sys.modules"
    )
    python("-c", code)


def test_compress_by_command(run, tmp_path, capsys):
    pytest.importorskip("tensorflow")
    out, folder = tmp_path / "x.tflite", tmp_path / "data"
    folder.mkdir()
    rows(folder / "train.tsv", 20), rows(folder / "dev.tsv", 10, seed=1)
    command = ["compress", run, "--out", out, "--quantize", "fp16", "--lengths", "16", "--data", folder]
    assert main([str(part) for part in command]) == 0
    printed = capsys.readouterr().out
    assert "judged on 10 rows of dev.tsv in " in printed
    assert ": agreement 1.0000" in printed
    assert "lengths 16\n" in printed
    assert re.search(r"memory after every length was used: \d+ MB \(ai-edge-litert CompiledModel; its", printed)
    assert "texts of more than 16 tokens lose their end, the model reads 40 (--length)" in printed
    assert out.exists()


@pytest.mark.slow
def test_tensorflow_says_nothing_before_the_answer(run, tmp_path):
    """In a process of its own, without the variables of the tests, as in a terminal."""
    program = "import os, sys; os.environ.pop('TF_CPP_MIN_LOG_LEVEL'); from kerasbert.mobile.cli import main; "
    command = ["compress", run, "--out", tmp_path / "x.tflite", "--lengths", "16"]
    done = python("-c", program + "sys.exit(main(sys.argv[1:]))", *command)
    assert done.stderr == ""
    assert done.stdout.startswith(str(tmp_path / "x.tflite"))


def test_every_command_that_reads_texts_takes_their_encoding(tmp_path, capsys):
    """`pass --encoding` was advised where no command had it."""
    path = tmp_path / "latin.csv"
    path.write_bytes("sentence,label\nschön,good\n".encode("latin-1"))
    for command in ("distill", "prune", "trim", "quantize-aware", "compress", "ledger"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--encoding NAME" in capsys.readouterr().out
    columns = ["sentence", "label"]
    reader = cli.parser().parse_args(["ledger", "RUN", "--data", str(path), "--encoding", "latin-1"])
    with decoding(reader):
        assert [row for _, row in tables.table(path, columns, columns)] == [{"sentence": "schön", "label": "good"}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compress RUN --lengths a,b --out FILE", "--lengths must be such as 8,16,32. Received: 'a,b'"),
        ("prune RUN --layers first --out DIR", "--layers must be such as 0,2,4. Received: 'first'"),
    ],
)
def test_a_value_that_cannot_be_read_is_told_by_what_is_expected(line, said, capsys):
    """It was "argument --lengths: invalid _lengths value"."""
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert capsys.readouterr().err == f"error: {said}. See kerasbert-mobile {line.split()[0]} --help\n"


def test_a_mistyped_name_is_refused_before_tensorflow_is_loaded(tmp_path):
    """6 s before; now as in the other command."""
    lines = {
        f"distill {tmp_path} --student half --data x --out y --optimizer adam": "no optimizer 'adam'. Nearest: 'adamw'",
        f"distill {tmp_path} --student half --data x --out y --schedule linaer": "no schedule 'linaer'. Nearest: 'linear'",
        "compress nowhere --out x.tflite": "no model directory nowhere",
    }
    program = f"""
import sys
from pathlib import Path
from kerasbert.mobile import cli
for line in {list(lines)}:
    print("status", cli.main(line.split()), file=sys.stderr)
print({{"tensorflow", "keras"}} & set(sys.modules), file=sys.stderr)
"""
    said = python("-c", program).stderr.splitlines()
    assert said[1::2] == ["status 2"] * 3
    for line, expected in zip(said[::2], lines.values()):
        assert expected in line
    assert said[-1] == "set()"


@pytest.mark.parametrize("command", ["run", "inspect", "benchmark", "nearest", "verify"])
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_what_is_no_file_is_refused_at_once(command, kind, tmp_path, capsys):
    """A pipe that nobody writes to was waited for, and /dev/zero read, for ever."""
    import socket

    path, more = tmp_path / "x", {"nearest": ["a", "--among", __file__], "verify": ["g"], "run": ["a"]}
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    if (command, kind) == ("benchmark", "folder"):
        pytest.skip("a model directory may be measured")
    assert main([command, str(path), *more.get(command, [])]) == 2
    what = (
        "a folder, expected a .tflite file"
        if kind == "folder"
        else "a pipe or a device, and files are read more than once"
    )
    assert capsys.readouterr().err.startswith(f"error: {path} is {what}")
