"""Files of text: documents for pretraining, tables for tasks. Local files need the standard library only.

Text is UTF-8; bytes that are not become U+FFFD. A line ends at a line feed (a carriage return before it is dropped).
"""

import csv
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kerasbert.data.remote import is_remote, opened, size
from kerasbert.errors import InputError, nearest

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".csv": "csv"}
LINES = 8192  # read at once
SURROGATES = re.compile("[\ud800-\udfff]")  # json may hold "\ud800", which no encoder accepts


def file_format(path: str | os.PathLike) -> str:
    """How a file is read, by the end of its name: jsonl, tsv, csv, and text for every other name."""
    return FORMATS.get(Path(path).suffix.lower(), "text")


def read_documents(files: Sequence[str | os.PathLike], *, text_field: str = "text") -> Iterator[list[str]]:
    """Documents one by one, each a list of segments (lines that are not blank).

    In a text file a blank line ends a document (BERT's own input format). In jsonl, tsv and csv each row is a document
    and the lines of its `text_field` are the segments; of several fields ("en,fr") each is one segment.

    Args:
        files: paths, read in this order, never more than a document in memory.
        text_field: name of the field or column that holds the text.

    Raises:
        InputError: a file or the column is missing, a row cannot be read (file and line are named), or no file
            holds any text.
    """
    files = check_files(files)
    empty = True
    for path in files:
        for document in file_documents(path, text_field):
            empty = False
            yield document
    if empty:
        names = ", ".join(str(path) for path in files)
        raise InputError(f"empty corpus: no text in {names}. Give files with at least one line that is not blank")


def file_documents(path: str | os.PathLike, text_field: str = "text") -> Iterator[list[str]]:
    """The documents of one file, which may hold none; see `read_documents`."""
    return _text_documents(path) if file_format(path) == "text" else _row_documents(path, text_field)


def check_files(files: Sequence[str | os.PathLike]) -> list[Path | str]:
    """The paths (addresses such as gs://bucket/a.txt stay text), or an error that names the first that is no file."""
    if not files:
        raise InputError("no files given, expected at least one text, jsonl, tsv or csv file")
    paths = [os.fspath(file) if is_remote(file) else Path(file) for file in files]
    for path in paths:
        if not is_remote(path) and path.is_dir():
            raise InputError(f"{path} is a directory, expected a file. Name its files, for instance {path}/*.txt")
        if size(path) is None:
            raise InputError(f"no file {path}. Check the path")
    return paths


def read_table(
    path: str | os.PathLike,
    *,
    columns: Sequence[str] = (),
    names: Sequence[str] | None = None,
    format: str | None = None,
) -> list[dict[str, Any]]:
    """All rows of a table.

    tsv is GLUE's: split at tabs, quotes are ordinary characters. csv has quoting (RFC 4180). In jsonl each line is an
    object; its numbers and booleans become text ("1", "0.5", "true"), so that labels look the same in every format.

    Args:
        path: the file.
        columns: names that every row must have.
        names: column names of a tsv or csv file that has no header line.
        format: "tsv", "csv" or "jsonl" where the name of the file does not say it.

    Returns:
        One dict per row, name -> text (a json list or object stays what it is).

    Raises:
        InputError: missing file, no rows, a missing column, a row with another number of fields; with file and line.
    """
    return [row for _, row in numbered_table(path, columns=columns, names=names, format=format)]


def numbered_table(
    path: str | os.PathLike,
    *,
    columns: Sequence[str] = (),
    names: Sequence[str] | None = None,
    format: str | None = None,
    raw: bool = False,
) -> list[tuple[int, dict[str, Any]]]:
    """(line number, row) of all rows of a table; see `read_table`. With `raw` json's numbers stay numbers."""
    (path,) = check_files([path])
    kind = format or file_format(path)
    if kind not in ("tsv", "csv", "jsonl"):
        raise InputError(f"cannot tell the format of {path}: expected a name ending in .tsv, .csv or .jsonl")
    rows = list(_json_rows(path, columns, raw) if kind == "jsonl" else _rows(path, kind, columns, names))
    if not rows:
        raise InputError(f"{path} has no rows, expected at least one below the header")
    return rows


def _lines(path: Path | str, newline: str = "\n") -> Iterator[str]:
    return itertools.chain.from_iterable(_line_lists(path, newline))


def _line_lists(path: Path | str, newline: str = "\n") -> Iterator[list[str]]:
    """The lines of a file, some thousands at once."""
    if is_remote(path):
        with opened(path) as file:
            codec = "utf-8-sig"
            while lines := list(itertools.islice(file, LINES)):
                yield [lines[0].decode(codec, "replace"), *(line.decode("utf-8", "replace") for line in lines[1:])]
                codec = "utf-8"
        return
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline=newline) as file:
            while lines := list(itertools.islice(file, LINES)):
                yield lines
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _segments(lines: Iterable[str]) -> list[str]:
    return [line for line in map(str.strip, lines) if line]


def _text_documents(path: Path | str) -> Iterator[list[str]]:
    document: list[str] = []
    for lines in _line_lists(path):
        lines = [*map(str.strip, lines), ""]  # no Python for each line: there are five times as many as documents
        begin, last = 0, len(lines) - 1
        while (end := lines.index("", begin)) < last:
            document += lines[begin:end]
            begin = end + 1
            if document:
                yield document
                document = []
        document += lines[begin:end]
    if document:
        yield document


def _row_documents(path: Path | str, text_field: str) -> Iterator[list[str]]:
    fields = text_field.split(",")
    for line, row in _rows(path, file_format(path), fields, None):
        texts = [row[field] for field in fields]
        for field, text in zip(fields, texts):
            if not isinstance(text, str):
                raise InputError(f"{path}, line {line}: field {field!r} holds no text. Name the text with --text-field")
        document = _segments(texts[0].split("\n") if len(texts) == 1 else [" ".join(text.split()) for text in texts])
        if document:
            yield document


def _rows(
    path: Path, kind: str, columns: Sequence[str], names: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) pairs; `columns` are present in each."""
    if kind == "jsonl":
        yield from _json_rows(path, columns)
        return
    fields = _csv_fields(path) if kind == "csv" else _tsv_fields(path)
    if names is None:
        names = next(fields, (0, []))[1]
    twice = next((name for i, name in enumerate(names) if name and name in names[:i]), None)
    if twice is not None:
        raise InputError(f"{path}: two columns are named {twice!r}, expected each name once: {', '.join(names)}")
    for column in columns:
        if column not in names:
            raise InputError(_no_column(f"{path} has", column, names))
    for line, values in fields:
        if len(values) != len(names):
            hint = " (tsv is split at tabs, without quoting)" if kind == "tsv" else ""
            expected = f"expected {len(names)} ({', '.join(names)})"
            raise InputError(f"{path}, line {line}: {len(values)} fields, {expected}{hint}. Mend the row")
        yield line, dict(zip(names, values))


def _tsv_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_lines(path), 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if line:
            yield number, line.split("\t")


def _csv_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(2**31 - 1)  # the default refuses texts above 131,072 characters
    reader = csv.reader(_lines(path, newline=""), strict=True)
    try:
        for values in reader:
            if values:
                yield reader.line_num, values
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}. Mend the quoting, or name the file .tsv") from error


def _json_rows(path: Path, columns: Sequence[str], raw: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: not json ({error}). Expected one object per line") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: a {type(row).__name__}, expected an object such as {{...}}")
        for column in columns:
            if column in row and row[column] is None:
                raise InputError(f"{path}, line {number}: {column!r} is null. Drop the row, or fill it in")
            if column not in row:
                raise InputError(_no_column(f"{path}, line {number} has", column, row))
        yield number, row if raw else {name: _json_text(value) for name, value in row.items()}


def _json_text(value: Any) -> Any:
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _no_column(where: str, column: str, names: Iterable[str]) -> str:
    names = list(names)
    best = nearest(column, names)
    hint = f" Nearest: {best!r}." if best else ""
    return f"{where} no column {column!r}.{hint} It has: {', '.join(names) or 'none'}. Name the right one"
