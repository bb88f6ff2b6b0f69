"""Rows from a file or from memory: what `finetune`, `evaluate` and `predict` take as data."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.blanks import absent
from kerasbert.data import hints
from kerasbert.data.dialects import default_reading
from kerasbert.data.sources import NumberedRow, numbered_table
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import datasets


@dataclasses.dataclass(frozen=True)
class Memory:
    """Rows that were given as Python objects.

    Args:
        rows: dicts of a value per column, or tuples (text, label), (text_a, text_b, label), ((text_a, text_b), label). A
            value is a text, a number, or whatever the task's kind reads, such as a list of words.
        name: str, what errors and reports call them.
        read: bool, whether they are tuples of what `Rows` hold: of several texts in a part none is a row of its own.
    """

    rows: tuple[Any, ...]
    name: str = "the rows in memory"
    read: bool = False

    def __str__(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def table(self, order: Sequence[str], columns: Sequence[str], texts: Sequence[str] = ()) -> list[NumberedRow]:
        """(number from 0, column -> text) of each row, as a file's.

        Args:
            order: columns that the values of a tuple are of.
            columns: those that every row must have. texts: those that hold texts, of which none may be missing.

        Raises:
            InputError: no rows, a row of another form, a missing column or text (None, NaN).
        """
        if not self.rows:
            raise InputError(f"{self} are none, expected at least one")
        return [(i, self._row(i, row, order, columns, texts)) for i, row in enumerate(self.rows)]

    def _row(self, i: int, row: object, order: Sequence[str], columns: Sequence[str], texts: Sequence[str]) -> Json:
        if not isinstance(row, Mapping):
            if not isinstance(row, list | tuple):
                held = ", ".join(f"{name!r}: [...]" for name in order)
                raise InputError(
                    f"{where(self, i)}: a {type(row).__name__}, expected a dict or ({', '.join(order)}). Columns go in as "
                    f"one dict: {{{held}}}"
                )
            nested = row and isinstance(row[0], list | tuple) and len(row) != len(order)  # ((text_a, text_b), label)
            values = [*row[0], *row[1:]] if nested else list(row)
            texts_alone = list(columns) == list(order[: len(values)]) and len(values) == len(columns)
            if len(values) != len(order) and not texts_alone:
                raise InputError(
                    f"{where(self, i)}: {len(values)} values, expected {len(order)}: ({', '.join(order)}). "
                    "Texts in pairs need text_b_column"
                )
            row = dict(zip(order, values))
        gone = next((name for name in texts if name in row and absent(row[name])), None)
        if gone is not None:
            raise InputError(
                f"{where(self, i)}: column {gone!r} is {row[gone]!r}, expected a text. Drop the row or fill it"
            )
        row = {str(name): _text(value) for name, value in row.items()}
        if not set(columns) <= row.keys():
            raise InputError(hints.no_column(f"{where(self, i)} has", columns, row, options=hints.ARGUMENTS))
        return row

    def digest(self) -> str:
        """sha256 of the rows, as a file's would stand in run.json."""
        found = hashlib.sha256()
        for row in self.rows:
            # what is no row is refused where it is read (`table`)
            values = [_text(v) for v in row] if isinstance(row, list | tuple) else _text(row)
            values = {str(k): _text(v) for k, v in row.items()} if isinstance(row, Mapping) else values
            found.update(json.dumps(values, sort_keys=True, ensure_ascii=True, default=str).encode() + b"\n")
        return found.hexdigest()


Source = Path | Memory
# of a caller: a path, rows in memory, split -> one of them, (train, dev), a DataFrame, a dict of columns, dicts or tuples
Data = str | os.PathLike | Memory | Mapping[str, object] | Iterable[object]


def where(source: Source, line: int) -> str:
    """`my.csv, line 3`, or `the rows in memory, row 2` (from 0)."""
    return f"{source}, {'row' if isinstance(source, Memory) else 'line'} {line}"


def table(source: Source, order: Sequence[str], columns: Sequence[str], texts: Sequence[str] = ()) -> list[NumberedRow]:
    """(line, column -> text) of each row of a file, or of rows in memory; see `Memory.table`."""
    if isinstance(source, Memory):
        return source.table(order, columns, texts)
    return numbered_table(source, columns=columns)


def digest(source: Source) -> str:
    """sha256 of the rows; of a folder of files, of their names and contents."""
    if isinstance(source, Memory):
        return source.digest()
    if not source.is_dir():
        return files.sha256(source)
    held = [file for file in sorted(source.rglob("*")) if file.is_file()]
    lines = [f"{file.relative_to(source).as_posix()} {files.sha256(file)}\n" for file in held]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def reading_of(described: JsonMap | None, *sources: Source) -> contextlib.AbstractContextManager:
    """A block in which tables are read as a run read them, where they are the run's own.

    Args:
        described: what run.json of the run holds.
    """
    settings = (described or {}).get("settings") or {}
    said, own = settings.get("reading"), settings.get("data")
    if not isinstance(said, dict) or not isinstance(own, dict):
        return contextlib.nullcontext()
    same = any(digest(source) in own.values() for source in sources)
    return default_reading(said) if same else contextlib.nullcontext()


def is_table(data: object) -> bool:
    """Whether data are rows in memory: a DataFrame, a dict of columns, or rows one after the other."""
    if _is_frame(data):
        return True
    if isinstance(data, Mapping):
        return bool(data) and all(_is_column(value) for value in data.values())
    if isinstance(data, str | bytes | os.PathLike) or not isinstance(data, Iterable):
        return False
    if not isinstance(data, list | tuple):
        return True
    first = data[0] if data else None  # of (train, dev) a table, of rows a row
    return (isinstance(first, Mapping) and not is_table(first)) or _is_row(first)


def kept(data: Any) -> Any:
    """Data that can be read again: the rows of an iterator, in whose place they are, else what was given."""
    if isinstance(data, Mapping):
        return {name: kept(each) if isinstance(each, Iterator) else each for name, each in data.items()}
    if isinstance(data, list | tuple) and any(isinstance(each, Iterator) for each in data):  # (train, dev)
        return [kept(each) for each in data]
    return in_memory(data) if isinstance(data, Iterator) else data


def in_memory(data: Any) -> Memory:
    """The rows of a DataFrame, of a dict of columns, or of an iterable of dicts or tuples."""
    if isinstance(data, Memory):
        return data
    data = datasets.plain(data)
    if _is_frame(data):
        data = {name: list(data[name]) for name in data.columns}
    if isinstance(data, Mapping):
        lengths = {name: len(column) for name, column in data.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise InputError(f"the columns in memory have different lengths: {told}")
        data = [dict(zip(data, values)) for values in zip(*data.values())]
    if not isinstance(data, Iterable):
        raise InputError(f"data holds a {type(data).__name__}, expected a file or rows in memory")
    if isinstance(data, set | frozenset):
        raise InputError("data holds a set, which has no order: give a list, sorted(rows)")
    return Memory(tuple(data))


def _is_frame(data: object) -> bool:
    """Whether it looks like a DataFrame (pandas, polars); neither is imported."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__") and not isinstance(data, Mapping)


def _is_column(value: object) -> bool:
    if isinstance(value, str | bytes | os.PathLike | Mapping) or _is_frame(value) or not isinstance(value, Sized):
        return False
    return isinstance(value, Iterable) and not any(isinstance(item, Mapping | tuple) for item in value)


def _is_row(row: object) -> bool:
    """(text, label), (text_a, text_b, label), ((text_a, text_b), label) or (text, [label, label])."""
    if not isinstance(row, list | tuple) or len(row) < 2 or not _is_text(row[0]):
        return False
    # a list of rows, which is the first of (train, dev), begins with a row
    return not isinstance(row[-1], list | tuple) or (isinstance(row[0], str) and _is_text(row[-1]))


def _is_text(value: object) -> bool:
    parts = value if isinstance(value, list | tuple) else (value,)
    return all(isinstance(part, str | bytes) for part in parts)


def _text(value: Any) -> object:
    """A value as a jsonl file would give it: an array is a list, a missing value (None, NaN) is empty."""
    if absent(value):
        return ""
    if isinstance(value, np.ndarray | bytes):
        return datasets.plain_value(value)
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()  # numpy's numbers
    if isinstance(value, float) and math.isnan(value):
        return ""
    return json.dumps(value) if isinstance(value, bool | int | float) else value
