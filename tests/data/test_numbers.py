"""Numbers as tables of people write them: decimal commas are read and told, what may be thousands is refused."""

import math

import pytest

from kerasbert.data.dialects import say
from kerasbert.data.numbers import parsed
from kerasbert.errors import InputError
from kerasbert.retrieval.judging import read
from kerasbert.tasks.labels import remarks
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows


@pytest.fixture(autouse=True)
def _fresh():
    say.cache_clear()


@pytest.mark.parametrize(
    ("cell", "value"),
    [("4,5", 4.5), ("-,5", -0.5), ("+12,25", 12.25), (" 0,125 ", 0.125), ("1234,567", 1234.567), ("4.5", 4.5), (3, 3)],
)
def test_a_comma_between_digits_is_a_decimal_one(cell, value):
    assert parsed(cell) == value


@pytest.mark.parametrize("cell", ["1,2,3", "1.234,5", "4,", ",", "", "four", None, "1, 5", "4,5 km", [1], {}, 10**400])
def test_what_is_no_number_stays_none(cell):
    assert math.isnan(parsed(cell))


@pytest.mark.parametrize("name", ["regression", "sts"])
def test_scores_of_excel_are_learned_and_told_once(name, tmp_path, capsys):
    task = find_task(name)
    columns = [task.text, *([task.text_b] if task.text_b else []), task.label]
    texts = ["ein Film", "noch einer"][: len(columns) - 1]
    rows = [";".join([*texts, score]) for score in ("4,5", "1", "0,25", "2,0")]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join([";".join(columns), *rows]) + "\n", encoding="utf-8-sig")
    assert read_rows(task, path).targets.tolist() == [4.5, 1, 0.25, 2]
    assert capsys.readouterr().err.splitlines()[1:] == [f"{path}: numbers with a comma, as 4,5, are read as decimals"]
    path.write_text("\n".join([";".join(columns), *rows, ";".join([*texts, "1,234"])]) + "\n")
    with pytest.raises(
        InputError, match="line 6: '1,234' is 1.234 with a decimal comma, or 1234 with one of thousands"
    ):
        read_rows(task, path)


def test_scores_in_memory_and_of_queries(tmp_path, capsys):
    rows = read_rows(find_task("regression"), in_memory([("a", "4,5"), ("b", 1.5)]))
    assert rows.targets.tolist() == [4.5, 1.5]
    assert "the rows in memory: numbers with a comma" in capsys.readouterr().err
    path = tmp_path / "relevant.csv"
    path.write_text("query;id;score\nwhale;3;0,5\n")
    assert read(path) == {"whale": {"3": 0.5}}


def test_classes_that_are_decimals_are_said_to_be_numbers():
    (told,) = remarks("a.csv", ["1,0", "1,5", "1", "5", "1,0", "5"])[-1:]
    assert "look like several in one cell, or like numbers with a decimal comma" in told
    assert "--task regression learns numbers" in told
    assert "--task regression" not in remarks("a.csv", ["a,b", "a", "b"])[-1]
