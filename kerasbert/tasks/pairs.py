"""Texts that vectors learn from: STS scores (Cer et al., 2017), anchors with their positives, NLI, texts alone (SimCSE)."""

from pathlib import Path
from typing import Any

from kerasbert.data import plain
from kerasbert.data.sources import NumberedRow, file_format, numbered_table
from kerasbert.errors import InputError
from kerasbert.registry import register_reader, register_task
from kerasbert.tasks.base import Task

TEXT = "text"
ENTAILMENT, CONTRADICTION = ("entailment", "0"), ("contradiction", "2")


def read_sts(source: Path, task: Task) -> list[NumberedRow]:
    """Rows of a table with the task's columns, or of a csv without a header whose three are sentence, sentence, score."""
    rows = numbered_table(source)
    names = list(rows[0][1])
    if len(names) == 3 and not set(task.columns) & set(names):
        rows = numbered_table(source, names=task.columns)
    else:
        rows = numbered_table(source, columns=task.parts)
    return rows


def read_nli(source: Path, task: Task) -> list[NumberedRow]:
    """Premises with what they entail, and with what contradicts them where the file has it (Gao et al., 2021, section 4).

    A premise's entailed sentences each are a row; its contradictions are the negatives, in turn.

    Raises:
        InputError: no premise with an entailed sentence.
    """
    table = numbered_table(source, columns=["premise", "hypothesis", "label"])
    against: dict[str, list[str]] = {}
    for _, row in table:
        if row["label"] in CONTRADICTION:
            against.setdefault(row["premise"], []).append(row["hypothesis"])
    rows, seen = [], {}
    for line, row in table:
        if row["label"] not in ENTAILMENT:
            continue
        number = seen[row["premise"]] = seen.get(row["premise"], -1) + 1
        negatives = against.get(row["premise"])
        positive = [row["hypothesis"], negatives[number % len(negatives)]] if negatives else row["hypothesis"]
        rows.append((line, {task.text: row["premise"], task.text_b: positive}))
    if not rows:
        raise InputError(f"{source} has no row with the label entailment in its {len(table)} rows: is it NLI?")
    return rows


def read_simcse(source: Path, task: Task) -> list[NumberedRow]:
    """Each line of a text, or each `text` (or `sentence`) of a table, beside itself; of a table as of `sts`, its pairs.

    Raises:
        InputError: a table with neither, or no text.
    """
    if file_format(source) == "text":
        texts: list[NumberedRow] = [(line, {TEXT: text.strip()}) for line, text in plain.numbered(source)]
    else:
        texts = numbered_table(source)
        if set(task.columns) <= set(texts[0][1]):
            return texts
    column = next((name for name in (TEXT, "sentence") if name in texts[0][1]), None) if texts else TEXT
    if column is None:
        raise InputError(
            f"{source} has no column {TEXT!r}, nor {', '.join(task.columns)}. It has: {', '.join(texts[0][1])}"
        )
    found = ((line, row[column]) for line, row in texts if row[column])
    return [(line, dict(zip(task.columns, (text, text, "1")))) for line, text in found]


register_reader("simcse", read_simcse)
register_reader("sts", read_sts)
register_reader("nli_pairs", read_nli)
_SCORES = {"train": ("stsb-en-train.csv",), "dev": ("stsb-en-dev.csv",)}
_SENTENCES: dict[str, Any] = {"text": "sentence1", "text_b": "sentence2", "label": "score", "metric": "spearman"}
_ANCHORS: dict[str, Any] = {
    "text": "anchor",
    "text_b": "positive",
    "label": "",
    "metric": "recall",
    "options": {"loss": "ranking"},
}
_SLICES = {"train": ("train_slice.csv",), "dev": ("dev_slice.csv",)}
register_task("sts", Task("sts", "vector", **_SENTENCES, reader="sts", files=_SCORES, options={"loss": "cosine"}))
register_task("simcse", Task("simcse", "vector", **_SENTENCES, reader="simcse", options={"loss": "simcse"}))
register_task("pairs", Task("pairs", "vector", **_ANCHORS))
register_task("nli_pairs", Task("nli_pairs", "vector", **_ANCHORS, reader="nli_pairs", files=_SLICES))
