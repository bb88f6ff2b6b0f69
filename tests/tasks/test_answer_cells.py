"""Cells, ids and columns of a table of answers."""

import pytest

from kerasbert.tasks import answer_tables

FIELDS = ("label", "score")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (0.123456789, "0.123457"),
        (1e-9, "1e-09"),
        ("a\ud800", "a\ufffd"),
        (3, "3"),
        (True, "true"),
        (["a", 1], '["a", 1]'),
    ],
)
def test_a_value_as_a_cell(value, expected):
    assert answer_tables.cell(value) == expected


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a", "a"), ("a,b", '"a,b"'), ('a"b', '"a""b"'), ("a\nb", '"a\nb"'), ("a\rb", '"a\rb"'), ("a;b", "a;b"), ("", "")],
)
def test_a_cell_of_a_csv_is_quoted_where_it_must(text, quoted):
    assert answer_tables._quoted(text, ",") == quoted
    assert answer_tables._quoted("a;b", ";") == '"a;b"'


def test_ids_are_texts_and_a_missing_one_is_empty():
    assert [answer_tables.identity(row) for row in ({}, {"id": None}, {"id": 0}, {"id": "x"})] == ["", "", "0", "x"]


def test_columns_that_were_renamed_are_told():
    sheet = answer_tables.Sheet("csv", ["text", "label"], FIELDS)
    assert sheet.added == {"label": "predicted_label", "score": "score"}
    assert sheet.told() == ["the table has 'label' already: the answers are in predicted_label"]
    both = answer_tables.Sheet("csv", ["text", "label", "score"], FIELDS)
    assert both.told() == [
        "the table has 'label' and 'score' already: the answers are in predicted_label, predicted_score"
    ]
    for quiet in (
        answer_tables.Sheet("csv", ["text"], FIELDS),
        answer_tables.Sheet(answer_tables.BY_ID, ["label"], FIELDS),
        answer_tables.Sheet("csv", ["label"], FIELDS, answered=False),
    ):
        assert quiet.told() == []
    assert answer_tables.Sheet("csv", ["label"], FIELDS, answered=False).added == {}
