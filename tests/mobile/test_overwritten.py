"""A model or an index that is overwritten in place while it is open: told."""

import os
import shutil

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.runtime import StoredIndex, load
from kerasbert.mobile.runtime.stored_index import write
from tests.mobile.test_files import EXPECTED, FILES, TEXTS

NAMES = list(EXPECTED)


def fill(path, source):
    """Another file's bytes in the same inode."""
    with open(path, "r+b") as file:
        file.truncate()
        file.write(source.read_bytes())
    os.utime(path, ns=(1, 1))  # a clock that is coarse cannot hide it


@pytest.fixture
def model(tmp_path):
    shutil.copy(FILES / NAMES[0], tmp_path / "a.tflite")
    return load(tmp_path / "a.tflite", cache=False)


def test_another_file_is_told_and_a_renamed_one_changes_nothing(model, tmp_path):
    before = model.outputs(TEXTS)
    shutil.copy(FILES / NAMES[1], tmp_path / "new")
    os.replace(tmp_path / "new", tmp_path / "a.tflite")
    assert (model.outputs(TEXTS) == before).all()
    os.unlink(tmp_path / "a.tflite")
    assert (model.outputs(TEXTS) == before).all()


@pytest.mark.parametrize("content", ["other", "cut"])
def test_a_file_that_was_written_over_is_told(model, tmp_path, content):
    source = FILES / NAMES[1] if content == "other" else tmp_path / "cut"
    (tmp_path / "cut").write_bytes(b"")
    fill(tmp_path / "a.tflite", source)
    for _ in range(2):
        with pytest.raises(InputError, match=r"a\.tflite was overwritten while it is open: open it again"):
            model.outputs(TEXTS)


def test_the_same_bytes_again_are_the_same_file(model, tmp_path):
    before = model.outputs(TEXTS)
    os.utime(tmp_path / "a.tflite", ns=(1, 1))
    assert (model.outputs(TEXTS) == before).all()


def test_an_index_is_told_too(tmp_path):
    runner, path = load(FILES / "vectors.tflite", cache=False), tmp_path / "x.kbindex"
    write(runner, [("1", "the happy cat"), ("2", "stone house")], path)
    index = StoredIndex(runner, path)
    first = index.nearest("stone", 1)
    os.utime(path, ns=(1, 1))
    assert index.nearest("stone", 1) == first
    (tmp_path / "cut").write_bytes(path.read_bytes()[:70])
    fill(path, tmp_path / "cut")
    os.utime(path, ns=(2, 2))
    with pytest.raises(InputError, match="was overwritten while it is open"):
        index.nearest("stone", 1)
