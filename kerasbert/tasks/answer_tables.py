"""A table of texts -> the same table with answers, a row at a time."""

import csv
import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert.answers import Kind
from kerasbert.blanks import blank
from kerasbert.data import texts
from kerasbert.data.reading import numbered_lines
from kerasbert.data.sources import SURROGATES, TABLES, check_files, file_format
from kerasbert.errors import InputError
from kerasbert.storage import steady
from kerasbert.storage.places import KEPT, PAGE
from kerasbert.tasks import fasttext, word_rows
from kerasbert.tasks.base import Task
from kerasbert.tasks.entity_files import FIELDS, WRITERS
from kerasbert.tasks.task import read_rows, table

KINDS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".conll": "conll", ".html": "html"}
"""Ending of a name -> how a table of answers is written."""
TABLED = ("csv", "tsv", "jsonl")  # of which a table may be itself
BY_ID = ".json"
"""The ending of what benchmarks take: a json object of the rows' `id` -> the first field of the answer."""
STARTS = {
    "conll": "-DOCSTART-\tO\n\n",
    "html": PAGE.format("predict"),
    BY_ID: '{\n "',
}  # what files hold that are no tables
ENDS = ("\t", "\n", "\r")  # what a cell of a tsv cannot hold


def read(path: str | os.PathLike, columns: Sequence[str], task: Task) -> texts.Texts:
    """The rows of a file, with all their columns, and the text (or the parts of the input) of each.

    Args:
        path: a table, or plain text with a text a line, whose column is then `columns[0]`; or what the task's reader reads.
        columns: of the parts. task: whose inputs they are.

    Raises:
        InputError: no such file or column, a row without text.
    """
    check_files([path])
    kind = task.answer_kind
    opened = texts.opened(path, columns, lists=kind.lists, line=line_of(kind, columns))
    if opened.kind == "text" and len(columns) == 1 and fasttext.knows(Path(path)):
        return opened
    if kind.annotated and opened.kind in TABLES and list(columns) == list(task.parts) and not _has(opened):
        raw = texts.opened(path, texts.TEXT)
        if _has(raw):  # texts are answered as well as words
            return raw
    if kind.lists and not kind.annotated and opened.kind in TABLES and not _has(opened):
        return dataclasses.replace(opened, kind="jsonl", rows=table(task, Path(path), columns))
    if kind.annotated and opened.kind in TABLES and (words := _sentences(opened)):
        return words
    if not task.reader or not list(columns) == list(task.asked) == list(task.parts):
        return opened
    if not kind.lists and opened.kind in TABLES and _has(opened):
        return opened
    try:
        return dataclasses.replace(opened, kind="jsonl", rows=table(task, Path(path), columns))
    except InputError:
        if kind.lists or opened.kind != "text" or not _a_text_a_line(opened):
            raise
    return opened


def _sentences(opened: texts.Texts) -> texts.Texts | None:
    """A row a sentence of a table that has a word a row and numbers its sentences; None of another one."""
    words = opened.columns[0]
    if not _has(opened) or not word_rows.sentence_column(next(iter(opened))[1], words):
        return None
    rows = [(line, row) for line, row, text in opened if not blank(text)]
    grouped = word_rows.sentences(Path(opened.path), rows, (words,))
    return None if grouped is rows else dataclasses.replace(opened, kind="jsonl", rows=grouped)


def _a_text_a_line(opened: texts.Texts) -> bool:
    """Whether no line of a plain text has more columns, or fewer, than an input has parts: then it is no file of a reader."""
    lines = (line for _, line in numbered_lines(opened.path) if line.strip())
    return all(line.count("\t") == len(opened.columns) - 1 for line in lines)


def _has(opened: texts.Texts) -> bool:
    """Whether a table has the columns of the texts by their names: then no reader, which may leave others out, is needed."""
    try:
        next(iter(opened), None)
    except InputError:
        return False
    return True


def inputs_of(task: Task, path: str | os.PathLike) -> list[Any]:
    """The inputs of a file without labels: a text a line (a tab within a pair), or rows of the task; blank ones are left out.

    Raises:
        InputError: no text, or no column of it; with file and line.
    """
    if task.asked == task.parts or file_format(path) == "text":
        return read(path, task.asked, task).texts()
    found = [text for text in read_rows(task, Path(path), targets=False).texts if not blank(text)]
    if not found:
        raise InputError(f"{path} holds no text, expected at least one")
    return found


def line_of(kind: Kind, names: Sequence[str]) -> texts.Line:
    """What makes the parts of an input of a line of plain text."""
    if not kind.named:
        return texts.as_pair

    def parts(line: str, where: str) -> tuple:
        return kind.from_line(line, names, where) if line.strip() else ("",) * len(names)

    return parts


def names(answer: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Names of the answer's columns, none of which the table has: `predicted_label`, then `predicted_label_2`, and so on.

    >>> names(["label", "score"], ["text", "label"])
    {'label': 'predicted_label', 'score': 'score'}
    >>> names(["label", "score"], ["text", "label", "predicted_label", "score"])
    {'label': 'predicted_label_2', 'score': 'predicted_score_2'}
    """
    for number in itertools.count(1):
        end = "" if number == 1 else f"_{number}"
        found = {name: f"predicted_{name}{end}" if name in columns else name for name in answer}
        if not set(found.values()) & set(columns):
            break
    return found


@dataclasses.dataclass(frozen=True)
class Survey:
    """What a look at all rows of a file tells before any is answered.

    Args:
        count: int, rows. absent: int, those without text. columns: of all rows, in the order in which they come.
        seen: the rows, which must be the same whenever they are read again.
    """

    count: int
    absent: int
    columns: tuple[str, ...]
    seen: steady.Rows


def check_kind(kind: str, fields: Sequence[str], out: str) -> None:
    """Refuse a file of words and entities where the answers have none."""
    if kind in WRITERS and tuple(fields) != FIELDS:
        raise InputError(
            f"--out {out}: a .{kind} file holds the words and entities of a tagger: name a .csv or .jsonl file"
        )


def survey(rows: texts.Texts, kind: str) -> Survey:
    """Read a file once, to refuse what could not be written when all is computed.

    Args:
        kind: a value of KINDS, or BY_ID.

    Raises:
        InputError: a row that cannot be read; one that a tsv cannot hold; one without an id, or with that of another.
    """
    count = absent = 0
    columns: dict[str, None] = {}
    ids: dict[str, int] = {}
    seen = steady.Rows(rows.path)
    for count, each in enumerate(rows, 1):
        seen.note(each)
        _, row, text = each
        absent += blank(text)
        columns.update(dict.fromkeys(row))
        if kind == BY_ID:
            _check_id(row, count, ids)
        elif kind == "tsv":
            check_cells(count, (cell(value) for value in row.values()))
    if kind == "tsv":
        check_cells(0, columns)
    return Survey(count, absent, tuple(columns), seen)


def _check_id(row: Mapping[str, object], number: int, ids: dict[str, int]) -> None:
    """Refuse a row that would be lost in an object of answers by id."""
    name = identity(row)
    instead = "which a .json file of answers is made by: name --out a .csv or .jsonl file"
    if not name:
        raise InputError(f"row {number} has no id, {instead}")
    if name in ids:
        raise InputError(f"rows {ids[name]} and {number} have the same id {name!r:.60}, {instead}")
    ids[name] = number


def identity(row: Mapping[str, object]) -> str:
    """The id of a row as text, empty without one."""
    return "" if row.get("id") is None else str(row["id"])


def check_cells(number: int, cells: Iterable[str]) -> None:
    """Refuse the cells of a row (from 1; 0 is the header) that a tsv cannot hold."""
    if any(end in each for each in cells for end in ENDS):
        raise InputError(
            f"row {number} holds a tab or a line break, which a tsv cannot: name --out a .csv or .jsonl file"
        )


@dataclasses.dataclass(frozen=True)
class Sheet:
    """How the rows are written.

    Args:
        kind: a value of KINDS, or BY_ID.
        columns: of the table.
        fields: of an answer, which become columns; of BY_ID the first is the value.
        answered: bool, whether any row has an answer; without one the table gets no columns.
        delimiter: of a csv. text: column of the texts, for the files of a tagger (`entity_files`).
    """

    kind: str
    columns: Sequence[str]
    fields: Sequence[str]
    answered: bool = True
    delimiter: str = ","
    text: str = ""

    @property
    def added(self) -> dict[str, str]:
        """Field -> its column."""
        return names(self.fields if self.answered else (), self.columns)

    def told(self) -> list[str]:
        """Which columns the answers went into, where the table had theirs."""
        renamed = {name: column for name, column in self.added.items() if name != column}
        if self.kind in (BY_ID, *WRITERS) or not renamed:
            return []
        has, held = " and ".join(map(repr, renamed)), ", ".join(renamed.values())
        return [f"the table has {has} already: the answers are in {held}"]

    def lines(self, rows: Iterator[tuple[Mapping[str, object], Sequence[object] | None]]) -> Iterator[str]:
        """The content of the file piece by piece.

        Args:
            rows: column -> value, and the fields' values or None where there is no answer.

        Raises:
            InputError: an answer that a tsv cannot hold.
        """
        if self.kind == BY_ID:
            yield from self._by_id(rows)
            return
        if self.kind in WRITERS:
            yield from WRITERS[self.kind](rows, self.text)
            return
        added = self.added
        columns = [*self.columns, *added.values()]
        if self.kind != "jsonl":
            yield self._line(0, list(map(str, columns)))
        for number, (row, answer) in enumerate(rows, 1):
            said = {column: None if answer is None else value for column, value in zip(added.values(), answer or added)}
            if self.kind == "jsonl":
                yield _json({**row, **said}) + "\n"
            else:
                yield self._line(number, [cell({**row, **said}.get(column)) for column in columns])

    def _line(self, number: int, cells: list[str]) -> str:
        if self.kind == "csv":
            quoted = (_quoted(cell, self.delimiter) for cell in cells)
            return self.delimiter.join(quoted) + "\n" if cells != [""] else '""\n'
        check_cells(number, cells)
        return "\t".join(cells) + "\n"

    def _by_id(self, rows: Iterator[tuple[Mapping[str, object], Sequence[object] | None]]) -> Iterator[str]:
        before = "{\n"
        for row, answer in rows:
            said = json.dumps({identity(row): "" if answer is None else answer[0]}, ensure_ascii=False, indent=1)
            yield before + SURROGATES.sub("\ufffd", said[2:-2])
            before = ",\n"
        yield "\n}\n"


def check_replaced(path: str | os.PathLike, sheet: Sheet) -> None:
    """Refuse to replace a file that this command would not write: a table of the user's own may have a column `score`.

    Raises:
        InputError: a header, or a first row of json, without the columns of the answers; no conll, page or object of ours.
    """
    if not os.path.exists(path) or not os.path.getsize(path):
        return
    with open(path, "rb") as file:
        if sheet.kind in STARTS:
            if STARTS[sheet.kind].encode() not in file.read(4096):
                raise InputError(f"{path} is none of our {sheet.kind.strip('.')} files: {KEPT}")
            return
        held = _columns((line.decode("utf-8-sig") for line in file), sheet)
    if missing := [name for name in sheet.added.values() or sheet.columns if name not in held]:
        what = f"column{'s' * (len(missing) > 1)} {' and '.join(map(repr, missing))} of the answers"
        raise InputError(f"{path} has no {what}: {KEPT}")


def _columns(file: Iterable[str], sheet: Sheet) -> list[str]:
    """The columns of a table as a sheet would write it; none where it is another file."""
    try:
        if sheet.kind == "jsonl":
            return list(json.loads(next(iter(file))))
        return next(csv.reader(file, delimiter=sheet.delimiter if sheet.kind == "csv" else "\t"))
    except (ValueError, TypeError, RecursionError, StopIteration, csv.Error):
        return []


def _json(row: Mapping[str, object]) -> str:
    text = json.dumps(row, ensure_ascii=False)
    return (
        json.dumps(row) if SURROGATES.search(text) else text
    )  # no file takes half of a pair, json's own form of it does


def _quoted(text: str, delimiter: str) -> str:
    """A cell of a csv; a carriage return is quoted too, at which readers end a line."""
    return '"' + text.replace('"', '""') + '"' if any(each in text for each in (delimiter, *'"\n\r')) else text


def cell(value: object) -> str:
    """A value as text; what a row does not have is empty."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return SURROGATES.sub("\ufffd", value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
