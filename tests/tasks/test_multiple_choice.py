"""The files of SWAG and RACE."""

import json

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.task import find_task, read_rows, split_files


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"


def test_swag(tmp_path):
    row = '0,v,1,x,"A man, old.",He,gold,"runs, fast.",sits.,falls.,sees.,2'
    write(tmp_path / "train.csv", HEADER, row), write(tmp_path / "val.csv", HEADER, row)
    task = find_task("swag")
    files = split_files(tmp_path, task=task)
    assert {split: path.name for split, path in files.items()} == {"train": "train.csv", "dev": "val.csv"}
    rows = read_rows(task, files["train"])
    assert rows.texts == [("A man, old.", ("He runs, fast.", "He sits.", "He falls.", "He sees."))]
    assert rows.targets.tolist() == [2]
    test = write(tmp_path / "test.csv", HEADER.removesuffix(",label"), row.removesuffix(",2"))
    assert read_rows(task, test, targets=False).texts == rows.texts
    with pytest.raises(
        InputError, match="test.csv has no column .label..*A file without answers can only be predicted"
    ):
        read_rows(task, test)


ARTICLE = {
    "article": "A cat sleeps.",
    "questions": ["The cat _ .", "Who sleeps?"],
    "options": [["runs", "sleeps"], ["a dog", "a cat", "a man"]],
    "answers": ["B", "B"],
    "id": "high1.txt",
}


def test_race(tmp_path):
    write(tmp_path / "train" / "high" / "1.txt", ARTICLE)
    write(tmp_path / "train" / "middle" / "2.txt", ARTICLE | {"answers": ["A", "C"]})
    write(tmp_path / "dev" / "high" / "3.txt", ARTICLE)
    task = find_task("race")
    files = split_files(tmp_path, task=task)
    rows = read_rows(task, files["train"])
    assert rows.texts[:2] == [
        ("A cat sleeps.", ("The cat runs .", "The cat sleeps .")),
        ("A cat sleeps.", ("Who sleeps? a dog", "Who sleeps? a cat", "Who sleeps? a man")),
    ]
    assert rows.targets.tolist() == [1, 1, 0, 2]
    lines = write(tmp_path / "all.jsonl", ARTICLE, ARTICLE)
    assert read_rows(task, lines).targets.tolist() == [1, 1, 1, 1]
    assert len(read_rows(task, files["dev"]).texts) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["B", "D"]}, r"a.txt, question 2: the answer 'D' is no option, expected one of A, B, C"),
        (
            {"answers": ["B"]},
            r"a.txt: questions, options and answers are 2, 2, 1, expected lists as long as each other",
        ),
        ({"options": [["a", "b"], 3]}, r"a.txt, question 2: expected a text and a list of texts as its options"),
        ({"article": None, "questions": None}, r"a.txt: questions, options and answers are NoneType"),
    ],
)
def test_wrong_articles_are_named(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read_rows(find_task("race"), write(tmp_path / "a.txt", ARTICLE | change))
    with pytest.raises(InputError, match=r"b.txt, line 1: no json"):
        read_rows(find_task("race"), write(tmp_path / "b.txt", "plain text"))
