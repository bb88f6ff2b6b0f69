"""What changes while it is read is told; what lies beside it may change."""

import os

import pytest

from kerasbert.errors import InputError
from kerasbert.storage import steady

TOLD = "changed while it was read: give the same command again"


def replace(path, content):
    path.with_name("new").write_text(content)
    os.replace(path.with_name("new"), path)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("a\n")
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("a\nb\n"),
        lambda path: path.write_text(""),
        lambda path: replace(path, "b\n"),
        lambda path: path.unlink(),
    ],
)
def test_a_file_that_changes(file, change):
    with pytest.raises(InputError, match=f"rows.tsv {TOLD}"), steady.unchanged(file):
        change(file)
    with pytest.raises(InputError, match=TOLD), steady.unchanged(file.parent):
        file.write_text("more\n")  # times of files are coarse on older kernels
    with steady.unchanged(file, None, "a name", 3, {"rows": []}):
        pass


def test_the_error_of_a_mixture_is_told_by_its_cause(file):
    def read(change):
        with steady.unchanged(file):
            change()
            raise InputError("rows.tsv is damaged")

    with pytest.raises(InputError, match=TOLD):
        read(lambda: file.write_text("half"))
    with pytest.raises(InputError, match="is damaged"):
        read(lambda: None)


def test_of_a_model_that_is_trained_further_what_it_is_made_of(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    for name in ("model.json", "weights.safetensors", "tokenizer/vocab.txt", "metrics.jsonl"):
        (tmp_path / name).write_text("1")
    with steady.unchanged(tmp_path):
        (tmp_path / "metrics.jsonl").write_text("12")
        (tmp_path / "checkpoints").mkdir()
    for name in ("model.json", "weights.safetensors", "tokenizer/vocab.txt"):
        with pytest.raises(InputError, match=TOLD), steady.unchanged(tmp_path):
            replace(tmp_path / name, "1")


@pytest.mark.parametrize("now", [["a"], ["a", "b", "c"], ["b", "a"], []])
def test_rows_that_are_read_again(now):
    rows = steady.Rows("rows.tsv")
    for row in ("a", "b"):
        rows.note(row)
    assert list(rows.again(iter(["a", "b"]))) == ["a", "b"]
    with pytest.raises(InputError, match=f"rows.tsv {TOLD}"):
        list(rows.again(iter(now)))
