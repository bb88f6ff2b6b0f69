"""Choices in columns of their own, and how their labels are understood."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import answer_tables, tables
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows

TASK = find_task("choice", text="question", label="answer")


def table(tmp_path, *lines):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("columns", "labels", "wanted", "how"),
    [
        ("A,B,C", "B,a", [1, 0], "the name of a choice"),
        ("A,B,C", "1,3", [0, 2], "its number from 1"),
        ("choice1,choice2", "0,1", [0, 1], "its number from 0"),
        ("choice_0,choice_1", "choice_1,choice_0", [1, 0], "the name of a choice"),
        ("option_a,option_b", "option_b,A", [1, 0], "the name of a choice"),
        ("answer_1,answer_2", "u1,u0", [1, 0], "its text"),
        ("sent1,sent2,ending0,ending1", "1,0", [1, 0], "its number from 0"),
    ],
)
def test_columns_of_choices_and_every_form_of_a_label(tmp_path, capsys, columns, labels, wanted, how):
    width = len(columns.split(","))
    one, other = labels.split(",")
    cells = [["t1", "u1", "v1", "w1"][:width], ["u0", "t0", "v0", "w0"][:width]]
    path = table(
        tmp_path, f"question,{columns},answer", *(",".join(["q", *row, x]) for row, x in zip(cells, (one, other)))
    )
    rows = read_rows(TASK, path)
    skipped = 2 if columns.startswith("sent") else 0
    assert rows.texts == [("q", tuple(row[skipped:])) for row in cells]
    assert rows.targets.tolist() == wanted
    used = ", ".join(columns.split(",")[skipped:])
    assert capsys.readouterr().err == f"{path}: choices are the columns {used}; the label (answer) is {how}\n"
    assert [text for _, text in answer_tables.read(path, TASK.parts, TASK).texts()] == [text for _, text in rows.texts]


def test_a_file_is_read_once_whatever_its_columns(tmp_path, monkeypatch):
    read, count = tables.numbered_table, []
    monkeypatch.setattr(tables, "numbered_table", lambda *a, **k: count.append(a) or read(*a, **k))
    columns = table(tmp_path, "question,A,B,answer", "q,t,u,B")
    lists = tmp_path / "lists.jsonl"
    lists.write_text('{"question": "q", "choices": ["t", "u"], "answer": 1}\n')
    for path in (columns, lists):
        count.clear()
        rows = read_rows(TASK, path)
        assert (rows.texts, rows.targets.tolist(), len(count)) == ([("q", ("t", "u"))], [1], 1)
    in_a_row = in_memory([("q", ["t", "u"]), ("r", ["v", "w"])])
    assert read_rows(TASK, in_a_row, targets=False).texts == [("q", ("t", "u")), ("r", ("v", "w"))]
    lists.write_text(lists.read_text() + '{"question": "q", "answer": 1}\n')
    with pytest.raises(InputError, match="line 2 has no column 'choices'"):
        read_rows(TASK, lists)


def test_an_empty_cell_is_no_choice_and_columns_may_be_named(tmp_path):
    held = {"question": ["q", "r"], "A": ["x", "y"], "B": ["u", None], "C": ["v", "z"], "answer": [1, 3]}
    rows = read_rows(TASK, in_memory(held))
    assert (rows.texts, rows.targets.tolist()) == ([("q", ("x", "u", "v")), ("r", ("y", "z"))], [0, 1])
    named = find_task("choice", text="question", text_b="good,bad", label="answer")
    path = table(tmp_path, "question,good,bad,answer", "q,a,b,bad", "q,c,d,good")
    assert read_rows(named, path).targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ("question,A,B,C,answer", "q,a,b,c,1", "q,d,e,f,2"),
            "line 2: label '1' .* may be its number from 0 or its number from 1, and both fit all 2 rows: write A, B",
        ),
        (("question,A,B,answer", "q,2,1,1", "q,1,2,2"), "line 2: label '1' .* may be its number from 1 or its text"),
        (("question,A,B,answer", "q,a,b,A", "q,d,e,x"), "line 3: label 'x' .* is no choice, expected the name of the"),
        (("question,A,B,C,answer", "q,a,,c,B"), "line 2: label 'B' .* is no choice"),
        (("question,A,B,answer", "q,a,,A"), "line 2: 1 of A, B hold a choice, expected two"),
        (("question,x1,x2,y1,y2,answer", "q,a,b,c,d,0"), "Pass --text-b-column x1,x2 or y1,y2"),
        (("question,A,C,answer", "q,a,b,0"), "has no column 'choices'"),
    ],
)
def test_what_may_mean_two_things_is_refused(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        read_rows(TASK, table(tmp_path, *lines))
