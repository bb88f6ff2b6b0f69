"""The quickstart's text: whole, in the input format of `kerasbert data`, and split without a leak."""

import re
from collections import Counter

import pytest

from kerasbert.data import read_documents, read_table
from kerasbert.quickstart import books
from tests.support import ROOT

FOLDER = ROOT / "kerasbert/quickstart/books"


def test_size_and_provenance():
    """About 1 MB in all; every file is named in NOTICE with its author and year, and nothing else is shipped."""
    files = sorted(path.stem for path in FOLDER.glob("*.txt"))
    assert files == sorted(books.AUTHORS)
    assert 0.8e6 < sum(path.stat().st_size for path in FOLDER.glob("*.txt")) < 1.1e6
    notice = (FOLDER / "NOTICE").read_text()
    assert "public domain" in notice
    for name in files:
        assert re.search(rf"^{name}\.txt .*{books.AUTHORS[name]}.*\(1[89]\d\d\)", notice, re.MULTILINE)


@pytest.mark.parametrize("author", books.AUTHORS)
def test_books_hold_prose_alone(author):
    """No front matter, headings, editors' words, nor quotes and dashes that would tell the edition and not the author."""
    text = (FOLDER / f"{author}.txt").read_text()
    assert not re.search(
        r"gutenberg|\betext|ebook|transcriber|copyright|^chapter\b", text, re.IGNORECASE | re.MULTILINE
    )
    assert not re.search("[\u2018\u2019\u201c\u201d\u2014_*\t\\[\\]]|  |^ | $|\n\n\n", text, re.MULTILINE)
    assert len(books.chapters(author)) >= 12


def test_the_files_are_the_input_of_kerasbert_data():
    """A blank line between chapters: read_documents finds the chapters that the split counts."""
    for author in books.AUTHORS:
        assert list(read_documents([FOLDER / f"{author}.txt"])) == books.chapters(author)


def test_split_is_by_chapter(tmp_path):
    """Every sentence is in one part; no chapter is in both; every author is in both."""
    for author in books.AUTHORS:
        parts = books.split(author)
        whole = books.chapters(author)
        assert len(parts["train"]) + len(parts["test"]) == len(whole)
        assert [chapter for chapter in whole if chapter in parts["test"]] == parts["test"]
        assert 0.15 < len(parts["test"]) / len(whole) < 0.35
        assert not {tuple(c) for c in parts["train"]} & {tuple(c) for c in parts["test"]}
    counts = books.write(tmp_path)
    for name in ("train", "test"):
        rows = read_table(tmp_path / f"{name}.tsv", columns=["text", "author"])
        assert len(rows) == counts[name]
        assert set(Counter(row["author"] for row in rows)) == set(books.AUTHORS.values())
        assert min(len(row["text"].split()) for row in rows) >= books.SHORTEST
    train, test = ({tuple(d) for d in read_documents([tmp_path / f"{name}.txt"])} for name in ("train", "test"))
    assert not train & test
    assert len(train | test) == sum(len(books.chapters(author)) for author in books.AUTHORS)


def test_writing_again_gives_the_same_bytes(tmp_path):
    """Nothing random, nothing of the machine."""
    for folder in ("a", "b"):
        books.write(tmp_path / folder)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert books.digest() == books.digest()
