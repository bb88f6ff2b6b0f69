"""`kerasbert-mobile run --data` and the other files of texts of a phone's commands, by files of the repository. No TensorFlow."""

import csv
import gzip
import io
import json
import sys

import pytest

from kerasbert.mobile.cli import main
from kerasbert.mobile.runtime import load
from tests.support import ROOT, python

FILES = ROOT / "tests/golden/files"
NUMBERS, VECTORS = FILES / "int8.tflite", FILES / "vectors.tflite"
TABLE = 'text,value\nein schöner Film,x\n"two, lines",y\n,z\n'


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command; with `stdin` its standard input, bytes."""

    def go(*arguments, status=0, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        assert main([*map(str, arguments)]) == status
        captured = capsys.readouterr()
        return captured.out, captured.err

    return go


def test_a_table_comes_back_with_answers(run, tmp_path):
    (tmp_path / "a.csv").write_text(TABLE)
    out, err = run("run", NUMBERS, "--data", tmp_path / "a.csv", "--no-cache")
    rows = list(csv.reader(io.StringIO(out)))
    with load(NUMBERS, cache=False) as runner:
        values = [f"{answer.value:.6g}" for answer in runner(["ein schöner Film", "two, lines"])]
    assert rows[0] == ["text", "value", "predicted_value"]
    assert [row[1:] for row in rows[1:]] == [["x", values[0]], ["y", values[1]], ["z", ""]]
    assert "the table has 'value' already: the answers are in predicted_value" in err
    assert "1 of 3 rows have no text and no answer" in err
    out, _ = run("run", NUMBERS, "--data", tmp_path / "a.csv", "--out", tmp_path / "b.jsonl", "--no-cache")
    assert out == f"{tmp_path / 'b.jsonl'}\n"
    (tmp_path / "lines.txt").write_text("ein schöner Film\n")
    out, _ = run("run", NUMBERS, "--data", tmp_path / "lines.txt", "--no-cache")
    assert out == f"text\tvalue\nein schöner Film\t{values[0]}\n"
    (tmp_path / "c.csv").write_text("mine\nein schöner Film\n")
    out, _ = run("run", NUMBERS, "--data", tmp_path / "c.csv", "--text-column", "mine", "--no-cache")
    assert out == f"mine,value\nein schöner Film,{values[0]}\n"


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_form_of_a_file_gives_the_same_answers(run, tmp_path, codec, pack):
    (tmp_path / "plain.csv").write_text(TABLE)
    expected, _ = run("run", NUMBERS, "--data", tmp_path / "plain.csv", "--no-cache")
    path = tmp_path / f"a.csv{'.gz' if pack is gzip.compress else ''}"
    path.write_bytes(pack(TABLE.encode(codec)))
    encoding = ["--encoding", codec] if codec == "cp1252" else []
    assert run("run", NUMBERS, "--data", path, "--no-cache", *encoding)[0] == expected
    found, _ = run("nearest", VECTORS, "two, lines", "--among", path, "--no-cache", "--json", *encoding)
    assert [json.loads(line)["text"] for line in found.splitlines()] == ["two, lines", "ein schöner Film"]
    if codec == "cp1252":
        assert "pass --encoding cp1252" in run("run", NUMBERS, "--data", path, "--no-cache", status=2)[1]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: ["run", NUMBERS, p / "a.csv"], "a.csv is a file, expected a text: pass --data"),
        (lambda p: ["nearest", VECTORS, p / "a.csv", "--among", p / "a.csv"], "a.csv is a file, expected a text"),
        (lambda p: ["run", NUMBERS, "x", "--data", p / "a.csv"], "expected one of them"),
        (lambda p: ["run", NUMBERS, "x", "--out", p / "b.csv"], "go with --data FILE"),
        (lambda p: ["run", NUMBERS, "--data", p / "a.csv", "--out", p / "c.csv"], "exists already"),
        (lambda p: ["run", NUMBERS, "--data", p / "no.csv"], "no file"),
        (lambda p: ["run", NUMBERS, "--data", p / "c.csv"], "no column 'text'. Nearest: 'texts'"),
        (lambda p: ["run", NUMBERS, "--data", p / "a.csv", "--out", p / "b.json"], "row 1 has no id"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(run, tmp_path, make, said):
    (tmp_path / "a.csv").write_text(TABLE)
    (tmp_path / "c.csv").write_text("texts\nx\n")
    out, err = run(*make(tmp_path), status=2)
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "c.csv"]


def test_a_json_object_is_no_text(run):
    """A line that is told keeps its place."""
    out, err = run("run", NUMBERS, '{"question": "Who?"}', status=2)
    assert err.startswith("error: text 1: the input is a json object (question), the model reads one text")
    assert (out, err.count("\n")) == ("\n", 1)


def test_the_standard_input_is_no_file_to_guess_at(run):
    for content, said in (
        (gzip.compress(b"a text\n"), "is packed (gz)"),
        ("a text\n".encode("utf-16"), "is utf-16-le"),
        (b'{"text": "a"}\n', "line 1: the input is a json object (text)"),
    ):
        assert said in run("run", NUMBERS, "--no-cache", stdin=content, status=2)[1]
    out, err = run("run", NUMBERS, "--no-cache", stdin="gut\nschön\n".encode("cp1252"))
    assert out.splitlines()[1].endswith("sch\ufffdn")
    assert "1 line of the standard input did not decode as utf-8, the first is line 2" in err
    out, err = run("run", NUMBERS, "--no-cache", "--encoding", "cp1252", stdin="gut\nschön\n".encode("cp1252"))
    assert out.splitlines()[1].endswith("schön")
    assert err == ""


def test_a_table_is_answered_without_tensorflow(tmp_path):
    (tmp_path / "a.csv").write_text(TABLE)
    program = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; from kerasbert.mobile.cli import main; "
    )
    done = python(
        "-c", f"{program}sys.exit(main(sys.argv[1:]))", "run", NUMBERS, "--data", tmp_path / "a.csv", "--no-cache"
    )
    assert done.stdout.startswith("text,value,predicted_value\n")
