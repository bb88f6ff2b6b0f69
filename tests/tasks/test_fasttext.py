"""fastText's files of labelled texts."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import answer_tables
from kerasbert.tasks.task import find_labels, find_task, read_rows


def read(tmp_path, task, *lines):
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    task = find_labels(find_task(task), path)
    return task, read_rows(task, path)


def test_a_label_or_several(tmp_path, capsys):
    task, rows = read(tmp_path, "classification", "__label__good A  film", "", "so so __label__bad")
    assert (list(task.labels), rows.texts, rows.targets.tolist()) == (["bad", "good"], ["A  film", "so so"], [1, 0])
    lines = "__label__a,b A film", "__label__c __label__a,b so", "none\u00e9 at all", "__label__c x"
    task, rows = read(tmp_path, "multi_label", *lines)
    assert list(task.labels) == ["a,b", "c"]
    assert rows.targets.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]
    assert answer_tables.read(tmp_path / "train.txt", ("text",), task).texts()[1] == "so"
    assert "its labels (__label__...) are no part of the texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        (
            "classification",
            "__label__a __label__b x",
            "line 2: .*expected one text. Several labels of a text are --task",
        ),
        ("classification", "__label__ x", "line 2: the label .* is empty"),
        ("regression", "__label__1 x", "is a file of fastText .*--task classification or multi_label"),
        ("pairs", "__label__1 x", "is a file of fastText"),
    ],
)
def test_other_answers_are_refused(tmp_path, task, line, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, task, "__label__a y", line)
