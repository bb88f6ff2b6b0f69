"""Plain text that is read for itself, by whatever command: the rows of other tools that look like it are told or refused.

The labels of fastText's lines are taken off, which is told. Of any other form that is known by its first lines nothing is
read: a word a line with its tag, numbers or time stamps would be taken for sentences.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kerasbert.data.dialects import say
from kerasbert.data.reading import lines_of, text_chunks
from kerasbert.errors import InputError

PREFIX = "__label__"  # of fastText
HEAD = 40  # lines by which a file is known


class Form(NamedTuple):
    """Lines of another tool: how one is known, in which share of the lines but blank ones and comments, and what to do."""

    line: re.Pattern[str]
    share: float
    said: str


_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_FRACTION = r"[+-]?\d*(?:\.\d+|\d[eE])\S*"  # of a vector: whole numbers may be texts of numbered things
_COLUMNS = (
    "give its texts, the words of a sentence in one line, or jsonl with a column text. --task ner or pos reads it"
)
FORMS = (
    Form(re.compile(r"\d+([-.]\d+)?\t([^\t]*\t){8}[^\t]*"), 1, f"words and their analysis (CoNLL-U): {_COLUMNS}"),
    Form(re.compile(r"\S.*[\t ](O|[BIESLUM]-\S+)[\t ]*"), 1, f"words and tags (CoNLL): {_COLUMNS}"),
    Form(
        re.compile(rf"{_NUMBER}(,{_NUMBER})*( qid:\d+)?( \d+:{_NUMBER})+ *(#.*)?"),
        1,
        "numbered features (libsvm), and no text: give the texts that they were made of",
    ),
    Form(re.compile(rf"\S+( {_FRACTION}){{10,}} *"), 0.9, "vectors of words, and no text: give the texts themselves"),
    Form(
        re.compile(r"(\d+:)?\d+:\d+[.,]\d{3} --> .*"),
        0.15,
        "subtitles with time stamps: give their text alone",
    ),
)
_OBJECT = re.compile(r'\s*[\[{]\s*\n\s*("(?:[^"\\\n]|\\.)*"\s*:|[\[{"])')


def without_labels(line: str) -> str:
    """The text of a line of fastText.

    >>> without_labels("__label__good __label__short A gripping film")
    'A gripping film'
    """
    return " ".join(word for word in line.split(" ") if not word.strip().startswith(PREFIX)).strip()


def is_fasttext(head: Sequence[str]) -> bool:
    """Whether the first lines of a file are fastText's: most of them hold a label."""
    lines = [line for line in head if line.strip()]
    return 2 * sum(PREFIX in line for line in lines) > len(lines)


def head_of(path: str | os.PathLike, encoding: str | None = None) -> list[str]:
    """The first lines of a file, without one that is cut."""
    return _head(next(text_chunks(path, encoding), ""))


def _head(chunk: str) -> list[str]:
    lines = chunk.split("\n", HEAD)
    return [line.removesuffix("\r") for line in (lines[:-1] if len(lines) > 1 and lines[-1] else lines)]


def texts_in(path: str | os.PathLike, encoding: str | None = None) -> Iterator[list[str]]:
    """The lines of a file of plain text as `reading.line_lists` gives them, those of fastText without their labels.

    The file is opened once.

    Raises:
        InputError: lines that are no text; and as `text_chunks`.
    """
    chunks = text_chunks(path, encoding)
    first = next(chunks, "")
    head = _head(first)
    _refuse(path, head)
    found = lines_of(itertools.chain([first], chunks), path)
    if not is_fasttext(head):
        yield from found
        return
    say(f"{path} is a file of fastText: its labels ({PREFIX}...) are no part of the texts")
    for lines in found:
        yield [without_labels(line) if PREFIX in line else line for line in lines]


def numbered(path: str | os.PathLike, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """`texts_in` line by line, with their numbers and without a carriage return at the end."""
    lines = itertools.chain.from_iterable(texts_in(path, encoding))
    return ((number, line.removesuffix("\r")) for number, line in enumerate(lines, 1))


def _refuse(path: str | os.PathLike, head: Sequence[str]) -> None:
    lines = [line for line in head if line.strip() and not line.startswith("#")]  # without comments
    if _OBJECT.match("\n".join(head)):
        raise InputError(
            f"{path} is json over several lines, expected text: name it .json where it is a table (a list of objects), or "
            "write the texts one a line"
        )
    for form in FORMS:
        found = sum(form.line.fullmatch(line) is not None for line in lines)
        if found >= max(2, form.share * len(lines)):
            raise InputError(f"{path} holds {form.said}")
