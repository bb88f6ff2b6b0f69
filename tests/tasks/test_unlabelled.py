"""Rows without a label: SNLI's `-`, Hugging Face's -1; and labels that somebody may have meant as one."""

import json

import pytest

from kerasbert.data.dialects import default_reading
from kerasbert.errors import InputError
from kerasbert.tasks import labels
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import Task, find_labels, find_task, read_rows

NLI = Task("nli", text="premise", text_b="hypothesis")
ROWS = [("a", "b", "entailment"), ("c", "d", "-"), ("e", "f", "neutral"), ("g", "h", "contradiction"), ("i", "j", "-")]


def table(path, rows=ROWS, names=("premise", "hypothesis", "label")):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows))
    else:
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in (names, *rows)))
    return path


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_rows_without_a_gold_label_are_dropped_and_counted(ending, tmp_path, capfd):
    path = table(tmp_path / f"train.{ending}")
    task = find_labels(NLI, path)
    assert list(task.labels) == ["contradiction", "entailment", "neutral"]
    rows = read_rows(task, path)
    assert rows.texts == [("a", "b"), ("e", "f"), ("g", "h")]
    assert rows.targets.tolist() == [1, 2, 0]
    assert capfd.readouterr().err == f"{path}: 2 of 5 rows have no label ('-') and are dropped\n"
    assert len(read_rows(task, path, targets=False).texts) == 5  # all of them can be predicted


def test_glue_reads_snli_as_it_is_published_and_hugging_faces_numbers(tmp_path, capfd):
    names = ("gold_label", "sentence1", "sentence2")
    path = table(tmp_path / "snli.tsv", [(label, a, b) for a, b, label in ROWS], names)
    assert len(read_rows(find_task("glue/mnli"), path).texts) == 3
    numbers = [(a, b, {"-": -1, "entailment": 0, "neutral": 1, "contradiction": 2}[label]) for a, b, label in ROWS]
    path = table(tmp_path / "snli.jsonl", numbers)
    assert read_rows(find_task("glue/mnli"), path).targets.tolist() == [0, 1, 2]
    assert "2 of 5 rows have no label ('-1') and are dropped" in capfd.readouterr().err
    task = find_labels(NLI, table(tmp_path / "hf.jsonl", numbers))
    assert list(task.labels) == ["0", "1", "2"]
    memory = in_memory([dict(zip(("premise", "hypothesis", "label"), row)) for row in numbers])
    assert len(read_rows(task, memory).texts) == 3


def test_elsewhere_such_a_label_is_a_class_or_refused(tmp_path):
    mood = table(tmp_path / "mood.tsv", [("a", -1), ("b", 0), ("c", 1)], ("text", "label"))
    task = find_labels(Task("mood"), mood)
    assert list(task.labels) == ["-1", "0", "1"]
    assert "the label '-1' is a class of its own" in labels.remarks(mood, ["-1", "0", "1"])[0]
    known = Task("mood", labels={"0": "no", "1": "yes"})
    with pytest.raises(InputError, match="line 2: label '-1' is unknown. .*: drop these rows, or predict them"):
        read_rows(known, mood)
    path = table(tmp_path / "all.tsv", [("a", "b", "-")])
    with pytest.raises(InputError, match=r"no row has a label \(column 'label' is '-'\): predict such a file"):
        read_rows(find_task("glue/mnli", text="premise", text_b="hypothesis", label="label"), path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["0", "0.0", "1"], "labels that are the same number are classes of their own: '0' (1 rows), '0.0' (1 rows)"),
        (["01", "1", "2"], "the same number are classes of their own: '01' (1 rows), '1' (1 rows)"),
        (["1e1", "10", "x"], "the same number"),
        (["true", "True", "no"], "labels that differ in case alone are classes of their own: 'True' (1 rows), 'true'"),
        (["Pos", "pos", "neg"], "labels that differ in case alone are classes of their own: 'Pos' (1 rows), 'pos'"),
        (["very  good", "very good", "x"], "labels that differ in blanks or in forms of characters alone"),
        (["neg", "neg\u200b", "x"], "labels that differ in blanks or in forms of characters alone"),
        (["caf\u00e9", "cafe\u0301", "x"], "labels that differ in blanks or in forms of characters alone"),
        ([" pos", "pos", "neg"], "1 labels have space around them, such as ' pos', which is read as 'pos'"),
    ],
)
def test_labels_that_may_be_meant_as_one_are_told(values, said):
    found = labels.remarks(in_memory([("x", "y")]), values)
    assert said in found[0]


def test_labels_that_are_unlike_are_not_told():
    assert labels.remarks(in_memory([("x", "y")]), ["0", "1", "2", "nan-like", "1.5"]) == []


@pytest.mark.parametrize("mark", ["", " ", "NaN", "None", "-1", "-"])
def test_rows_with_empty_labels_are_skipped_where_that_is_asked_for(mark, tmp_path, capfd):
    lines = [("a", "x"), ("b", mark), ("c", "y")]
    path = table(tmp_path / "a.tsv", lines, ("text", "label"))
    plain = Task("own")
    if mark.strip() not in ("-1", "-"):
        with pytest.raises(
            InputError, match="line 3: the label .* as in 1 of 3 rows. Drop these rows .--skip-unlabelled"
        ):
            find_labels(plain, path)
    with default_reading({"skip_unlabelled": True}):
        for source in (path, in_memory([(text, label) for text, label in lines])):
            task = find_labels(plain, source)
            assert (list(task.labels), read_rows(task, source).texts) == (["x", "y"], ["a", "c"])
        assert "a.tsv: 1 of 3 rows have no label and are left out: column label" in capfd.readouterr().err


def test_skipping_takes_null_and_missing_labels_and_not_a_missing_column(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": null}\n{"text": "b", "label": 1}\n{"text": "c"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "c.csv").write_text("text,label\na,\n")
    with default_reading({"skip_unlabelled": True}):
        assert read_rows(Task("own", labels={"1": "one", "2": "two"}), tmp_path / "a.jsonl").texts == ["b"]
        frame = in_memory({"text": ["a", "b"], "label": [float("nan"), 2.0]})
        assert read_rows(Task("own", labels={"2.0": "two", "1": "one"}), frame).texts == ["b"]
        with pytest.raises(InputError, match="b.jsonl, line 1 has no column 'label'"):
            read_rows(Task("own"), tmp_path / "b.jsonl")
        with pytest.raises(InputError, match="none of its 1 rows has a label: column label. Predict such a file"):
            find_labels(Task("own"), tmp_path / "c.csv")
