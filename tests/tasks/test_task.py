"""Rows of a task: columns by number, files without answers, rows with and without labels, inputs of several texts."""

import dataclasses

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import task as tasks
from kerasbert.tasks.base import Task
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_labels, find_task, read_rows

COLUMNS = Task("x", kind="tags", text="words", label="tags", reader="columns:0,3")


@pytest.mark.parametrize(
    ("named", "reader"),
    [
        ({"text": "1"}, "columns:1,3"),
        ({"label": 2}, "columns:0,2"),
        ({"text": 1, "label": "4"}, "columns:1,4"),
        ({"text": "1", "label": "ner"}, "columns:1,3"),
        ({"text": "words"}, None),
        ({}, None),
    ],
)
def test_columns_of_a_file_by_their_numbers(named, reader):
    reads = dataclasses.replace(COLUMNS, reader=f"{tasks.COLUMNS}:0,3")
    found = tasks.by_number(reads, named)
    assert (found and found.reader) == (reader and reader.replace("columns", tasks.COLUMNS))
    if found:
        assert found.label == (named.get("label") if named.get("label") == "ner" else "tags")
    assert tasks.by_number(dataclasses.replace(reads, reader="swag"), named) is None
    bare = tasks.by_number(dataclasses.replace(reads, reader=tasks.COLUMNS), {"label": 2})
    assert bare.reader == f"{tasks.COLUMNS}:,2"


def test_inputs_of_rows_that_have_more_parts_than_are_answered():
    task = find_task("sts")
    assert tasks.answerable(task, [("a", "b"), ("c", ("d", "e"))]) == ["a", "b", "c", "d", "e"]
    assert tasks.answerable(task, ["a"]) == ["a"]
    pair = Task("x", text_b="b")
    rows = [("a", "b")]
    assert tasks.answerable(pair, rows) == rows
    assert tasks.answerable(pair, rows) is not rows
    assert (tasks.one(("a",)), tasks.one((b"a",)), tasks.one((("a", "b"),)), tasks.one(("a", "b"))) == (
        "a",
        b"a",
        (("a", "b"),),
        ("a", "b"),
    )


def test_rows_with_labels_before_those_without():
    task = Task("x", labels={"0": "no", "1": "yes"})
    train = tasks.Rows(["a", "b"], np.array([1, 0], "int32"))
    rows, there = tasks.joined(task, train, ["c"])
    assert (rows.texts, rows.targets.tolist(), there.tolist()) == (["a", "b", "c"], [1, 0, 0], [1, 1, 0])
    assert (rows.targets.dtype, there.dtype) == ("int32", "float32")
    rows, there = tasks.joined(task, None, ["c"])
    assert (rows.texts, there.tolist()) == (["c"], [0])
    words = Task("x", kind="tags", labels={"O": "O", "B-X": "B-X"})
    rows, there = tasks.joined(words, tasks.Rows(["a b"], [np.array([1, 0])]), ["c"])
    assert ([each.tolist() for each in rows.targets], there.tolist()) == ([[1, 0], [0]], [1, 0])
    with pytest.raises(InputError, match="empty corpus: neither train rows nor unlabelled texts"):
        tasks.joined(task, None, [])
    full, there = tasks.joined(task, train, [])
    assert (full.texts, there.tolist()) == (["a", "b"], [1, 1])


def test_a_file_whose_rows_lack_answers_is_named(tmp_path):
    task = Task("x", text="text", label="label")
    said = tasks._unanswered(task, tmp_path / "a", ["label"], {"id": 1, "text": "x"})
    assert said == f"{tmp_path / 'a'} holds no label: a file without answers can only be predicted"
    other = tasks._unanswered(task, tmp_path / "a", ["label"], {"text": "x", "labels": 1})
    assert "has no column 'label'" in other
    assert other.endswith("A file without answers can only be predicted")


def test_labels_are_looked_for_where_a_kind_has_them_and_the_task_names_none():
    rows = in_memory([("a", "x"), ("b", "y")])
    bare = Task("x")
    assert list(find_labels(bare, rows).labels) == ["x", "y"]
    named = dataclasses.replace(bare, labels={"x": "x"})
    assert find_labels(named, rows) is named
    number = Task("x", kind="regression")
    assert find_labels(number, rows) is number
    read = read_rows(bare, rows, targets=False)
    assert (read.texts, read.targets) == (["a", "b"], None)


SEVERAL = Task("x", kind="multi_label", label="p,q", labels={"p": "p", "q": "q"})


@pytest.mark.parametrize(
    ("rows", "targets"),
    [
        ([("a", ["p"]), ("b", [])], [[1, 0], [0, 0]]),
        ([("a", 1, 0), ("b", 0, 1)], [[1, 0], [0, 1]]),
        ([{"text": "a", "p": 1, "q": 1}], [[1, 1]]),
    ],
)
def test_several_labels_in_memory_are_a_list_or_a_number_each(rows, targets):
    assert read_rows(SEVERAL, in_memory(rows)).targets.tolist() == targets


@pytest.mark.parametrize(
    ("task", "rows", "said"),
    [
        (SEVERAL, [("a", 1, 0), ("b", 1)], r"row 1: 2 values, expected 3: \(text, p, q\)"),
        (Task("x", labels={"x": "x"}), [("a", "x"), ("b",)], r"row 1: 1 values, expected 2: \(text, label\)"),
        (Task("x", labels={"x": "x"}), [("a", "x"), {"text": "b"}], "row 1.*label"),
        (Task("x", labels={"x": "x"}), [{"text": "a"}], "label"),
    ],
)
def test_rows_in_memory_that_lack_labels_are_named(task, rows, said):
    with pytest.raises(InputError, match=said):
        read_rows(task, in_memory(rows))
