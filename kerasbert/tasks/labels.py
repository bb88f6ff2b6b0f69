"""What a column of labels may hold, and what is to be said about it."""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import errors
from kerasbert.data.numbers import parsed
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.tasks.rows import RowText
from kerasbert.tasks.tables import Source, where

if TYPE_CHECKING:
    from kerasbert.tasks.base import Task

# how pandas, Python, databases and Excel write a value that is not there
MISSING = (
    "",
    "nan",
    "NaN",
    "None",
    "null",
    "NULL",
    "<NA>",
    "NaT",
    "#N/A",
    "#REF!",
    "#NAME?",
    "#VALUE!",
    "#DIV/0!",
    "#NUM!",
)
MOST = 10_000
YES, NO = ("1", "1.0", "true"), ("0", "0.0", "false")  # of a column of 0 and 1; pandas writes 1.0 beside NaN
MARKS = ("-", "-1")  # of a row without a label: SNLI's, Hugging Face's
NO_LABEL = "no label"  # of a text that has none of several
FEWEST = 3  # rows of other labels without which answers that are all one say nothing
RARE = 5  # as many times as often are other labels wanted as answered where answers are nearly all one
FEW = 20  # so many different numbers may be classes, whatever their rows


def clean(
    source: Source, column: str, lines: Sequence[int], values: Sequence[object], known: Mapping = {}
) -> list[str]:
    """The labels without the white space around them; those in `known` stay as they are.

    Raises:
        InputError: a label is missing, or no text; with file and line, and how many are.
    """
    nested = next((i for i, value in enumerate(values) if isinstance(value, list | tuple | Mapping)), None)
    if nested is not None:
        raise InputError(
            f"{where(source, lines[nested])}: the label (column {column!r}) is {values[nested]!r:.60}, expected one text. "
            "Several labels of a text are --task multi_label; a field of an object has to be a column of its own"
        )
    found = [value if value in known else value.strip() for value in map(_scalar, values)]
    missing = [i for i, value in enumerate(found) if value in MISSING and value not in known]
    if missing:
        i = missing[0]
        what = "empty" if not found[i] else repr(values[i])
        raise InputError(
            f"{where(source, lines[i])}: the label (column {column!r}) is {what}, as in {len(missing)} of {len(found)} "
            "rows. Drop these rows (--skip-unlabelled, in Python skip_unlabelled=True), or name the class otherwise"
        )
    return found


def _scalar(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def joined(task: "Task", source: Source, rows: list[NumberedRow]) -> list[NumberedRow]:
    """The rows, in the place of columns of 0 and 1 the names of those that hold a 1.

    Raises:
        InputError: another value; with file and line.
    """
    names = task.label_columns
    if len(names) < 2:
        return rows
    return [
        (line, row if task.label in row else row | {task.label: _set(source, line, row, names)}) for line, row in rows
    ]


def _set(source: Source, line: int, row: Mapping[str, object], names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        value = str(row.get(name, "")).strip().lower()
        if value not in YES and value not in NO:
            hint = ". Rows without labels are left out by --skip-unlabelled" if value in ("", *MARKS, "nan") else ""
            raise InputError(f"{where(source, line)}: column {name!r} is {row.get(name)!r:.40}, expected 0 or 1{hint}")
        found += [name] if value in YES else []
    return found


def check_classes(source: Source, column: str, values: Sequence[str]) -> None:
    """Refuse a column that is no column of classes.

    Raises:
        InputError: one value only, too many, or numbers that are measured.
    """
    classes, rows = set(values), len(values)
    if len(classes) < 2:
        raise InputError(f"{source} has one label only in column {column!r}: {min(classes)!r}; expected at least two")
    numbers = [number for number in map(_number, classes) if number is not None]
    if len(classes) > FEW and len(numbers) == len(classes):
        # 300 reals are 300 classes of a row each; whole numbers may be names of classes
        least = 2 if all(number == int(number) for number in numbers) else 5
        if rows < least * len(classes):
            raise InputError(
                f"{source} has {len(classes)} different numbers in column {column!r} of {rows} rows, which would be "
                f"{len(classes)} classes: pass --task regression, or write classes as names such as 'c7'"
            )
    if len(classes) > MOST:
        raise InputError(f"{source} has {len(classes)} different labels in column {column!r}: is it the label column?")


def _number(value: str) -> float | None:
    number = parsed(value)
    return number if abs(number) < float("inf") else None


def ordered(values: Collection[str]) -> list[str]:
    """Labels in the order of the numbers that they are, else of their letters."""
    try:
        return sorted(values, key=lambda value: (float(value), value))
    except ValueError:
        return sorted(values)


def names_of(given: str | Sequence[str]) -> list[str]:
    """Names of labels, one text with commas between or a list.

    Raises:
        InputError: one is empty or there twice.
    """
    found = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    if not all(found) or len(set(found)) < len(found):
        raise InputError(f"names of labels {', '.join(found)!r}: expected different names, with commas between")
    return found


def as_head(task: "Task", kept: Sequence[str]) -> "Task":
    """The task with the labels of a head that is kept, in its order, where the head has all of the task's; else as it is.

    >>> from kerasbert.tasks.base import Task
    >>> as_head(Task("x", labels={"0": "no", "1": "yes"}), ["yes", "so", "no"]).labels
    {'1': 'yes', 'so': 'so', '0': 'no'}
    """
    values = {name: value for value, name in task.labels.items()}
    if not set(values) <= set(kept) or len(values) < len(task.labels):
        return task
    return dataclasses.replace(task, labels={values.get(name, name): name for name in kept})


def unknown(source: Source, line: int, label: str, task: "Task") -> InputError:
    """The error for a label that a task does not know."""
    known = ", ".join(list(task.labels)[:20])
    hint = ". It marks a row without a label: drop these rows, or predict them" if label in MARKS else ""
    return InputError(f"{where(source, line)}: label {label!r} is unknown. Expected one of: {known}{hint}")


def number(task: "Task", logits: Tensor, target: object) -> int:
    """The label that is asked for, by its name or its value in the file, else the best of a row's logits.

    Args:
        logits: [1, L], or None for the first label where none is asked for.

    Raises:
        InputError: no such label.
    """
    if target is None:
        return 0 if logits is None else int(logits[0].argmax())
    for names in (list(task.labels.values()), list(task.labels)):
        if isinstance(target, str) and target in names:
            return names.index(target)
    raise errors.unknown("label", str(target), list(task.labels.values()), ", ".join(list(task.labels.values())[:20]))


def untargeted(kind: str, target: object) -> None:
    """Refuse a target of `explain` where a kind has one number alone."""
    if target is not None:
        raise InputError(f"a {kind} is explained by its answer alone, received the target {target!r:.60}")


def absent(names: Sequence[str]) -> list[str]:
    """The line about labels that occur in the training rows alone; none where there are none."""
    if not names:
        return []
    return [f"no dev row has the label{'s' * (len(names) > 1)} {', '.join(map(repr, names[:10]))}"]


def told(task: "Task", columns: Sequence[object]) -> dict[str, dict[str, float]]:
    """What is known of each label, by its name.

    Args:
        columns: precision, recall, F1, ROC AUC and the number of rows, of each label.
    """
    names = ("precision", "recall", "f1", "roc_auc", "rows")
    return {
        label: {name: int(value) if name == "rows" else float(value) for name, value in zip(names, row)}
        for label, row in zip(task.labels.values(), zip(*columns), strict=True)
    }


def remarks(source: Source, raw: Sequence[object]) -> list[str]:
    """What a user should know about the labels of the training rows, a line each.

    Args:
        raw: the labels as they stand in the file.
    """
    found, values = [], [_scalar(value).strip() for value in raw]
    spaced = [value for value in raw if isinstance(value, str) and value != value.strip()]
    if spaced:
        found.append(
            f"{source}: {len(spaced)} labels have space around them, such as {spaced[0]!r}, "
            f"which is read as {spaced[0].strip()!r}"
        )
    counts = Counter(values)
    for alike, same in _alike(counts):
        names = ", ".join(f"{name!r} ({counts[name]} rows)" for name in same)
        found.append(f"{source}: labels that {alike} are classes of their own: {names}")
    marks = [mark for mark in MARKS if mark in counts]
    if marks and len(counts) > 2:
        found.append(
            f"{source}: the label {marks[0]!r} is a class of its own; where it marks rows without a label drop them"
        )
    if len(counts) > FEW and len(values) < 2 * len(counts):
        found.append(f"{source}: {len(counts)} labels in {len(values)} rows: is it the label column?")
    label, most = counts.most_common(1)[0]
    if most > 0.9 * len(values):
        found.append(f"{source}: {most / len(values):.1%} of the labels are {label!r}")
    combined = _combined(list(counts))
    if combined:
        decimal = all(_number(value) is not None for value in counts)
        found.append(
            f"{source}: labels such as {combined!r} look like several in one cell"
            f"{', or like numbers with a decimal comma' if decimal else ''}. A text has one label here: each "
            f"{'one' if decimal else 'combination'} is a class of its own ({len(counts)} classes); --task multi_label gives it "
            f"several{', --task regression learns numbers' if decimal else ''}"
        )
    return found


def contradictions(source: Source, texts: Sequence[RowText], targets: Sequence[object]) -> list[str]:
    """The line about inputs that stand in a file with different answers; none where there are none."""
    held: dict[RowText, object] = {}
    differ: dict[RowText, tuple[object, object]] = {}
    for text, target in zip(texts, targets):
        if (first := held.setdefault(text, target)) != target:
            differ.setdefault(text, (first, target))
    if not differ:
        return []
    text, (one, other) = next(iter(differ.items()))
    return [
        f"{source}: {len(differ)} inputs stand there with different labels, such as {text!s:.40} ({one!s:.40} and {other!s:.40})"
    ]


def _alike(values: Collection[str]) -> list[tuple[str, list[str]]]:
    """Labels that somebody may have meant as one, and how they are alike."""
    folded: dict[str, list[str]] = {}
    numbers: dict[float, list[str]] = {}
    for value in sorted(values):
        shown = "".join(letter for letter in value if unicodedata.category(letter) != "Cf")  # no zero-width spaces
        folded.setdefault(" ".join(unicodedata.normalize("NFKC", shown).casefold().split()), []).append(value)
        if (number := _number(value)) is not None:
            numbers.setdefault(number, []).append(value)
    told = [("are the same number", same) for same in numbers.values() if len(same) > 1]
    for same in folded.values():
        if len(same) > 1 and _number(same[0]) is None:
            cased = len({value.casefold() for value in same}) == 1
            told.append(("differ in case alone" if cased else "differ in blanks or in forms of characters alone", same))
    return told


def _combined(labels: Sequence[str]) -> str | None:
    """A label that looks like several, whose parts recur in other labels: `a,b` beside `a` and `b`."""
    for separator in "|;,":
        parts = {label: {part.strip() for part in label.split(separator)} for label in labels}
        several = [label for label in labels if len(parts[label]) > 1]
        found = Counter(part for label in labels for part in parts[label])
        mine = {part for label in several for part in parts[label]}
        if several and 2 * sum(found[part] > 1 for part in mine) >= len(mine):
            return min(several)
    return None


def nearly_one(targets: np.ndarray, answers: np.ndarray, names: Sequence[str]) -> str:
    """What is told of answers that are nearly all one label where the rows are not; empty of others.

    The other labels are wanted at least RARE times as often as they are answered: an unbalanced set whose rare labels are
    answered as often as they occur is no such case.

    >>> nearly_one(np.repeat([0, 1], 50), np.repeat([0, 1], [97, 3]), ["bad", "good"])
    "97 of 100 answers are 'bad', which 50 of the rows are labelled"
    """
    counts = np.bincount(answers, minlength=len(names))
    most = int(counts.argmax())
    wanted, others = int((targets == most).sum()), len(answers) - int(counts.max())
    if others * RARE > len(targets) - wanted or len(targets) - wanted < FEWEST:
        return ""
    return f"{counts.max()} of {len(answers)} answers are {names[most]!r}, which {wanted} of the rows are labelled"
