"""What a column of labels may hold: nothing vanishes or becomes a class without a word."""

import re

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import labels
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.labels import remarks
from kerasbert.tasks.task import find_labels, find_task, read_rows


def table(path, labels, header="text,label"):
    path.write_text("\n".join([header, *(f"text {i},{label}" for i, label in enumerate(labels))]) + "\n")
    return path


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["pos", "", "neg", " "], r"a.csv, line 3: the label \(column 'label'\) is empty, as in 2 of 4 rows"),
        (["pos", "neg", "#N/A"], r"a.csv, line 4: the label \(column 'label'\) is '#N/A', as in 1 of 3 rows"),
        (["pos", "neg", "nan", "nan"], r"a.csv, line 4: the label \(column 'label'\) is 'nan', as in 2 of 4 rows"),
        (["None", "neg", "pos"], r"line 2: the label \(column 'label'\) is 'None'"),
        (
            [f"{i / 7:.5f}" for i in range(300)],
            "300 different numbers in column 'label' of 300 rows.*--task regression",
        ),
        ([str(i) for i in range(30)] + ["1"], "30 different numbers in column 'label' of 31 rows"),
        (["pos", "pos "], "one label only in column 'label': 'pos'"),
    ],
)
def test_what_is_no_label_is_refused_with_file_and_line(tmp_path, labels, text):
    with pytest.raises(InputError, match=text):
        find_labels(find_task("classification"), table(tmp_path / "a.csv", labels))


def test_a_json_null_is_an_empty_label(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "label": "a"}\n{"text": "y", "label": null}\n')
    with pytest.raises(InputError, match=r"a.jsonl, line 2: 'label' is null"):
        find_labels(find_task("classification"), path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = table(tmp_path / "a.csv", ["pos,1", "neg,0"], header="text,label,label")
    with pytest.raises(InputError, match=r"a.csv: two columns are named 'label'"):
        find_labels(find_task("classification"), path)


@pytest.mark.parametrize(
    "labels",
    [
        [f"{i / 2}" for i in range(11)] * 2,  # half points
        [str(i) for i in range(40)] * 2,  # numbers as names
        [f"city {i}" for i in range(40)],
    ],
)
def test_classes_that_look_unusual_stay_classes(tmp_path, labels):
    task = find_labels(find_task("classification"), table(tmp_path / "a.csv", labels))
    assert len(task.labels) == len(set(labels))


def test_space_around_a_label_is_no_class_of_its_own(tmp_path):
    path = table(tmp_path / "a.csv", ["pos", "pos ", " neg", "neg"])
    task = find_labels(find_task("classification"), path)
    assert list(task.labels) == ["neg", "pos"]
    rows = read_rows(task, path)
    assert rows.targets.tolist() == [1, 1, 0, 0]
    (line,) = remarks(path, rows.labels)
    assert line.endswith("2 labels have space around them, such as 'pos ', which is read as 'pos'")


def test_labels_that_a_task_declares_are_read_as_they_are(tmp_path):
    task = find_task("classification")
    task = type(task)("old", labels={"": "", "nan": "nan", "pos ": "pos ", "pos": "pos"})
    rows = read_rows(task, table(tmp_path / "a.csv", ["", "nan", "pos ", "pos", " pos"]))
    assert rows.targets.tolist() == [0, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            ["Pos", "pos", "pos", "neg"],
            r"differ in case alone are classes of their own: 'Pos' \(1 rows\), 'pos' \(2 rows\)",
        ),
        (["a", "b", "a,b", "b,c"], r"such as 'a,b' look like several in one cell.*\(4 classes\)"),
        (["a", "b", "a|b", "b"], "such as 'a.b' look like several"),
        (["neg"] * 30 + ["pos"], "96.8% of the labels are 'neg'"),
        ([f"label {i}" for i in range(25)], "25 labels in 25 rows: is it the label column?"),
    ],
)
def test_what_a_user_cannot_see_of_the_labels_is_said(labels, text):
    lines = remarks("a.csv", labels)
    assert [line for line in lines if re.search(text, line)], lines


@pytest.mark.parametrize(
    "labels", [["a", "b"], ["Smith, John", "Smith, Anna", "Doe, Jane"], ["Albany, NY", "Troy, NY"]]
)
def test_ordinary_labels_are_no_remark(labels):
    assert remarks("a.csv", labels) == []


def test_targets_are_standardised_exactly_and_back():
    task = find("regression").fitted(find_task("regression"), "a.csv", np.array([1000, 2000, 2000, 1000], "float32"))
    assert (task.mean, task.std) == (1500.0, 500.0)
    assert find("regression").scaled(task, np.array([1000, 2500], "float32")).tolist() == [-1.0, 2.0]
    assert type(task).from_json(task.to_json()) == task
    with pytest.raises(
        InputError, match=r"all 3 numbers in column 'label' of the training rows are 5, expected different"
    ):
        find("regression").fitted(find_task("regression"), "a.csv", np.full(3, 5.0))


@pytest.mark.parametrize(("label", "shown"), [('["pos"]', r"\['pos'\]"), ('{"name": "pos"}', r"\{'name': 'pos'\}")])
def test_a_label_within_something_is_no_label(tmp_path, label, shown):
    """They became classes called "['pos']"."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "a film {i}", "label": {label}}}\n' for i in range(3)))
    with pytest.raises(
        InputError, match=rf"line 1: the label \(column 'label'\) is {shown}, expected one text.*multi_label"
    ):
        find_labels(find_task("classification"), path)


def test_texts_that_stand_there_with_different_labels_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na film,pos\na film, pos\nthe cat,pos\nthe cat,neg\nthe cat,neg\nthe dog,neg\n")
    task = find_labels(find_task("classification"), path)
    told = [line for line in task.how.told(path, read_rows(task, path)) if "different labels" in line]
    assert told == [f"{path}: 1 inputs stand there with different labels, such as the cat (pos and neg)"]
    path = tmp_path / "a.conll"
    path.write_text("Zoe B-PER\nsang O\n\nZoe O\nsang O\n\nEve B-PER\n\n")
    task = find_labels(find_task("ner"), path)
    assert "1 inputs stand there with different labels" in task.how.told(path, read_rows(task, path))[-1]


def numbered(count):
    return [f"{i}.5" for i in range(count)]


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        (["a", "a"], "has one label only in column 'c': 'a'; expected at least two"),
        (["a", "b"], ""),
        (numbered(20), ""),  # so many may be classes, whatever their rows
        (numbered(21) * 4, "has 21 different numbers in column 'c' of 84 rows, which would be 21 classes"),
        (numbered(21) * 5, ""),
        ([str(i) for i in range(21)], "has 21 different numbers in column 'c' of 21 rows"),
        ([str(i) for i in range(21)] * 2, ""),
        ([*numbered(21), "a"], ""),  # a name among them
        ([f"c{i}" for i in range(labels.MOST)], ""),
        ([f"c{i}" for i in range(labels.MOST + 1)], f"has {labels.MOST + 1} different labels in column 'c'"),
    ],
)
def test_the_edges_of_a_column_of_classes(values, refused):
    if not refused:
        labels.check_classes("a.csv", "c", values)
        return
    with pytest.raises(InputError, match=f"a.csv {refused}"):
        labels.check_classes("a.csv", "c", values)


TWO = Task("x", labels={"0": "no", "1": "yes"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a, b", ["a", "b"]),
        (["a", " b "], ["a", "b"]),
        ("a", ["a"]),
        ("a,,b", None),
        ("a,a", None),
        (["a", ""], None),
        ("", None),
    ],
)
def test_names_that_are_given(given, expected):
    if expected is None:
        with pytest.raises(InputError, match="expected different names, with commas between"):
            labels.names_of(given)
        return
    assert labels.names_of(given) == expected


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (["yes", "no"], {"1": "yes", "0": "no"}),
        (["yes", "so", "no"], {"1": "yes", "so": "so", "0": "no"}),
        (["yes"], None),
        (["so", "no"], None),
    ],
)
def test_a_head_that_is_kept_orders_the_labels_where_it_has_them_all(kept, expected):
    found = labels.as_head(TWO, kept)
    assert found is TWO if expected is None else list(found.labels.items()) == list(expected.items())
    twice = Task("x", labels={"0": "no", "1": "no"})
    assert labels.as_head(twice, ["no"]) is twice


def test_the_label_that_is_asked_for():
    logits = np.array([[0.5, 2.0]])
    assert [labels.number(TWO, logits, target) for target in (None, "no", "yes", "0", "1")] == [1, 0, 1, 0, 1]
    assert labels.number(TWO, None, None) == 0
    with pytest.raises(InputError, match="no label 'yess'. Nearest: 'yes'"):
        labels.number(TWO, logits, "yess")
    assert labels.untargeted("span", None) is None
    with pytest.raises(InputError, match="a span is explained by its answer alone, received the target 'x'"):
        labels.untargeted("span", "x")


def test_lines_of_labels_without_dev_rows_and_of_numbers():
    assert labels.absent([]) == []
    assert labels.absent(["a"]) == ["no dev row has the label 'a'"]
    assert labels.absent([f"l{i}" for i in range(12)])[0].endswith("'l8', 'l9'")
    columns = [[0.5, 1], [1, 0], [0.25, 0.5], [0.75, 1], [3.0, 4.0]]
    assert labels.told(TWO, columns) == {
        "no": {"precision": 0.5, "recall": 1.0, "f1": 0.25, "roc_auc": 0.75, "rows": 3},
        "yes": {"precision": 1.0, "recall": 0.0, "f1": 0.5, "roc_auc": 1.0, "rows": 4},
    }
    assert labels.ordered(["10", "9", "9.0"]) == ["9", "9.0", "10"]
    assert labels.ordered(["b", "10", "9"]) == ["10", "9", "b"]


SEVERAL = Task("x", kind="multi_label", label="a,b")


@pytest.mark.parametrize(
    ("cells", "expected"), [(("1", "0"), ["a"]), ((" 1 ", "TRUE"), ["a", "b"]), (("false", 0), [])]
)
def test_columns_of_0_and_1(cells, expected):
    rows = [(2, {"text": "x", "a": cells[0], "b": cells[1]})]
    assert labels.joined(SEVERAL, "a.csv", rows)[0][1][SEVERAL.label] == expected
    assert labels.joined(TWO, "a.csv", rows) is rows
    already = [(2, {"a,b": ["a"]})]
    assert labels.joined(SEVERAL, "a.csv", already) == already


@pytest.mark.parametrize(("cell", "hint"), [("2", False), ("", True), ("nan", True), ("x", False)])
def test_columns_of_something_else(cell, hint):
    with pytest.raises(InputError, match="a.csv, line 2: column 'b' is .*, expected 0 or 1") as error:
        labels.joined(SEVERAL, "a.csv", [(2, {"text": "x", "a": "1", "b": cell})])
    assert ("--skip-unlabelled" in str(error.value)) == hint


@pytest.mark.parametrize(
    ("wanted", "answered", "told"),
    [
        ([50, 50], [97, 3], True),
        ([50, 50], [91, 9], True),
        ([50, 50], [90, 10], True),  # five times as often wanted as answered
        ([50, 50], [89, 11], False),
        ([100, 0], [100, 0], False),
    ],
)
def test_answers_that_are_nearly_one_label(wanted, answered, told):
    found = labels.nearly_one(np.repeat([0, 1], wanted), np.repeat([0, 1], answered), ["a", "b"])
    assert bool(found) == told
    few = labels.nearly_one(np.repeat([0, 1], [20, labels.FEWEST]), np.zeros(20 + labels.FEWEST, int), ["a", "b"])
    assert few
    assert not labels.nearly_one(
        np.repeat([0, 1], [20, labels.FEWEST - 1]), np.zeros(19 + labels.FEWEST, int), ["a", "b"]
    )
