"""Texts as a caller gives them: a dict of columns, a DataFrame and a list of rows are the same input."""

import dataclasses

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.given import listed
from kerasbert.tasks.task import find_task


class Frame:
    """What is read of a DataFrame."""

    def __init__(self, columns):
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, name):
        return self._columns[name]


WORDS = [["the", "cat"], ["runs"]]
OTHER = dataclasses.replace(find_task("classification"), text="sentence")
# task -> columns that are there, and what is read; None: the column that lacks is named
CASES = {
    "no task": (None, {"text": ["a", "b"], "label": ["x", "y"]}, ["a", "b"]),
    "no task, another column": (None, {"sentence": ["a", "b"]}, "text"),
    "a text": (find_task("classification"), {"text": ["a", "b"], "words": ["c", "d"]}, ["a", "b"]),
    "a column of its own": (OTHER, {"text": ["a", "b"], "sentence": ["c", "d"]}, ["c", "d"]),
    "text, not its own": (OTHER, {"text": ["a", "b"]}, "sentence"),
    "a pair": (find_task("glue/rte"), {"sentence2": ["c", "d"], "sentence1": ["a", "b"]}, [("a", "c"), ("b", "d")]),
    "half a pair": (find_task("glue/rte"), {"sentence1": ["a", "b"], "text": ["a", "b"]}, "sentence2"),
    "words": (find_task("ner"), {"words": WORDS, "label": ["x", "y"]}, WORDS),
    "words and texts": (find_task("ner"), {"text": ["a", "b"], "words": WORDS}, WORDS),
    "texts in the place of words": (find_task("ner"), {"text": ["a", "b"], "other": ["c", "d"]}, ["a", "b"]),
    "neither": (find_task("ner"), {"other": ["c", "d"]}, "words"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("table", [dict, Frame])
def test_columns_that_are_read_are_those_of_the_task(name, table):
    task, columns, expected = CASES[name]
    if isinstance(expected, str):
        with pytest.raises(InputError, match=f"has no column '{expected}'. It has: {', '.join(columns)}"):
            listed(table(columns), task)
        return
    assert listed(table(columns), task) == expected


@pytest.mark.parametrize("texts", [{}, {"text": "a"}, {"text": b"a"}, {"text": 3}])
def test_a_dict_that_is_no_table(texts):
    with pytest.raises(InputError, match="texts is a dict, expected a list of texts"):
        listed(texts)


def test_one_text_is_a_list_of_one_and_what_is_none_is_refused(tmp_path):
    assert (listed("a"), listed(["a", "b"]), listed(iter(["a"]))) == (["a"], ["a", "b"], ["a"])
    with pytest.raises(InputError, match="texts is a int, expected a list of texts"):
        listed(3)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match="a.txt is a file, expected texts: read it"):
        listed(str(tmp_path / "a.txt"))
