"""Tasks whose answer is a text, and GLUE's put into words (Raffel et al., 2020, section 2.4 and appendix D)."""

import math
from pathlib import Path
from typing import Any

from kerasbert import registry
from kerasbert.data.numbers import number
from kerasbert.data.sources import NumberedRow, numbered_table
from kerasbert.errors import InputError
from kerasbert.registry import register_reader, register_task
from kerasbert.tasks.base import Task
from kerasbert.tasks.glue import ADVERSARIAL, MATCHED, PARAPHRASES, SCORES, SLICES

COLUMNS: dict[str, Any] = {"kind": "generation", "text": "source", "text_b": "target", "label": ""}

register_task("generation", Task("generation", **COLUMNS, metric="exact_match"))
register_task("translation", Task("translation", **COLUMNS, metric="bleu"))
register_task("summarization", Task("summarization", **COLUMNS, metric="rougeLsum", options={"target_length": 128}))

# task of GLUE -> prefix, and what follows it: the columns of a row
TEMPLATES = {
    "cola": ("cola sentence: ", "{sentence}"),
    "sst2": ("sst2 sentence: ", "{sentence}"),
    "mrpc": ("mrpc ", "sentence1: {sentence1} sentence2: {sentence2}"),
    "stsb": ("stsb ", "sentence1: {sentence1} sentence2: {sentence2}"),
    "qqp": ("qqp ", "question1: {question1} question2: {question2}"),
    "mnli": ("mnli ", "hypothesis: {sentence2} premise: {sentence1}"),
    "qnli": ("qnli ", "question: {question} sentence: {sentence}"),
    "rte": ("rte ", "sentence1: {sentence1} sentence2: {sentence2}"),
}
FILES = {"mrpc": PARAPHRASES, "stsb": SCORES, "qqp": ADVERSARIAL, "mnli": MATCHED, "qnli": SLICES}


def read(source: Path, task: Task) -> list[NumberedRow]:
    """The rows of a file of GLUE as sources and targets; a file without labels has no targets.

    Raises:
        InputError: a label that the task does not know, with file and line.
    """
    name = task.name.rpartition("/")[2]
    glue, found = registry.task(f"glue/{name}"), []
    rows = (
        registry.READERS.find(glue.reader)(source, glue) if glue.reader else numbered_table(source, columns=glue.parts)
    )
    for line, row in rows:
        said = {task.text: TEMPLATES[name][1].format(**row)}
        if glue.label in row and task.text_b:
            said[task.text_b] = _words(row[glue.label], glue, source, line)
        found.append((line, said))
    return found


def _words(label: object, glue: Task, source: Path, line: int) -> str:
    """A label as its name; a score as the nearest multiple of 0.2 (section 2.4)."""
    where = f"{source}, line {line}"
    if glue.labels:
        if isinstance(label, str) and label in glue.labels:
            return glue.labels[label]
        if isinstance(label, str) and label in glue.labels.values():
            return label
        raise InputError(f"{where}: label {label!r}, expected one of {', '.join(glue.labels)}")
    score = number(label, source, where)
    if not math.isfinite(score):
        raise InputError(f"{where}: {label!r:.40} is no number, expected a score")
    return f"{round(score * 5) / 5:.1f}"


register_reader("text_to_text", read)
for _name, (_prefix, _) in TEMPLATES.items():
    _about: dict[str, Any] = {"options": {"prefix": _prefix, "target_length": 16}, "files": FILES.get(_name, {})}
    _task = Task(f"text_to_text/{_name}", **COLUMNS, metric="exact_match", reader="text_to_text", **_about)
    register_task(_task.name, _task)
