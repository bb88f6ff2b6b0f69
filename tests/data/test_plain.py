"""Rows of other tools that look like plain text: told or refused at every door where texts are read for themselves."""

import gzip

import pytest

from kerasbert.data import plain, read_documents, reading, texts
from kerasbert.errors import InputError
from kerasbert.retrieval.documents import Folder
from kerasbert.tasks.task import find_task, read_rows

FILMS = ["A gripping film", "so so", "dull  and long"]
DOORS = {
    "corpus": lambda path: [line for document in read_documents([path]) for line in document],
    "texts": texts.read,
    "folder": lambda path: [text for _, text in Folder(path.parent)],
    "simcse": lambda path: [pair[0] for pair in read_rows(find_task("simcse"), path).texts],
}
CONLL = "EU NNP B-ORG\nrejects VBZ O\n\n"
UD = "1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\tbark\tbark\tVERB\tVBP\t_\t0\troot\t_\t_\n\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("door", DOORS)
def test_labels_of_fasttext_are_no_text(tmp_path, capsys, door, packed):
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    content = "".join(f"__label__x {film} __label__y\r\n\n" for film in FILMS).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    assert [" ".join(text.split()) for text in DOORS[door](path)] == [" ".join(film.split()) for film in FILMS]
    assert (
        capsys.readouterr().err == f"{path} is a file of fastText: its labels (__label__...) are no part of the texts\n"
    )


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("-DOCSTART- -X- O\n\n" + CONLL * 3, r"words and tags \(CoNLL\)"),
        ("# domain=en\nEU\tB-ORG\nx\tO\n\n# domain=en\nSea\tB-LOC\n", r"words and tags \(CoNLL\)"),
        ("# text = Dogs bark\n" + UD, "CoNLL-U"),
        ("1 1:0.5 7:1\n-1 2:.25 9:3\n".replace(":.", ":0."), "libsvm"),
        ("2,5 qid:1 1:1e-3 # a\n1 qid:2 2:1\n", "libsvm"),
        ("2 10\n" + "".join(f"w{i} {'0.5 ' * 10}\n" for i in range(20)), "vectors of words"),
        ("".join(f"w{i} {'-1.5e-05 .25 ' * 5}\n" for i in range(3)), "vectors of words"),
        ("1\n00:00:01,000 --> 00:00:02,000\nHello\n\n2\n00:00:02,000 --> 00:00:03,000\nyou\n", "subtitles"),
        ('{\n "cells": [\n  {}\n ]\n}\n', "json over several lines"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, door, content, said):
    path = tmp_path / "a.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        DOORS[door](path)


@pytest.mark.parametrize(
    "content",
    [
        "# Sea\n\n# Ships\n",  # headings alone
        "My blood is type O\nwell\n",
        "Use __label__x for a label\nof fastText\nas others do\n",
        "It began at 1:30 and\n2:15 it was over\n",
        "1 2:1\n",
        "{ is a brace\n[ is a bracket\n",
        "#begin\nword O\n",
        3 * f"{' '.join(map(str, range(20)))}\n",  # numbered things in their order
    ],
)
def test_texts_stay_texts(tmp_path, content, capsys):
    path = tmp_path / "a.txt"
    path.write_text(content)
    assert list(plain.numbered(path)) == list(enumerate(content.splitlines(), 1))
    assert capsys.readouterr().err == ""


def test_tags_are_not_learnt_of_fasttext(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("__label__x a\n__label__y b\n")
    with pytest.raises(InputError, match="is a file of fastText .*--task classification or multi_label"):
        read_rows(find_task("ner"), path)


@pytest.mark.parametrize("content", ["a b\r\nc\n", "__label__x a\n", "", "long " * 50_000])
def test_a_file_is_opened_once(tmp_path, monkeypatch, content):
    path, opened = tmp_path / "a.txt", []
    path.write_bytes(content.encode())
    unpacked = reading.unpacked
    monkeypatch.setattr(reading, "unpacked", lambda path: opened.append(path) or unpacked(path))
    found = [line for lines in plain.texts_in(path) for line in lines]
    assert found == [
        line.removeprefix("__label__x ") for line in content.split("\n")[: None if content[-1:] == " " else -1]
    ]
    assert opened == [path]
