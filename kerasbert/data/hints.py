"""What is said of a table without the column that is wanted: what it looks like, and what to do."""

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

from kerasbert.data.dialects import DELIMITERS, like_a_row
from kerasbert.errors import InputError, nearest
from kerasbert.options import offered

LOOKED = 50  # rows below a first line that names no column that is wanted
COLUMNS = ("--text-column", "--text-b-column", "--label-column")
ARGUMENTS = "Name what it is called: text_column, text_b_column, label_column"  # of a caller in Python


def naming() -> str:
    """How a command is told which columns to read, or that the file has to change."""
    known = offered(*COLUMNS) or offered("--text-field")
    return f"Name the right one ({', '.join(known)})" if known else "Rename the column"


def _delimiter(name: str, instead: str) -> str:
    """`pass --delimiter NAME`, or what to do where a command has no such option."""
    return f"pass --delimiter {name}" if offered("--delimiter") else instead


def _returns() -> str:
    return f"its lines end in carriage returns alone: {_delimiter('tab', 'write it with line feeds')}"


def headless(path: str | os.PathLike, columns: Sequence[str], first: Sequence[str]) -> str:
    """Of a table whose first line looks like a row, of which these columns are wanted."""
    shown = ", ".join(f"{cell!r:.40}" for cell in first[:5])
    names = ",".join(["text", "label", "c", "d", "e", "f"][: len(first)])
    told = (
        _returns()
        if any("\r" in cell for cell in first)
        else f"its first line looks like a row and not like names ({shown}). "
        + (
            f"Of a file without a header name all {len(first)} columns, such as --columns {names}"
            if offered("--columns")
            else "Write a first line of names above it"
        )
    )
    return f"{path} has {_no([each for each in columns if each not in first])}: {told}"


def no_header(
    path: str | os.PathLike, columns: Sequence[str], names: Sequence[str], rows: Iterable[tuple[int, list[str]]]
) -> str | None:
    """Of a table without these columns, whose first line may be a row, or a title above the names; None where it is neither.

    Args:
        names: the cells of the first line. rows: (line, cells) of those below.
    """
    below: list[tuple[int, list[str]]] = []
    with contextlib.suppress(InputError):  # what is wrong further down
        below.extend(itertools.islice(rows, LOOKED))
    if line := next((line for line, cells in below if set(columns) <= set(cells)), 0):
        return f"{path}: line {line} names the columns, expected them in line 1: drop what stands above it"
    again = any(cell and any(cells[i : i + 1] == [cell] for _, cells in below) for i, cell in enumerate(names))
    return headless(path, columns, names) if again or like_a_row(names) else None


def _no(absent: Sequence[str]) -> str:
    """`no column 'text'`, or `no column 'text', nor 'label'`."""
    return f"no column {absent[0]!r}" + (f", nor {', '.join(map(repr, absent[1:]))}" if absent[1:] else "")


def no_column(
    where: str, columns: Sequence[str], names: Iterable[str], kind: str = "", options: str | None = None
) -> str:
    """Of a table, or of a row of json.

    Args:
        columns: that are wanted. names: of those that are there, or the row. kind: of the table.
        options: what names the right column; by default the options of the command that runs.

    >>> no_column("a.tsv has", ["text"], ["text,label"], "tsv")
    "a.tsv has no column 'text'. It has: text,label. Its columns stand apart by ',': pass --delimiter ','"
    """
    row, names = names if isinstance(names, Mapping) else {}, list(names)
    absent = [each for each in columns if each not in names]
    no = _no(absent)
    if not names:
        return f"{where} {no}. It has none"
    if kind == "tsv" and any("\r" in name for name in names):
        return f"{where} {no}: {_returns()}"
    if kind == "tsv" and all(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        return f"{where} {no}: its cells are quoted, and a tsv has no quoting: {_delimiter('tab', 'write it without quotes')}"
    apart = [each for each in DELIMITERS if each in names[0]] if kind == "tsv" and len(names) == 1 else []
    others = [] if apart else [name for name in names if name not in columns]
    near = list(dict.fromkeys(best for each in absent if (best := nearest(each, others))))
    hint = f" Nearest: {', '.join(map(repr, near))}." if near else ""
    told = ""
    if apart:
        delimiter = DELIMITERS[apart[0]]
        told = f"Its columns stand apart by {delimiter}: {_delimiter(delimiter, 'call it .csv')}"
    remedy = told or _nested(absent[0], row) or (naming() if options is None else options)
    return f"{where} {no}.{hint} It has: {', '.join(names)}{remedy and '. '}{remedy}"


def no_text(where: str, column: str, value: object, option: str = "", name: str = "column") -> str:
    """Of a row whose column holds something else.

    Args:
        value: what it holds. option: what names the right column. name: what it is called in the option.
    """
    said = f"{where}: {name} {column!r} holds no text"
    if isinstance(value, list | tuple | Mapping):
        kind = "an object" if isinstance(value, Mapping) else "a list"
        said += f' but {kind}. A row is an object of its own (pandas: to_json(path, orient="records", lines=True))'
    return said + (f". Name the text with {option}" if option and offered(option) else "")


def _nested(column: str, row: Mapping[str, object]) -> str:
    """Where a row of json may hold what is wanted."""
    if {"data", "annotations"} <= row.keys():
        return "It is an export of Label Studio, of which entities are read (--task ner): export CSV or JSON-MIN"
    for name, value in row.items():
        if isinstance(value, Mapping) and column in value:
            return f"{name!r} holds a field of that name: take it out (pandas: json_normalize)"
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return f"{name!r} holds rows: write them alone, an object a line"
    for name, value in row.items():
        if isinstance(value, Mapping) and value and all(isinstance(each, str) for each in value.values()):
            fields = ", ".join(map(str, list(value)[:5]))
            return f"{name!r} holds the texts {fields}: make them columns of their own (pandas: json_normalize)"
    return ""
