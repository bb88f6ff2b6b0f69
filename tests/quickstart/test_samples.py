"""The samples of the guides: the same each time, right by construction, read by their tasks; and the guides shown."""

import csv
import io
import json

import pytest

from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.quickstart import samples
from tests.support import python


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All of them."""
    folder = tmp_path_factory.mktemp("samples") / "new"
    samples.write(folder)
    return folder


def test_they_are_the_same_each_time_and_each_is_described(folder):
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {".kerasbert"}
    assert written == samples.ABOUT.keys()
    assert samples.contents() == {name: (folder / name).read_text(encoding="utf-8") for name in samples.ABOUT}


def test_no_passage_of_the_test_is_among_the_training_ones(folder):
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("novels.csv", "novels-test.csv")]
    train, test = (list(csv.DictReader(io.StringIO(text))) for text in texts)
    assert not {row["text"] for row in train} & {row["text"] for row in test}
    counts = {row["author"]: sum(each["author"] == row["author"] for each in train) for row in train}
    assert counts == {"Austen": 150, "Carroll": 150, "Melville": 150}


def test_spans_and_answers_stand_where_they_say(folder):
    for line in (folder / "spans.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for span in row["entities"]:
            held = row["text"][span["start"] : span["end"]]
            assert held == held.strip() != ""
            assert span["label"] in ("PER", "LOC")
    for name in ("train", "dev"):
        for article in json.loads((folder / f"questions/{name}.json").read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                (question,) = paragraph["qas"]
                (answer,) = question["answers"]
                assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])


def test_columns_and_spans_tell_the_same_entities(folder):
    """B- tags of the CoNLL file are as many as spans of the jsonl, which holds the same sentences."""
    begun = (folder / "entities/train.conll").read_text(encoding="utf-8").count(" B-")
    rows = [json.loads(line) for line in (folder / "spans.jsonl").read_text(encoding="utf-8").splitlines()]
    assert begun == sum(len(row["entities"]) for row in rows) > 300


@pytest.mark.parametrize(
    ("task", "name", "columns"),
    [
        ("classification", "novels.csv", {"label": "author"}),
        ("multi_label", "tags.csv", {"label": "labels"}),
        ("ner", "entities/dev.conll", {}),
        ("squad", "questions/dev.json", {}),
        ("choice", "choices.jsonl", {}),
        ("sts", "pairs.csv", {}),
        ("translation", "translations.csv", {}),
    ],
)
def test_its_task_reads_each(folder, task, name, columns):
    from kerasbert.tasks.task import find_task, table

    found = find_task(task, **columns)
    rows = table(found, folder / name, [*found.parts, found.label] if found.label else list(found.parts))
    assert len(rows) > 80


def test_a_folder_that_holds_something_is_refused(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("of a user")
    with pytest.raises(InputError, match="exists already"):
        samples.write(tmp_path)
    assert main(["samples", str(tmp_path), "--overwrite"]) == 2
    assert "was not written by kerasbert" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_command_writes_them_without_tensorflow(tmp_path):
    code = (
        "import sys; from kerasbert.cli import main; main(['samples', sys.argv[1]]); print('tensorflow' in sys.modules)"
    )
    done = python("-c", code, tmp_path / "new")
    assert done.stdout.splitlines()[-1] == "False"
    assert "novels.csv  " in done.stdout


def test_docs_lists_the_guides_and_shows_one(capsys):
    assert main(["docs"]) == 0
    assert "  classify  " in (listed := capsys.readouterr().out)
    assert "  android  " in listed
    assert main(["docs", "classify"]) == 0
    assert capsys.readouterr().out.startswith("# Classify")
    assert main(["docs", "clasify"]) == 2
    assert capsys.readouterr().err == "error: no guide 'clasify'. Nearest: 'classify'. All: kerasbert docs\n"


def test_a_pager_is_for_a_terminal_alone(monkeypatch):
    """Both streams are a terminal's: the page goes through it."""
    import pydoc
    import sys

    shown = []
    monkeypatch.setattr(pydoc, "pager", shown.append)
    monkeypatch.setattr(sys, "stdin", type("T", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["docs", "classify"]) == 0
    assert shown[0].startswith("# Classify")
