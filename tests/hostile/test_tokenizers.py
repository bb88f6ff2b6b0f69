"""Damaged and hostile tokenizer files: an error of one line or a tokenizer that works; never a traceback, never a hang."""

from pathlib import Path

import pytest

from kerasbert.text import save_hf
from kerasbert.text.added import AddedToken
from tests import tiny
from tests.hostile import fuzz, mutations
from tests.text.kinds import small_bpe, small_unigram, with_added

FILES = [
    "wordpiece our tokenizer.json",
    "bpe our tokenizer.json",
    "unigram our tokenizer.json",
    "wordpiece their tokenizer.json",
    "bpe their tokenizer.json",
    "unigram their tokenizer.json",
    "wordpiece vocab.txt",
    "bpe vocab.json",
    "bpe merges.txt",
    "unigram spiece.model",
]


def unigram():
    """A model of few pieces, and rules with it, so that mutations meet every part."""
    model = small_unigram(True).model
    kept = [i for i, piece in enumerate(model.pieces) if model.types[i] != 1 or len(piece) < 2 or i % 3 == 0]
    return with_added(small_unigram(True).renumbered(kept), [AddedToken("[E1]"), AddedToken("@USER", normalized=True)])


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with one for each of FILES."""
    folder = tmp_path_factory.mktemp("tokenizers")
    tokens = [AddedToken("[E1]", lstrip=True), AddedToken("@USER", normalized=True, single_word=True)]
    kinds = {
        "wordpiece": with_added(tiny.tokenizer(), tokens),
        "bpe": with_added(small_bpe(True), tokens),
        "unigram": unigram(),
    }
    for name in FILES:
        kind, _, file = name.partition(" ")
        kinds[kind].save(folder / name)
        if file.startswith("their"):
            save_hf(kinds[kind], folder / name / "tokenizer.json")
        elif not file.startswith("our"):
            (folder / name / "tokenizer.json").unlink()
    return folder


def check(worker: fuzz.Worker, good: Path, count: int) -> None:
    """`count` mutations of each file."""
    for name in FILES:
        cases = mutations.folders(good / name, [name.split()[-1]], count, name)
        table, lines = fuzz.run(worker, "tokenizer", good / name, cases)
        assert table[name]["error"]
        assert not any(table[name][outcome] for outcome in fuzz.BAD), lines


@pytest.mark.slow
def test_a_slice_of_damaged_tokenizers(good, worker):
    check(worker, good, 20)


@pytest.mark.full
def test_damaged_tokenizers(good, worker):
    check(worker, good, 500)
