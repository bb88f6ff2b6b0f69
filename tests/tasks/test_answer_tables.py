"""Tables of answers: no column and no row of the user is lost, what was answered before a kill is kept. No TensorFlow."""

import argparse
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from kerasbert import progress
from kerasbert.cli import tables
from kerasbert.data import texts
from kerasbert.errors import InputError
from kerasbert.tasks import answer_journal, answer_tables
from kerasbert.tasks.answer_tables import names, survey
from kerasbert.tasks.base import Task
from kerasbert.tasks.task import COLUMNS
from tests.support import ROOT

FIELDS = ("label", "score")


def lengths(some):
    """Label and score of each text: of itself alone, so that every way of batching answers alike."""
    return [(len(text) > 8, ["long" if len(text) > 4 else "short", len(text) / 7]) for text in some]


def go(data, out=None, answer=lengths, batch=2, as_json=False, overwrite=False, about=None):
    """Answer a table as the commands do."""
    options = argparse.Namespace(out=None if out is None else str(out), overwrite=overwrite, json=as_json)
    asked = tables.asked(texts.opened(data), options, ("label", "score"))
    about = {"model": "m"} if about is None else about
    return tables.write(asked, answer, FIELDS, out=options.out, batch=batch, about=about, name="predict")


def table(path, count=40):
    path.write_text("text,label\n" + "".join(f"{'x' * (i % 13)}{i},{i}\n" for i in range(count)))
    return path


FIRST = [{"text": "a cat", "label": "gold"}, {"text": "", "label": "b,c"}, {"text": "the dog sat", "label": 'q"\r'}]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".tsv"])
def test_a_second_and_a_third_model_keep_the_columns_of_the_first(tmp_path, capsys, ending):
    """`predicted_label` of the first model was overwritten, and in a csv stood twice in the header."""
    rows = [{**row, "label": row["label"].strip("\r")} for row in FIRST] if ending == ".tsv" else FIRST
    (tmp_path / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    go(tmp_path / "0.jsonl", tmp_path / f"1{ending}")
    assert "the table has 'label' already: the answers are in predicted_label\n" in capsys.readouterr().err
    for number in (2, 3):
        go(
            tmp_path / f"{number - 1}{ending}",
            tmp_path / f"{number}{ending}",
            lambda some, number=number: [(False, [f"model {number}", number / 4]) for _ in some],
        )
        told = f"answers are in predicted_label_{number}, predicted_score_{number}"
        assert told in capsys.readouterr().err
    with (tmp_path / f"3{ending}").open(newline="") as file:
        if ending == ".jsonl":
            found = list(map(json.loads, file))
        else:
            separate = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if ending == ".tsv" else {}
            found = list(csv.DictReader(file, **separate))
    expected = ["text", "label", "predicted_label", "score", "predicted_label_2", "predicted_score_2"]
    assert list(found[0]) == [*expected, "predicted_label_3", "predicted_score_3"]
    assert [row["label"] for row in found] == [row["label"] for row in rows]
    assert [row["predicted_label"] or None for row in found] == ["long", None, "long"]
    assert [row["predicted_label_2"] or None for row in found] == ["model 2", None, "model 2"]
    assert [row["predicted_label_3"] or None for row in found] == ["model 3", None, "model 3"]


def test_names_of_columns_are_new_whatever_the_table_holds():
    assert names(["label", "score"], ["text"]) == {"label": "label", "score": "score"}
    assert names(["label", "score"], ["score"]) == {"label": "label", "score": "predicted_score"}
    held = ["label", "predicted_label", "predicted_label_2", "predicted_label_4"]
    assert names(["label", "score"], held) == {"label": "predicted_label_3", "score": "score"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": 1, "text": "c"}], "rows 1 and 3 have the same id '1'"),
        ([{"id": 1, "text": "a"}, {"id": "1", "text": "b"}], "rows 1 and 2 have the same id '1'"),
        ([{"id": "q", "text": "a"}, {"text": "b"}], "row 2 has no id"),
        ([{"id": None, "text": "a"}], "row 1 has no id"),
        ([{"id": "", "text": "a"}], "row 1 has no id"),
    ],
)
def test_rows_of_one_id_are_refused_before_anything_is_computed(tmp_path, rows, said):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=f"{said}.* name --out a .csv or .jsonl file"):
        go(tmp_path / "a.jsonl", tmp_path / "b.json", answer=None)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_answers_by_id_are_one_object(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 0, "text": "ö\\ud800"}\n{"id": "b", "text": ""}\n')
    go(tmp_path / "a.jsonl", tmp_path / "b.json")
    assert (tmp_path / "b.json").read_text("utf-8") == '{\n "0": "short",\n "b": ""\n}\n'


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", 'q"', "a,b", " blank ", "'=1+1"])
def test_a_cell_comes_back_as_it_was(tmp_path, text):
    """A carriage return alone was not quoted, and the row became two."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x", "note": text}) + "\n")
    go(tmp_path / "a.jsonl", tmp_path / "b.csv")
    ((_, row, _),) = texts.opened(tmp_path / "b.csv")
    assert row["note"] == text


def test_half_of_a_surrogate_pair_stays_json(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "x\\ud800", "note": "\\udc00ö"}\n')
    go(tmp_path / "a.jsonl")
    assert json.loads(capsys.readouterr().out)["note"] == "\udc00ö"
    go(tmp_path / "a.jsonl", tmp_path / "b.csv")
    assert "\ufffdö" in (tmp_path / "b.csv").read_text("utf-8")


def test_a_table_that_a_tsv_cannot_hold_is_refused_at_once_and_an_answer_keeps_the_others(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"text": "y", "note": "a\\tb"}\n')
    with pytest.raises(InputError, match="row 2 holds a tab"):
        go(tmp_path / "a.jsonl", tmp_path / "b.tsv", answer=None)
    table(tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"row 1 holds a tab.*name --out a .csv"):
        go(tmp_path / "c.csv", tmp_path / "b.tsv", lambda some: [(False, ["a\tb", 1])] * len(some))
    go(tmp_path / "c.csv", tmp_path / "b.csv", answer=None)  # as it was told: nothing is computed again
    assert (tmp_path / "b.csv").read_text().startswith("text,label,predicted_label,score\n0,0,a\tb,1\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.csv", "c.csv"]


def interrupted(after, error=KeyboardInterrupt):
    calls = iter(range(10**6))

    def answer(some):
        if next(calls) == after:
            raise error
        return lengths(some)

    return answer


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_what_was_answered_is_kept_and_the_same_command_goes_on(tmp_path, capsys, ending):
    data, out = table(tmp_path / "a.csv", 70), tmp_path / f"b{ending}"
    whole = tmp_path / f"whole{ending}"
    cut = go(data, whole)
    for after in (7, 0, 12):
        with pytest.raises(KeyboardInterrupt, match="rows are answered and kept in .*the same command goes on"):
            go(data, out, interrupted(after))
    capsys.readouterr()
    asked = []
    assert go(data, out, lambda some: asked.extend(some) or lengths(some)) == cut
    assert "going on: 38 of 70 rows were answered before" in capsys.readouterr().err
    assert len(asked) == 70 - 38
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.csv", out.name, whole.name])


def test_an_interruption_before_the_first_answer_leaves_nothing(tmp_path):
    data = table(tmp_path / "a.csv")
    with pytest.raises(KeyboardInterrupt, match="nothing was answered"):
        go(data, tmp_path / "b.csv", interrupted(0))
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("change", ["model", "data", "batch"])
def test_other_answers_are_not_gone_on_with(tmp_path, capsys, change):
    data, out = table(tmp_path / "a.csv"), tmp_path / "b.csv"
    with pytest.raises(KeyboardInterrupt):
        go(data, out, interrupted(5))
    if change == "data":
        data.write_text(data.read_text().replace("\n0,", "\n9,", 1) + "z,1\n")
    settings = {"about": {"model": "other"}} if change == "model" else {"batch": 3} if change == "batch" else {}
    asked = []
    go(data, out, lambda some: asked.extend(some) or lengths(some), **settings)
    assert f"is left of another table ({change} differ): this one starts afresh" in capsys.readouterr().err
    assert len(asked) == 40 + (change == "data")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.csv"]


@pytest.mark.parametrize("change", ["appended", "last line", "first line"])
def test_a_table_to_which_rows_were_appended_goes_on(tmp_path, capsys, change):
    """All rows were answered again. Of the last 16 batches all are: they may hold new rows, in another order of lengths."""
    data, out, whole = table(tmp_path / "a.csv", 200), tmp_path / "b.csv", tmp_path / "whole.csv"
    with pytest.raises(KeyboardInterrupt):
        go(data, out, interrupted(45))
    content = data.read_text()
    data.write_text((content if change != "first line" else content.replace("\n0,", "\n9,", 1)) + "z,1\n")
    if change == "last line":
        data.write_text(content.rstrip("\n") + "9\nz,1\n")
    capsys.readouterr()
    asked = []
    go(data, out, lambda some: asked.extend(some) or lengths(some))
    told, go_on = capsys.readouterr().err, change == "appended"
    assert ("going on: " in told) is go_on
    assert ("(data differ): this one starts afresh" in told) is not go_on
    assert (len(asked) < 201) is go_on
    go(data, whole)
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.csv", "whole.csv"]


@pytest.mark.parametrize("damage", ["cut", "garbage", "head", "empty"])
def test_a_damaged_end_is_answered_again(tmp_path, damage):
    data, out = table(tmp_path / "a.csv"), tmp_path / "b.csv"
    go(data, tmp_path / "whole.csv")
    with pytest.raises(KeyboardInterrupt):
        go(data, out, interrupted(5))
    (partial,) = tmp_path.glob(".b.*")
    content = partial.read_bytes()
    head = content.index(b"\n") + 1
    cuts = {"cut": content[:-3], "garbage": content[:-20] + b"\0" * 20, "head": content[: head - 9], "empty": b""}
    partial.write_bytes(cuts[damage])
    go(data, out)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_file_of_somebody_else_is_not_written_over(tmp_path):
    data, out = table(tmp_path / "a.csv"), tmp_path / "b.csv"
    with pytest.raises(KeyboardInterrupt):
        go(data, out, interrupted(1))
    (partial,) = tmp_path.glob(".b.*")
    partial.write_text("mine\n")
    (tmp_path / ".b.0.partial").write_text('{"mine": 1}\n')
    with pytest.raises(InputError, match="is in the way and was not written here"):
        go(data, out)
    assert partial.read_text() == "mine\n"
    partial.unlink()
    go(data, out)
    assert (tmp_path / ".b.0.partial").read_text() == '{"mine": 1}\n'


def test_two_processes_do_not_write_one_table(tmp_path):
    """And one that is done leaves the answers of another one for the same place."""
    journal = answer_journal.Journal(tmp_path / "b.csv", {}, 3)
    with pytest.raises(InputError, match="another process answers the same table"):
        answer_journal.Journal(tmp_path / "b.csv", {}, 3)
    answer_journal.Journal(tmp_path / "b.csv", {"model": "other"}, 3).close(done=True)
    assert list(tmp_path.iterdir()) == [journal.path]
    journal.close(done=True)


def test_a_killed_process_loses_a_batch_at_most(tmp_path):
    data, out = table(tmp_path / "a.csv", 300), tmp_path / "b.csv"
    program = "import sys, time; from tests.tasks.test_answer_tables import go, lengths\n"
    program += "go(sys.argv[1], sys.argv[2], lambda some: time.sleep(.02) or lengths(some))"
    command = [sys.executable, "-c", program, data, out]
    go(data, tmp_path / "whole.csv")
    kept = 0
    for _ in range(3):
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            begun, grown = time.monotonic(), 0
            while grown < 20 and time.monotonic() - begun < 60:
                time.sleep(0.02)
                partials = list(tmp_path.glob(".b.*"))
                grown = partials[0].read_bytes().count(b"\n") - kept if partials else 0
            process.send_signal(signal.SIGKILL)
        lines = next(tmp_path.glob(".b.*")).read_bytes().count(b"\n")
        assert lines > kept
        kept = lines
        assert not out.exists()
    go(data, out)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_progress_is_told_now_and_then(tmp_path, capsys, monkeypatch):
    for name in ("SILENT", "EVERY", "SHORT", "OFTEN"):
        monkeypatch.setattr(progress, name, 0.0)
    go(table(tmp_path / "a.csv", 1300), tmp_path / "b.csv", batch=100)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "1,200 of" in line]
    assert re.fullmatch(r"predict: 1,200 of 1,300 rows, [\d,.]+ a second, 1 s left", line)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    go(tmp_path / "a.csv", batch=100)
    err = capsys.readouterr().err
    assert "\r[##################..] predict: 1,200 of 1,300 rows, " in err
    assert err.endswith("\r\x1b[K")


def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path):
    data = table(tmp_path / "a.csv")

    def answer(some):
        with data.open("a") as file:
            file.write("one more,row\n")
        return lengths(some)

    with pytest.raises(InputError, match="changed while it was read"):
        go(data, tmp_path / "b.csv", answer)


class Read(list):
    """Rows as `Texts` gives them."""

    path = "rows"


@pytest.mark.parametrize(
    ("columns", "cells", "row"),
    [
        (["a", "b\tc"], ["x", "y"], 0),
        (["a", "b"], ["x\ny", "z"], 1),
        (["a", "b"], ["x", "y\t"], 2),
        (["a", "b"], ["x", "y"], None),
    ],
)
def test_a_tsv_holds_no_tab_and_no_line_break_in_a_header_or_a_row(columns, cells, row):
    """Row 0 is the header; rows count from 1."""
    rows = Read([(1, dict(zip(columns, ["p", "q"])), "p")] * (row == 2) + [(2, dict(zip(columns, cells)), cells[0])])
    if row is None:
        assert survey(rows, "tsv").columns == ("a", "b")
        return
    with pytest.raises(InputError, match=f"row {row} holds a tab or a line break, which a tsv cannot"):
        survey(rows, "tsv")
    assert survey(rows, "csv").columns == tuple(columns)


@pytest.mark.parametrize(
    ("content", "columns", "right"),
    [
        ("a\nb\n", ("text",), True),
        ("a\n\n \nb", ("text",), True),
        ("a\tb\n", ("text",), False),
        ("a\tb\nc\td\n", ("text_a", "text_b"), True),
        ("a\tb\nc\n", ("text_a", "text_b"), False),
        ("a\tb\tc\n", ("text_a", "text_b"), False),
    ],
)
def test_a_plain_text_has_a_line_for_each_input(content, columns, right, tmp_path):
    (tmp_path / "a.txt").write_text(content)
    opened = texts.opened(tmp_path / "a.txt", columns)
    assert answer_tables._a_text_a_line(opened) == right


READS = Task("x", kind="tags", text="words", label="tags", reader=f"{COLUMNS}:1,2")


def test_a_file_of_a_tasks_reader_or_a_text_a_line(tmp_path):
    (tmp_path / "a.conll").write_text("the O\ncat B-X\n\na O\n")
    rows = answer_tables.read(tmp_path / "a.conll", ["words"], READS)
    assert [text for _, _, text in rows] == [(("the", "cat"),), (("a",),)]
    (tmp_path / "plain.txt").write_text("the cat\na dog\n")
    swag = Task("x", kind="classification", text="text", reader="swag")
    plain = answer_tables.read(tmp_path / "plain.txt", ["text"], swag)
    assert [text for _, _, text in plain] == ["the cat", "a dog"]
    (tmp_path / "more.txt").write_text("the\tcat\na dog\n")
    with pytest.raises(InputError):
        answer_tables.read(tmp_path / "more.txt", ["text"], swag)


def test_inputs_of_a_file_without_labels(tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n\na dog\n")
    plain = Task("x", text="text", label="label")
    assert answer_tables.inputs_of(plain, tmp_path / "a.txt") == ["the cat", "a dog"]
    sts = Task("sts", kind="vector", text="one", text_b="two", label="score", options={"loss": "cosine"})
    (tmp_path / "rows.csv").write_text("one,two,score\na,b,1\n , ,1\nc,d,2\n")
    found = answer_tables.inputs_of(sts, tmp_path / "rows.csv")
    assert ("a", "b") in found
    assert ("c", "d") in found
    (tmp_path / "none.csv").write_text("one,two,score\n , ,1\n")
    with pytest.raises(InputError, match="holds no text|no text"):
        answer_tables.inputs_of(sts, tmp_path / "none.csv")
