"""Rows without a label: SNLI's `-` (no gold label: the annotators disagreed) and Hugging Face's -1."""

import functools
import sys
from collections.abc import Sequence
from typing import Any

from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.labels import MARKS
from kerasbert.tasks.tables import Source

INFERENCE = {"entailment", "neutral", "contradiction", "not_entailment"}
INFERENCE_PARTS = {("premise", "hypothesis"), ("sentence1", "sentence2")}
Numbered = list[tuple[int, dict[str, Any]]]


@functools.cache
def say(line: str) -> None:
    """A line for the user on stderr, once in a process: a file is read for its labels and for its rows."""
    print(line, file=sys.stderr, flush=True)


def labelled(task: Task, source: Source, rows: Numbered) -> Numbered:
    """The rows that have a label, where a task is of inference (NLI); how many are dropped is told. Else all rows.

    Raises:
        InputError: no row has one.
    """
    found = [str(row.get(task.label, "")).strip() for _, row in rows]
    if not any(value in MARKS for value in found) or not _is_inference(task, [v for v in found if v not in MARKS]):
        return rows
    kept = [row for row, value in zip(rows, found) if value not in MARKS]
    if not kept:
        raise InputError(f"{source}: no row has a label (column {task.label!r} is {found[0]!r}): predict such a file")
    say(f"{source}: {len(rows) - len(kept)} of {len(rows)} rows have no label ({_marks(found)}) and are dropped")
    return kept


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
