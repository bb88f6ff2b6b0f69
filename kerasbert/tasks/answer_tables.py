"""A table of texts -> the same table with answers."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert.data.reading import chosen_encoding
from kerasbert.data.sources import TABLES, check_files, file_format, numbered_table
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.task import one, table

KINDS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""Ending of a name -> how a table of answers is written."""
BY_ID = ".json"
"""The ending of what benchmarks take: a json object of the rows' `id` -> the first field of the answer."""


def read(path: str, columns: Sequence[str], task: Task) -> tuple[str, list[dict[str, Any]], list[Any]]:
    """A file's format, its rows with all their columns, and the text (or the parts of the input) of each.

    Args:
        path: a table, or plain text with a text a line, whose column is then `columns[0]`; or what the task's reader reads.
        columns: of the parts. task: whose inputs they are.

    Raises:
        InputError: no such file or column, a row without text.
    """
    check_files([path])
    kind, lists = file_format(path), {columns[i] for i in task.answer_kind.lists if i < len(columns)}
    if task.reader and list(columns) == list(task.asked) == list(task.parts):
        kind, numbered = "jsonl", table(task, Path(path), columns)
    elif kind in TABLES:
        numbered = numbered_table(path, columns=columns, raw=True)
        kind = kind if kind in KINDS.values() else "jsonl"
    elif len(columns) > 1:
        raise InputError(f"{path} is plain text, the model reads pairs: give a csv, tsv or jsonl file with two columns")
    else:
        kind, lines = "tsv", Path(path).read_text(chosen_encoding(None) or "utf-8-sig", errors="replace").split("\n")
        numbered = [(i, {columns[0]: line.removesuffix("\r")}) for i, line in enumerate(lines, 1)]
        if not lines[-1]:
            numbered.pop()
    texts = []
    for line, row in numbered:
        parts = [row[column] for column in columns]
        for column, part in zip(columns, parts):
            several = column in lists and isinstance(part, list | tuple)
            if not all(isinstance(each, str) for each in (part if several else (part,))):
                raise InputError(
                    f"{path}, line {line}: column {column!r} holds no text. Name the text with --text-column"
                )
        texts.append(one(tuple(tuple(part) if isinstance(part, list) else part for part in parts)))
    return kind, [row for _, row in numbered], texts


def blank(text: Any) -> bool:
    """Whether a text, or all parts of an input, are empty: such a row keeps its place and has no answer."""
    parts = (text,) if isinstance(text, str) else text
    return not any(each.strip() for part in parts for each in ((part,) if isinstance(part, str) else part))


def names(answer: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Names of the answer's columns; one that the table has already becomes `predicted_label`."""
    return {name: f"predicted_{name}" if name in columns else name for name in answer}


def text(
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    answers: Sequence[Mapping[str, Any] | None],
    fields: Sequence[str] = ("label", "score"),
) -> str:
    """The table with the answers as a file's content.

    Args:
        kind: a value of KINDS, or BY_ID. rows: column -> value. answers: json of each; None where there is none.
        fields: of an answer, which become columns.

    Raises:
        InputError: a text that a tsv cannot hold.
    """
    if kind == BY_ID:
        return _by_id(rows, answers, fields[0])
    columns = list(dict.fromkeys(column for row in rows for column in row))
    added = names(fields if any(answer is not None for answer in answers) else (), columns)
    made = [
        {**row, **{column: None if answer is None else answer[name] for name, column in added.items()}}
        for row, answer in zip(rows, answers)
    ]
    if kind == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
    columns += added.values()
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in made)]
    if kind == "csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(cells)
        return file.getvalue()
    for i, row in enumerate(cells):
        if any("\t" in cell or "\n" in cell or "\r" in cell for cell in row):
            raise InputError(
                f"row {i} holds a tab or a line break, which a tsv cannot: name --out a .csv or .jsonl file"
            )
    return "".join("\t".join(row) + "\n" for row in cells)


def _by_id(rows: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any] | None], field: str) -> str:
    absent = next((i for i, row in enumerate(rows, 1) if not str(row.get("id") or "")), None)
    if absent is not None:
        raise InputError(
            f"row {absent} has no id, which a .json file of answers is made by: name --out a .csv or .jsonl file"
        )
    made = {str(row["id"]): "" if answer is None else answer[field] for row, answer in zip(rows, answers)}
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
