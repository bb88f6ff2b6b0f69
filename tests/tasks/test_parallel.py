"""Folders of two files whose lines belong together."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.task import find_task, read_rows, split_files


def rows(folder, files, **columns):
    for name, text in files.items():
        (folder / name).write_text(text)
    task = find_task("translation", **columns)
    return {split: read_rows(task, source).texts for split, source in split_files(folder, task=task).items()}


@pytest.mark.parametrize(
    ("one", "other", "columns"),
    [
        ("train.src", "train.tgt", {}),
        ("train.source", "train.target", {}),
        ("src-train.txt", "tgt-train.txt", {}),
        ("train.en", "train.de", {"text": "en", "text_b": "de"}),
        ("train.de-en.en", "train.de-en.de", {"text": "en", "text_b": "de"}),
    ],
)
def test_lines_that_belong_together(tmp_path, capsys, one, other, columns):
    found = rows(tmp_path, {one: "a\n\nb\n", other: "c\n\nd", one.replace("train", "valid"): "x"}, **columns)
    assert found == {"train": [("a", "c"), ("b", "d")]}
    assert "(2 rows; 1 empty in both are dropped)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.de": "a", "train.en": "b"}, "which is the source.*--text-column de --text-b-column en, or the other"),
        ({"train.src": "a\nb", "train.tgt": "c"}, "train.src has 2 lines and train.tgt 1, expected as many"),
        ({"train.src": "a\nb", "train.tgt": "c\n\n"}, "train.tgt, line 2 is empty, and train.src has a text there"),
        ({"train.src": "\n", "train.tgt": "\n"}, "hold no text"),
        ({"train.src": "a"}, "holds no train or dev file"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, files, message):
    with pytest.raises(InputError, match=message):
        rows(tmp_path, files)
