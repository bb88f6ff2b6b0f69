"""Texts that a user gives by a file, for whatever command: one reader, so that every command gets the same texts.

A file is plain text with a text a line (of several parts a tab between them), or a table - csv, tsv, jsonl, json or parquet -
with a column for each part; packed or not, decoded as `data.reading` does. Standard library only: a phone reads them too.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kerasbert.blanks import blank
from kerasbert.data import hints, plain
from kerasbert.data.sources import SURROGATES, TABLES, NumberedRow, check_files, file_format, no_rows, table_rows
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

TEXT, PAIR = ("text",), ("text_a", "text_b")  # columns where nobody names others
Line = Callable[[str, str], tuple]  # (a line, what an error calls it) -> the parts of an input


def check_second(named: str | None, parts: Sequence[str]) -> None:
    """Refuse the name of a second text's column for a model that reads these parts."""
    if named and len(parts) < 2:
        raise InputError("--text-b-column names a second text, the model reads one: leave it out")


def as_pair(line: str, what: str) -> tuple[str, ...]:
    """text_a, tab, text_b -> both, and an empty line -> two empty texts; `what` is the line's name in an error."""
    row = line.split("\t") if line.strip() else ["", ""]
    if len(row) != 2:
        raise InputError(f"{what} has {len(row) - 1} tabs, expected 1: text_a, tab, text_b")
    return row[0], row[1]


@dataclasses.dataclass(frozen=True)
class Texts:
    """The rows of a file, read anew by each iteration and never all in memory.

    Args:
        path: the file. kind: str, of `sources.file_format`.
        columns: of the parts of an input, in their order.
        lists: columns that may hold a list of texts.
        line: what makes the parts of a line of plain text, where an input has several.
        rows: (line, row) of the file where a task's own reader made them; None where they are read here.
    """

    path: str | os.PathLike
    kind: str
    columns: tuple[str, ...]
    lists: frozenset[str] = frozenset()
    line: Line = as_pair
    rows: Sequence[NumberedRow] | None = None

    def __iter__(self) -> Iterator[tuple[int, Json, Any]]:
        """(line, row with all its columns, text or parts of the input) of each row, one without text too.

        Raises:
            InputError: a row that cannot be read, a column without text.
        """
        for number, row in self._rows():
            parts = tuple(self._part(number, column, row[column]) for column in self.columns)
            yield number, row, parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts

    def texts(self) -> list[Any]:
        """The texts (or the parts of each input), without those that are blank.

        Raises:
            InputError: there are none.
        """
        found = [text for _, _, text in self if not blank(text)]
        if not found:
            raise InputError(f"{self.path} holds no text, expected at least one")
        return found

    def _rows(self) -> Iterator[NumberedRow]:
        if self.rows is not None:
            yield from self.rows
            return
        rows = table_rows(self.path, self.kind, self.columns, raw=True) if self.kind in TABLES else self._lines()
        empty = True
        for numbered in rows:
            empty = False
            yield numbered
        if empty:
            raise InputError(
                no_rows(self.path) if self.kind in TABLES else f"{self.path} is empty, expected a text a line"
            )

    def _lines(self) -> Iterator[NumberedRow]:
        for number, line in plain.numbered(self.path):
            parts = self.line(line, f"{self.path}, line {number}") if len(self.columns) > 1 else (line,)
            yield number, dict(zip(self.columns, parts))

    def _part(self, number: int, column: str, value: object) -> object:
        if isinstance(value, str):
            return SURROGATES.sub("\ufffd", value)
        if column in self.lists and isinstance(value, Mapping):  # of datasets: {"text": [...], "label": ["A", ...]}
            value = value.get("text", value)
        if column in self.lists and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return tuple(SURROGATES.sub("\ufffd", each) for each in value)
        raise InputError(hints.no_text(f"{self.path}, line {number}", column, value, "--text-column"))


def opened(
    path: str | os.PathLike,
    columns: Sequence[str] = TEXT,
    *,
    default: Sequence[str] = (),
    lists: Sequence[int] = (),
    line: Line = as_pair,
) -> Texts:
    """The texts of a file.

    Args:
        columns: of the parts of an input.
        default: other ones, of a table that has not all of `columns` but these.
        lists: numbers of the parts that may be lists of texts. line: see `Texts`.

    Raises:
        InputError: no such file, no text, or a table without the columns.
    """
    (path,) = check_files([path])
    kind = file_format(path)
    if kind in TABLES and default and tuple(default) != tuple(columns):
        held = next((row for _, row in table_rows(path, kind, ())), {})
        if not held.keys() >= set(columns) and held.keys() >= set(default):
            columns = default
    return Texts(path, kind, tuple(columns), frozenset(columns[i] for i in lists if i < len(columns)), line)


def read(path: str | os.PathLike, columns: Sequence[str] = TEXT, **settings: Any) -> list[Any]:
    """The texts of a file that are not blank; see `opened`."""
    return opened(path, columns, **settings).texts()
