"""Rows without a label: SNLI's `-` (no gold label: the annotators disagreed) and Hugging Face's -1."""

from collections import Counter
from collections.abc import Sequence

from kerasbert.blanks import absent
from kerasbert.data.dialects import current, say
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.labels import MARKS, MISSING
from kerasbert.tasks.tables import Source

INFERENCE = {"entailment", "neutral", "contradiction", "not_entailment"}
INFERENCE_PARTS = {("premise", "hypothesis"), ("sentence1", "sentence2")}


class Unlabelled(str):
    """In the place of a label: why an annotation tool gave none, such as `answer 'reject'`."""


def labelled(task: Task, source: Source, rows: list[NumberedRow]) -> list[NumberedRow]:
    """The rows that have a label: without those that an annotation tool left open, those of inference (NLI) that are marked
    so, and where that is asked for (`Reading.skip_unlabelled`) all whose label is missing. How many are dropped is told.

    Raises:
        InputError: no row has one.
    """
    why = Counter(str(row[task.label]) for _, row in rows if isinstance(row.get(task.label), Unlabelled))
    if why:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in why.items())
        rows = _without(source, rows, [isinstance(row.get(task.label), Unlabelled) for _, row in rows], reasons)
    if current().skip_unlabelled:
        names = task.label_columns
        gone = [any(_is_missing(row.get(name)) for name in names) for _, row in rows]
        return _without(source, rows, gone, f"column {', '.join(names)}") if any(gone) else rows
    found = [str(row.get(task.label, "")).strip() for _, row in rows]
    if not any(value in MARKS for value in found) or not _is_inference(task, [v for v in found if v not in MARKS]):
        return rows
    kept = [row for row, value in zip(rows, found) if value not in MARKS]
    if not kept:
        raise InputError(f"{source}: no row has a label (column {task.label!r} is {found[0]!r}): predict such a file")
    say(f"{source}: {len(rows) - len(kept)} of {len(rows)} rows have no label ({_marks(found)}) and are dropped")
    return kept


def _without(source: Source, rows: list[NumberedRow], gone: Sequence[bool], reason: str) -> list[NumberedRow]:
    """The rows that are not gone, which is told."""
    kept = [row for row, left in zip(rows, gone) if not left]
    if not kept:
        raise InputError(f"{source}: none of its {len(rows)} rows has a label: {reason}. Predict such a file")
    say(f"{source}: {sum(gone)} of {len(rows)} rows have no label and are left out: {reason}")
    return kept


def _is_missing(value: object) -> bool:
    """Whether a cell holds no label: it is empty, a value that is not there, or a mark of such rows."""
    return absent(value) or (isinstance(value, str) and value.strip() in (*MISSING, *MARKS))


def _marks(found: Sequence[str]) -> str:
    return ", ".join(repr(mark) for mark in MARKS if mark in found)


def _is_inference(task: Task, values: Sequence[str]) -> bool:
    """Whether the labels are those of inference, or numbers of them for a premise and a hypothesis."""
    if not (task.how.answers.labelled and task.pair):
        return False
    known = set(task.labels) or set(values)
    if known <= {"0", "1", "2"}:
        return task.parts in INFERENCE_PARTS or (bool(task.labels) and set(task.labels.values()) <= INFERENCE)
    return known <= INFERENCE
