"""What an index is made of, and an index itself, may change meanwhile."""

import os

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.retrieval import building
from kerasbert.retrieval.passages import Source
from tests import tiny

TEXTS = tiny.sentences(8, 0)


@pytest.fixture(scope="module")
def model():
    """An encoder in memory."""
    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    return encoder


@pytest.mark.parametrize("now", ["the cat\n", "the cat\nthe dog\na film\n", "the dog\nthe cat\n"])
def test_a_file_that_changes_meanwhile_is_told(model, tmp_path, now):
    """As many other texts were put beside the vectors of the old ones."""
    file = tmp_path / "texts.txt"
    file.write_text("the cat\nthe dog\n")
    source = Source(file)
    file.write_text(now)
    with pytest.raises(InputError, match="texts.txt changed while it was read: give the same command again"):
        building.build(model, source, tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_an_index_that_is_built_again_is_the_old_one_while_it_is_open(model, tmp_path):
    """Its vectors were the old ones and its texts the new ones."""
    kb.Index.build(model, TEXTS, tmp_path / "index")
    index = kb.Index(tmp_path / "index", model)
    kb.Index.build(model, [*reversed(TEXTS)], tmp_path / "index", overwrite=True)
    assert [index.search(text, top=1)[0].text for text in TEXTS] == TEXTS
    assert [passage.text for passage in map(index._texts.__getitem__, range(len(TEXTS)))] == TEXTS


@pytest.mark.parametrize("name", ["vectors.npy", "texts.jsonl", "places.npy"])
def test_an_open_index_whose_file_is_written_over_is_told(model, tmp_path, monkeypatch, name):
    """Its answers were of the new numbers, with a score or in one case a crash of numpy; from any current directory."""
    monkeypatch.chdir(tmp_path)
    kb.Index.build(model, TEXTS, "index")
    index, file = kb.Index("index", model), tmp_path / "index" / name
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    os.utime(file, ns=(1, 1))
    index.search(TEXTS[0])  # the same bytes
    with open(file, "r+b") as held:
        held.seek(-8, os.SEEK_END)
        held.write(bytes(8))
    os.utime(file, ns=(2, 2))  # a clock that is coarse cannot hide it
    told = f"^index/{name} was overwritten while it is open: open it again"
    with pytest.raises(InputError, match=told):
        index.search(TEXTS[0])
    with pytest.raises(InputError, match=told):
        index.nearest(np.ones((1, index.width)), 1)


@pytest.mark.parametrize("at", ["about", "check_files"])
def test_an_index_that_is_built_again_while_it_is_opened(model, tmp_path, monkeypatch, at):
    """What it says of itself is of the old one, the files are of the new one."""
    from kerasbert.retrieval import index

    kb.Index.build(model, TEXTS, tmp_path / "index")
    real = getattr(index, at)

    def then(*arguments):
        found = real(*arguments)
        monkeypatch.setattr(index, at, real)
        kb.Index.build(model, [*reversed(TEXTS)], tmp_path / "index", overwrite=True)
        return found

    monkeypatch.setattr(index, at, then)
    with pytest.raises(InputError, match="index changed while it was read: give the same command again"):
        kb.Index(tmp_path / "index", model)
