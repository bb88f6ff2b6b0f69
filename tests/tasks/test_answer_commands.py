"""`kerasbert predict` and `evaluate`: tables in and out, texts as they come, nothing classified that is no text."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys

import pytest

from kerasbert import cli
from kerasbert.checkpoints import save_model
from kerasbert.cli.lines import arriving
from kerasbert.data.reading import Stream
from kerasbert.testing.battery import eagerly
from tests import tiny
from tests.support import ROOT

TEXTS = ["the good cat", "a bad dog", "", "happy, new film"]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command, without graphs; with `stdin` its standard input."""

    def go(*arguments, stdin=None, status=0):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            with eagerly():
                found = cli.main([str(argument) for argument in arguments])
        except SystemExit as leave:
            found = leave.code
        captured = capsys.readouterr()
        assert found == status, captured.err
        return captured.out, captured.err

    return go


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A model of pairs with random weights."""
    import kerasbert as kb
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import Task

    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    model = TaskModel(encoder, Task("nli", text_b="text_b", labels={"no": "no", "yes": "yes"}))
    model.build()
    path, task = tmp_path_factory.mktemp("pairs") / "run", model.task.to_json()
    parts = {"heads": model.heads, "tokenizer": encoder.tokenizer, "task": task, "labels": model.labels}
    save_model(path, encoder=encoder, name="bert/tiny", **parts)
    return path


def test_a_table_comes_back_with_answers(run, classifier, tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text", "label"], *([i, text, "?"] for i, text in enumerate(TEXTS))])
    out, err = run("predict", classifier, "--data", path)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["text"] for row in rows] == TEXTS
    assert [row["predicted_label"] for row in rows] == ["pos", "neg", "", "pos"]
    assert [row["label"] for row in rows] == ["?"] * 4
    assert float(rows[0]["score"]) > 0.9
    assert rows[2]["score"] == ""
    assert "1 of 4 rows have no text and no answer" in err
    out, _ = run("predict", classifier, "--data", path, "--out", tmp_path / "b.jsonl", "--text-column", "text")
    assert out == f"{tmp_path / 'b.jsonl'}\n"
    found = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [row["predicted_label"] for row in found] == ["pos", "neg", None, "pos"]
    # json's own types stay, whatever the column of the text
    (tmp_path / "c.jsonl").write_text('{"id": 7, "tags": ["x"], "review": "the good cat"}\n')
    out, _ = run("predict", classifier, "--data", tmp_path / "c.jsonl", "--text-column", "review")
    row = json.loads(out)
    assert (row["id"], row["tags"], row["label"]) == (7, ["x"], "pos")
    (tmp_path / "d.txt").write_text("the good cat\n\na bad dog\n")
    out, _ = run("predict", classifier, "--data", tmp_path / "d.txt", "--batch", 1)
    assert [line.split("\t")[:2] for line in out.splitlines()] == [
        ["text", "label"],
        ["the good cat", "pos"],
        ["", ""],
        ["a bad dog", "neg"],
    ]


def test_pairs_come_in_two_columns_two_arguments_or_with_a_tab(run, pairs, tmp_path):
    (tmp_path / "a.tsv").write_text("text\ttext_b\nthe cat\ta dog\n")
    table = run("predict", pairs, "--data", tmp_path / "a.tsv")[0].splitlines()[1].split("\t")
    label, score = table[2], float(table[3])
    for arguments, stdin in (
        (["--pair", "the cat", "a dog"], None),
        (["the cat\ta dog"], None),
        ([], "the cat\ta dog\n"),
    ):
        out, _ = run("predict", pairs, *arguments, stdin=stdin)
        assert out == f"{label}\t{score:.4f}\n"
    out, _ = run("predict", pairs, stdin="\nthe cat\ta dog\n", status=0)
    assert out.startswith("\n")
    _, err = run("predict", pairs, stdin="the cat\ta dog\nalone\n", status=2)
    assert "line 2 has 0 tabs, expected one: the model reads pairs" in err
    (tmp_path / "a.txt").write_text("the cat\ta dog\n")
    out, _ = run("predict", pairs, "--data", tmp_path / "a.txt")
    assert out.splitlines()[1].split("\t") == ["the cat", "a dog", label, f"{score:.6g}"]
    (tmp_path / "a.txt").write_text("the cat\n")
    assert "a.txt, line 1 has 0 tabs, expected 1" in run("predict", pairs, "--data", tmp_path / "a.txt", status=2)[1]


def test_a_blank_line_keeps_its_place_and_has_no_answer(run, classifier):
    out, _ = run("predict", classifier, stdin="the good cat\n\n  \r\na bad dog")
    assert [line.split("\t")[0] for line in out.split("\n")] == ["pos", "", "", "neg", ""]
    out, _ = run("predict", classifier, "--json", stdin="\nthe good cat\n")
    assert [json.loads(line) is None for line in out.splitlines()] == [True, False]


def test_what_is_written_on_several_lines_is_printed_on_one(run, classifier, monkeypatch):
    """The n-th line of the output is the n-th text's."""
    from kerasbert.answers.classification import ClassificationKind

    monkeypatch.setattr(ClassificationKind, "text", lambda self, answer: "Dear\r\nSir\u2028or Madam")
    out, _ = run("predict", classifier, "the good cat", "a bad dog")
    assert out == "Dear Sir or Madam\n" * 2


@pytest.mark.parametrize("command", ["predict", "export", "compress"])
def test_an_option_of_training_is_refused_by_what_reads_none(run, classifier, tmp_path, monkeypatch, capsys, command):
    """It was taken, and did nothing."""
    monkeypatch.chdir(tmp_path)
    option = ["--set", "task.label_smoothing=0.1"]
    told = "label_smoothing is an option of training alone, and the model is trained: leave it out"
    if command == "compress":
        from kerasbert.mobile import cli as mobile

        assert mobile.main(["compress", str(classifier), "--out", "x.tflite", *option]) == 2
        assert told in capsys.readouterr().err
    else:
        assert told in run(command, classifier, "out", *option, status=2)[1]
    assert not list(tmp_path.iterdir())


def test_what_a_user_cannot_see_in_the_answers_is_said(run, classifier):
    _, err = run("predict", classifier, stdin="the cat\tthe dog\n" + "the good cat " * 9 + "\n")
    assert "1 of 2 texts (50.0%) have more than 16 tokens and were truncated (--length)" in err
    assert "1 of 2 texts hold a tab, which was read as part of the text" in err
    assert run("predict", classifier, "the good cat " * 9, "--length", 32)[1] == ""


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: [p / "dev.tsv"], "dev.tsv is a file, expected a text: pass --data"),
        (lambda p: ["x", "--data", p / "dev.tsv"], "expected one of them"),
        (lambda p: ["x", "--out", p / "a.csv"], "go with --data FILE"),
        (lambda p: ["--data", p / "no.tsv"], "no file"),
        (lambda p: ["--data", p / "dev.tsv", "--text-column", "txt"], "no column 'txt'. Nearest: 'text'"),
        (lambda p: ["--data", p / "dev.tsv", "--out", p / "a.xlsx"], "a.xlsx: cannot tell the format"),
        (lambda p: ["--data", p / "dev.tsv", "--out", p / "dev.tsv"], "dev.tsv is what is read"),
        (lambda p: ["--data", p / "dev.tsv", "--out", p / "n.jsonl"], "exists already"),
        (
            lambda p: ["--data", p / "dev.tsv", "--out", p / "n.jsonl", "--overwrite"],
            "is not a table of answers: it is kept",
        ),
        (lambda p: ["--data", p / "b.csv", "--out", p / "a.tsv"], "row 1 holds a tab or a line break"),
        (lambda p: ["--data", p / "n.jsonl"], "n.jsonl, line 1: column 'text' holds no text"),
        (lambda p: ["x", "--length", 4096], "length must be between 3 and 32"),
        (lambda p: ["x", "--batch", 0], "batch must be a whole number"),
        (lambda p: ["--pair", "a", "b"], "--pair gives two texts, the model reads one"),
    ],
)
def test_mistakes_of_predict_are_one_line_and_leave_nothing(run, classifier, tmp_path, make, text):
    tiny.labelled(tmp_path / "dev.tsv", 4)
    (tmp_path / "b.csv").write_text('text\n"the\ncat"\n')
    (tmp_path / "n.jsonl").write_text('{"text": 5}\n')
    before = sorted(tmp_path.iterdir())
    out, err = run("predict", classifier, *make(tmp_path), status=2)
    assert text in err
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_answers_are_replaced_and_a_table_with_a_column_score_is_not(run, classifier, tmp_path, ending):
    """Any table with a column `score` was replaced, as the gold of STS."""
    data, out = tiny.labelled(tmp_path / "dev.tsv", 4), tmp_path / f"a.{ending}"
    line = ["predict", classifier, "--data", data, "--out", out, "--overwrite"]
    for made in ("csv", "tsv", "jsonl"):  # whatever it is called
        mine = {
            "csv": "text,label,score\nold,1,5\n",
            "tsv": "text\tscore\nold\t5\n",
            "jsonl": '{"label": 1, "score": 5}\n',
        }[made]
        out.write_text(mine)
        _, err = run(*line, status=2)
        assert "it is kept. Choose another place" in err
        assert out.read_text() == mine
    out.unlink()
    run(*line)
    first = out.read_text()
    run(*line)
    assert out.read_text() == first


def test_lines_are_read_as_they_come():
    read, write = os.pipe()
    with os.fdopen(read) as stream:
        lines = arriving(Stream(stream), 2)
        with os.fdopen(write, "w") as file:
            for line in ("one", "two"):  # the second is not there yet when the first is answered
                print(line, file=file, flush=True)
                assert next(lines) == [line]
            file.write("a\nb\nc\n")
        batches = list(lines)
    assert [line for batch in batches for line in batch] == ["a", "b", "c"]
    assert max(map(len, batches)) <= 2


@pytest.mark.slow
def test_a_slow_writer_is_answered_line_by_line(classifier):
    command = [sys.executable, "-m", "kerasbert.cli", "predict", str(classifier)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as process:
        for text, label in (("the good cat", "pos"), ("a bad dog", "neg")):
            process.stdin.write(text + "\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(label)
        process.stdin.close()
        assert process.wait(60) == 0


def test_evaluate_names_the_rows_and_what_makes_the_metrics_say_little(run, classifier, tmp_path):
    path = tiny.labelled(tmp_path / "dev.tsv", 20)
    out, _ = run("evaluate", classifier, "--data", path)
    assert out.splitlines()[0] == "classification, 20 rows of dev.tsv"
    found = json.loads(run("evaluate", classifier, "--data", path, "--json", "--length", 32, "--batch", 3)[0])
    assert (found["rows"], found["length"], found["truncated"]) == ("20 rows of dev.tsv", 32, 0)
    path.write_text("text\tlabel\n" + "the good cat\tpos\n" * 3)
    assert "all 3 answers are 'pos'" in run("evaluate", classifier, "--data", path)[1]
    path.rename(tmp_path / "train.tsv")
    err = run("evaluate", classifier, "--data", tmp_path, status=2)[1]
    assert "has no dev or test rows: give a file; for the training rows pass --split train" in err
    out = run("evaluate", classifier, "--data", tmp_path, "--split", "train")[0]
    assert out.startswith("classification, 3 rows of train.tsv\n")


def test_a_table_of_another_encoding_is_read_as_training_reads_it(run, classifier, tmp_path):
    """predict advised --encoding and had no such option."""
    path = tmp_path / "latin.csv"
    path.write_bytes("text,note\nthe happy cat,schön\n".encode("latin-1"))
    assert "pass --encoding cp1252" in run("predict", classifier, "--data", path, status=2)[1]
    out, _ = run("predict", classifier, "--data", path, "--encoding", "latin-1")
    assert out.splitlines()[1].startswith("the happy cat,schön,pos,")
    assert "goes with --data" in run("predict", classifier, "the cat", "--encoding", "latin-1", status=2)[1]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_what_excel_wrote_goes_back_to_excel(run, classifier, tmp_path, encoding):
    """Without a mark Excel takes UTF-8 for its own code page; a file that had none and was UTF-8 keeps its first byte."""
    path, out = tmp_path / "excel.csv", tmp_path / "answers.csv"
    path.write_bytes("text;note\r\nthe happy cat;schön\r\n".encode(encoding))
    named = ["--encoding", encoding] if encoding == "latin-1" else []
    run("predict", classifier, "--data", path, *named, "--out", out)
    assert out.read_bytes().startswith(b"text;" if encoding == "utf-8" else b"\xef\xbb\xbftext;")
    assert out.read_text("utf-8-sig").splitlines()[1].startswith("the happy cat;schön;pos;")


def test_every_command_reads_a_file_in_every_form(run, classifier, tmp_path):
    """Packed files and UTF-16 were answered as replacement characters, with status 0."""
    lines = "the good cat\nsch\u00f6n\n\na bad dog\n"
    forms = {"a.txt": lines.encode(), "a.txt.gz": gzip.compress(lines.encode()), "b.txt": lines.encode("utf-16")}
    found, hits = set(), set()
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        found.add(run("predict", classifier, "--data", tmp_path / name)[0])
        hits.add(run("search", classifier, tmp_path / name, "the good cat")[0])
    assert (len(found), len(hits)) == (1, 1)
    (tmp_path / "c.txt").write_bytes(lines.encode("cp1252"))
    for command in (
        ["predict", classifier, "--data", tmp_path / "c.txt"],
        ["search", classifier, tmp_path / "c.txt", "x"],
    ):
        assert "pass --encoding cp1252" in run(*command, status=2)[1]
    out, _ = run("predict", classifier, "--data", tmp_path / "c.txt", "--encoding", "cp1252")
    assert {out} == found


def test_a_json_object_is_no_text_and_a_json_text_is_one(run, classifier):
    for arguments, stdin in ((['{"question": "who?"}'], None), ([], '{"question": "who?"}\n')):
        _, err = run("predict", classifier, *arguments, stdin=stdin, status=2)
        assert "is a json object (question), the model reads one text" in err
    assert run("predict", classifier, "{the good cat}")[0].count("\t") == 1  # braces alone make no json


def test_a_second_model_keeps_the_answers_of_the_first(run, classifier, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nthe good cat,mine\n")
    run("predict", classifier, "--data", tmp_path / "a.csv", "--out", tmp_path / "b.csv")
    _, err = run("predict", classifier, "--data", tmp_path / "b.csv", "--out", tmp_path / "c.csv")
    assert "already: the answers are in predicted_label_2, predicted_score_2" in err
    (row,) = csv.DictReader((tmp_path / "c.csv").read_text().splitlines())
    assert (row["label"], row["predicted_label"], row["predicted_label_2"]) == ("mine", "pos", "pos")


def test_an_interrupted_table_goes_on(run, classifier, tmp_path, monkeypatch):
    from kerasbert.cli.answers import _Answers

    (tmp_path / "a.csv").write_text("text\n" + "".join(f"the {word} cat\n" for word in ["good", "bad", "new"] * 5))
    command = ["predict", classifier, "--data", tmp_path / "a.csv", "--batch", 4]
    run(*command, "--out", tmp_path / "whole.csv")
    own, calls = _Answers.batch, iter(range(99))

    def batch(self, texts):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return own(self, texts)

    monkeypatch.setattr(_Answers, "batch", batch)
    _, err = run(*command, "--out", tmp_path / "b.csv", status=130)
    assert "8 of 15 rows are answered and kept in" in err
    _, err = run(*command, "--out", tmp_path / "b.csv")
    assert "going on: 8 of 15 rows were answered before" in err
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
