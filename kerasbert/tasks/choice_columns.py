"""Tables whose choices stand in columns of their own (A, B, C, D; choice1, ...; option_a, ...) -> rows with a list of choices."""

import itertools
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence

from kerasbert.blanks import absent
from kerasbert.data.dialects import say
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.tasks import unlabelled
from kerasbert.tasks.base import Task
from kerasbert.tasks.tables import Source, where

NAMED = re.compile(r"(.*?)[ _.-]?([A-Za-z]|\d{1,2})")
STEMS = ("", "choice", "option", "opt", "answer", "ending", "candidate", "alternative", "sol", "solution", "response")
NAME = "the name of the choice or its letter, or a number from 0 or from 1, or the choice itself, the same in all rows"
Reading = Callable[[str, Sequence[str], Mapping[str, str]], str | None]  # (label, columns, their choices) -> column


def columns_of(task: Task, row: Mapping[str, object], source: Source) -> list[str]:
    """The columns that hold the choices of a row without the column of a list; none where there are no such columns.

    They are those that the task names (`text_b` "A,B,C,D"), or names that differ in a last letter from A or a number from 0 or 1.

    Raises:
        InputError: two series of columns may be the choices.
    """
    named = [name.strip() for name in (task.text_b or "").split(",")]
    if len(named) > 1 and set(named) <= row.keys():
        return named
    found = dict(_series([name for name in row if name not in (task.text, task.label)]))
    known = {stem: names for stem, names in found.items() if stem.rstrip("s") in STEMS}
    found = known or found
    if len(found) > 1:
        told = " or ".join(",".join(names) for names in found.values())
        raise InputError(f"{source}: which columns hold the choices? Pass --text-b-column {told}")
    return next(iter(found.values()), [])


def _series(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Stem -> the names that differ in their end, in the order of the ends: letters from A, numbers from 0 or 1."""
    held: dict[tuple[str, bool], dict[str, str]] = {}
    for name in names:
        if match := NAMED.fullmatch(name.strip()):
            stem, end = match[1].lower(), match[2].lower()
            held.setdefault((stem, end.isdecimal()), {}).setdefault(str(int(end)) if end.isdecimal() else end, name)
    for (stem, numbered), ends in held.items():
        wanted = map(str, range(0 if "0" in ends else 1, 100)) if numbered else iter(string.ascii_lowercase)
        found = [ends[end] for end in itertools.takewhile(ends.__contains__, wanted)]
        if len(found) > 1:
            yield stem, found


def gathered(task: Task, source: Source, rows: list[NumberedRow], labelled: bool) -> list[NumberedRow]:
    """The rows with a list of choices, and where they are labelled the number of the right one from 0; told in one line.

    Nothing where no columns look like choices. An empty cell is no choice.

    Raises:
        InputError: a row of fewer than two choices; labels that no reading fits, or that two readings understand otherwise.
    """
    assert task.text_b is not None
    columns = columns_of(task, rows[0][1], source)
    if not columns:
        return []
    rows = unlabelled.labelled(task, source, rows) if labelled else rows
    held = [{name: str(row[name]) for name in columns if not _empty(row.get(name))} for _, row in rows]
    for (line, _), choices in zip(rows, held):
        if len(choices) < 2:
            raise InputError(
                f"{where(source, line)}: {len(choices)} of {', '.join(columns)} hold a choice, expected two"
            )
    made: list[NumberedRow] = [
        (line, row | {task.text_b: list(each.values())}) for (line, row), each in zip(rows, held)
    ]
    told = f"{source}: choices are the columns {', '.join(columns)}"
    if labelled:
        values = [str(row[task.label]).strip() for _, row in rows]
        how, right = _right(task, source, [line for line, _ in rows], values, columns, held)
        told += f"; the label ({task.label}) is {how}"
        for (_, row), choices, name in zip(made, held, right):
            row[task.label] = str(list(choices).index(name))
    say(told)
    return made


def _empty(value: object) -> bool:
    return absent(value) or not str(value).strip()


def _name(value: str, columns: Sequence[str], choices: Mapping[str, str]) -> str | None:
    letter = string.ascii_uppercase.find(value.upper()) if len(value) == 1 else -1
    same = next((name for name in columns if name.strip().lower() == value.lower()), None)
    return same or (columns[letter] if 0 <= letter < len(columns) else None)


def _numbered(first: int) -> Reading:
    def read(value: str, columns: Sequence[str], choices: Mapping[str, str]) -> str | None:
        value = value.removesuffix(".0")  # pandas' beside an empty cell
        number = int(value) - first if value.isdecimal() and value.isascii() else -1
        return columns[number] if 0 <= number < len(columns) else None

    return read


def _text(value: str, columns: Sequence[str], choices: Mapping[str, str]) -> str | None:
    same = [name for name, choice in choices.items() if choice.strip() == value]
    return same[0] if len(same) == 1 else None


READINGS: dict[str, Reading] = {
    "the name of a choice": _name,
    "its number from 0": _numbered(0),
    "its number from 1": _numbered(1),
    "its text": _text,
}


def _right(
    task: Task,
    source: Source,
    lines: Sequence[int],
    values: Sequence[str],
    columns: Sequence[str],
    held: Sequence[Json],
) -> tuple[str, list[str]]:
    """How the labels are understood, and the column of each right choice: the one reading that fits all rows."""
    fits: dict[str, list[str]] = {}
    wrong = 0  # the row that the reading which fits the most rows stops at
    for how, read in READINGS.items():
        found = []
        for value, choices in zip(values, held):
            name = read(value, columns, choices)
            if name not in choices:
                break
            found.append(name)
        if len(found) == len(values):
            fits[how] = found
        wrong = max(wrong, len(found))
    if not fits:
        raise InputError(
            f"{where(source, lines[wrong])}: label {values[wrong]!r:.60} (column {task.label!r}) is no choice, expected {NAME}"
        )
    how, right = next(iter(fits.items()))
    for other, names in fits.items():
        if names != right:
            row = next(i for i, pair in enumerate(zip(right, names)) if pair[0] != pair[1])
            raise InputError(
                f"{where(source, lines[row])}: label {values[row]!r:.60} (column {task.label!r}) may be {how} or {other}, and "
                f"both fit all {len(values)} rows: write {columns[0]}, {columns[1]}, ... as labels"
            )
    return how, right
