"""Rows in memory are read as those of a file."""

import gzip
import json

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.data import dialects
from kerasbert.data.texts import opened
from kerasbert.errors import InputError
from kerasbert.tasks import tables
from kerasbert.tasks.base import Task
from kerasbert.tasks.tables import Memory, digest, in_memory, is_table
from kerasbert.tasks.task import find_labels, find_task, read_rows, split_files
from tests.support import forgotten

ROWS = [("the cat", "1"), ("the dog", "0"), ("a\tb", "1")]


class Frame:
    """What a DataFrame has of a table."""

    def __init__(self, **columns):
        self.held = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self.held[name]


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        [list(row) for row in ROWS],
        [{"text": text, "label": int(label)} for text, label in ROWS],
        {"text": [text for text, _ in ROWS], "label": np.array([1, 0, 1])},
        Frame(text=[text for text, _ in ROWS], label=np.array([1, 0, 1])),
        (row for row in ROWS),
        Memory(tuple(ROWS)),
    ],
    ids=["tuples", "lists", "dicts", "columns", "frame", "generator", "memory"],
)
def test_forms_of_rows_in_memory(data):
    (source,) = split_files(data).values()
    task = find_labels(find_task("classification"), source)
    rows = read_rows(task, source)
    assert list(task.labels) == ["0", "1"]
    assert (rows.texts, rows.targets.tolist()) == ([text for text, _ in ROWS], [1, 0, 1])


def test_pairs_in_memory():
    task = find_task("regression", text_b="text_b")
    for data in ([("a", "b", 1.5)], [(("a", "b"), 1.5)], [{"text": "a", "text_b": "b", "label": 1.5}]):
        rows = read_rows(task, in_memory(data))
        assert (rows.texts, rows.targets.tolist()) == ([("a", "b")], [1.5])


def test_train_and_dev_may_each_be_rows(tmp_path):
    path = tmp_path / "dev.csv"
    for data in (
        {"train": ROWS, "dev": path},
        {"train": ROWS, "validation": path},
        (ROWS, path),
        [Frame(text=["x"], label=["1"]), str(path)],
    ):
        found = split_files(data)
        assert (list(found), type(found["train"]), found["dev"]) == (["train", "dev"], Memory, path)
    assert list(split_files((ROWS, ROWS))) == ["train", "dev"]
    assert list(split_files(ROWS[:2])) == ["train"]
    assert not is_table([tmp_path, path])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([("x", "1"), ("y",)], "the rows in memory, row 1: 1 values, expected 2"),
        ([{"text": "x", "label": "1"}, {"text": "x"}], "row 1 has no column 'label'. It has: text"),
        ([("x", "1"), ("y", None)], r"row 1: the label \(column 'label'\) is empty, as in 1 of 2 rows"),
        ([("x", "1"), ("y", float("nan"))], "row 1: the label"),
        ([{"text": 5, "label": "1"}, {"text": ["x"], "label": "1"}], "row 1: column 'text' holds no text"),
        ({"text": ["x", "y"], "label": ["1"]}, "different lengths: text 2, label 1"),
        (5, "data is a int, expected a file, a folder or rows in memory"),
        ([1, 2], "data holds a int, expected a file or rows in memory"),
        ([("x", "1"), None], "the rows in memory, row 1: a NoneType, expected a dict or"),
        (iter([1, 2]), "the rows in memory, row 0: a int, expected a dict or"),
        ({"train": 5}, "data holds a int, expected a file or rows in memory"),
    ],
)
def test_wrong_rows_in_memory_are_named(data, text):
    def read():
        (source,) = split_files(data).values()
        read_rows(find_labels(find_task("classification"), source), source)

    with pytest.raises(InputError, match=text):
        read()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"text": {"0": "a film", "1": "another"}, "label": {"0": 1, "1": 0}}, "an object"),
        ({"text": ["a film", "another"], "label": [1, 0]}, "a list"),
    ],
)
def test_a_json_of_whole_columns_is_told_how_rows_are_written(tmp_path, content, kind):
    """As pandas' to_json writes a table where it is not told otherwise."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    remedy = r'A row is an object of its own \(pandas: to_json\(path, orient="records", lines=True\)\)'
    with pytest.raises(InputError, match=f"x.json, line 1: column 'text' holds no text but {kind}. {remedy}"):
        read_rows(find_task("classification"), path)
    with pytest.raises(InputError, match=f"holds no text but {kind}. {remedy}. Name the text with --text-column"):
        list(opened(path, ("text",)))


def test_columns_that_are_not_named_are_told_how_they_go_in():
    """texts and labels side by side, as scikit-learn and Keras take them."""
    with pytest.raises(
        InputError, match=r"row 0: a str, .*Columns go in as one dict: \{'text': \[...\], 'label': \[...\]\}"
    ):
        read_rows(find_task("classification"), in_memory(["a film", "another"]))


def test_the_digest_tells_rows_apart():
    same = digest(in_memory([("x", 1), ("y", 0)]))
    assert same == digest(in_memory([["x", "1"], ["y", np.int64(0)]])) != digest(in_memory([("x", 1), ("y", 1)]))


def test_a_task_says_how_its_files_are_called_and_read(tmp_path):
    def read(path, task):
        rows = [line.split("|") for line in path.read_text().splitlines()]
        return [(i, dict(zip((task.text, task.label), row))) for i, row in enumerate(rows, 1)]

    with forgotten():
        registry.register_reader("bars", read)
        task = Task("bars", reader="bars", files={"train": ("first*.txt",), "dev": ("second.txt",)})
        for name, text in (("first-1", "a b|x\nc|y\n"), ("second", "d\n"), ("train", "text\tlabel\n")):
            (tmp_path / f"{name}.txt").write_text(text)
        assert Task.from_json(task.to_json()).files == task.files
        found = split_files(tmp_path, task=task)
        assert {split: path.name for split, path in found.items()} == {"train": "first-1.txt", "dev": "second.txt"}
        rows = read_rows(find_labels(task, found["train"]), found["train"])
        assert (rows.texts, rows.targets.tolist()) == (["a b", "c"], [0, 1])
        with pytest.raises(
            InputError, match=r"second\.txt holds no label: a file without answers can only be predicted"
        ):
            read_rows(task, found["dev"])
        assert read_rows(task, found["dev"], targets=False).texts == ["d"]
        (tmp_path / "nothing").mkdir()
        with pytest.raises(InputError, match=r"holds no first\*\.txt, second\.txt or one ending in"):
            split_files(tmp_path / "nothing", task=task)
    with pytest.raises(InputError, match="no reader of a task's files 'bars'"):
        read_rows(task, tmp_path / "second.txt")


def test_packed_files_of_a_folder_are_found(tmp_path):
    """dev.csv.gz beside train.csv was left out without a word, and rows of the training were held out."""
    (tmp_path / "train.csv").write_text("text,label\na,x\n")
    (tmp_path / "dev.csv.gz").write_bytes(gzip.compress(b"text,label\nb,x\n"))
    found = split_files(str(tmp_path))
    assert {split: path.name for split, path in found.items()} == {"train": "train.csv", "dev": "dev.csv.gz"}
    assert read_rows(find_task("classification"), found["dev"], targets=False).texts == ["b"]


@pytest.mark.parametrize(
    ("data", "table"),
    [
        ([("a", "b")], True),
        ([["a", 1]], True),
        ([("a",)], False),  # one thing is no row
        ([("a", ["x", "y"])], True),
        ([(("a", "b"), "c")], True),
        ([(["a"], ["b"])], False),  # (train, dev) of lists
        ([("a", [1, 2])], False),
        ([("a", "b", ["c"])], True),
        ([(["a"], "b", ["c"])], False),
        ([([("a", "b")], [("c", "d")])], False),
        ([{"text": "a"}], True),
        ([{"text": ["a"]}], False),  # a dict of columns: a split
        ([], False),
        ({}, False),
        ({"text": ["a"], "label": ["b"]}, True),
        ({"train": [("a", "b")]}, False),
        ({"train": [{"text": "a"}]}, False),
        ({"train": "a.csv"}, False),
        ("a.csv", False),
        (b"a.csv", False),
        (3, False),
        (Frame(text=["a"]), True),
        ({"train": Frame(text=["a"])}, False),
        (iter([("a", "b")]), True),
    ],
)
def test_what_is_a_table_in_memory(data, table):
    assert is_table(data) is table


def test_values_as_a_file_of_json_would_give_them():
    values = [None, float("nan"), np.float32("nan"), "a", True, 1, 0.5, np.int64(3), ["a"]]
    assert [tables._text(value) for value in values] == ["", "", "", "a", "true", "1", "0.5", "3", ["a"]]


def test_a_run_reads_its_own_files_as_it_read_them(tmp_path):
    (tmp_path / "own.csv").write_text("a;b\n")
    (tmp_path / "other.csv").write_text("c;d\n")
    own, other = (tmp_path / name for name in ("own.csv", "other.csv"))
    reading = {"delimiter": ";"}
    described = {"settings": {"reading": reading, "data": {"train": digest(own)}}}
    seen = []

    def read(*sources, about=described):
        with tables.reading_of(about, *sources):
            seen.append(dialects.current().delimiter)
        return seen[-1]

    assert read(own) == read(other, own) == ";"
    assert read(other) != ";"
    assert read(own, about=None) == read(own, about={"settings": {"reading": reading}}) == read(other)
    assert read(own, about={"settings": {"data": {"train": digest(own)}}}) == read(other)


def test_lists_that_pandas_gives_as_arrays_are_lists():
    """As of `read_parquet` and of `to_pandas` of a datasets.Dataset."""
    task = find_task("ner", labels={"O": "O", "B-X": "B-X"})
    for words, tags in ((["a", "b"], ["O", "B-X"]), (["a"], ["O"])):
        plain = in_memory([{"words": words, "tags": tags}])
        arrays = in_memory([{"words": np.array(words, object), "tags": np.array(tags)}])
        one, other = read_rows(task, plain), read_rows(task, arrays)
        assert (other.texts, other.labels) == (one.texts, one.labels) == ([(tuple(words),)], [tags])
        assert digest(arrays) == digest(plain)
    numbered = find_task("ner", labels={"0": "O", "1": "B-X"})
    assert read_rows(numbered, in_memory([(np.array(["a", "b"]), np.array([0, 1]))])).targets[0].tolist() == [0, 1]
