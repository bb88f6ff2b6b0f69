"""What a task is: columns of a table, a kind, labels and a metric."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import registry
from kerasbert.data.sources import read_table
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.registry import register_task

SPLITS = {"train": ("train",), "dev": ("dev", "validation", "valid", "test")}
FORMATS = ("tsv", "csv", "jsonl")


@dataclasses.dataclass(frozen=True)
class Task:
    """One text, or a pair of texts, to a label or a number.

    Args:
        name: str. kind: "classification" or "regression".
        text, text_b, label: column names; `text_b` None for single sentences.
        labels: value in the file -> name of the class, in the order of the classes; found in the training rows if empty.
        metric: str, what the best checkpoint is chosen by.
        hidden_layer: bool, whether the head has the hidden layer that an encoder without a pooler brings; None is yes. The
            classifiers of ELECTRA's released code have none.
    """

    name: str
    kind: str = "classification"
    text: str = "text"
    text_b: str | None = None
    label: str = "label"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metric: str = "accuracy"
    hidden_layer: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """What model.json holds; `inputs` tells the exporters whether it takes pairs."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"labels": dict(self.labels), "inputs": "pair" if self.text_b else "text"}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Task":
        """The inverse of `to_json`; an imported classifier has only `kind` and `inputs`."""
        known = {field.name for field in dataclasses.fields(Task)}
        given = {name: value for name, value in content.items() if name in known}
        if content.get("inputs") == "pair":
            given.setdefault("text_b", "text_b")
        return Task(**{"name": given.get("kind", "classification")} | given)


for _kind, _metric in (("classification", "accuracy"), ("regression", "spearman")):
    register_task(_kind, Task(_kind, kind=_kind, metric=_metric))
register_task("glue/sst2", Task("glue/sst2", text="sentence", labels={"0": "negative", "1": "positive"}))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts and targets: `targets` is int32 class indices or float32 numbers [n], None where the file has none."""

    texts: list[str | tuple[str, str]]
    targets: np.ndarray | None

    def take(self, indices: Sequence[int]) -> "Rows":
        """Some of the rows."""
        return Rows([self.texts[i] for i in indices], self.targets[indices])


def find_task(task: str | Task, **columns: str | None) -> Task:
    """The task of that name, with other column names where given (text, text_b, label)."""
    task = registry.task(task) if isinstance(task, str) else task
    return dataclasses.replace(task, **{name: value for name, value in columns.items() if value})


def split_files(data: Any) -> dict[str, Path]:
    """`train` and `dev` files of a folder, of {"train", "dev"}, of (train, dev), or one file as `train`."""
    if isinstance(data, Mapping):
        unknown = set(data) - {"train", "dev"}
        if unknown:
            raise InputError(f"data has {', '.join(sorted(unknown))}, expected train and dev")
        return {name: Path(path) for name, path in data.items() if path}
    if isinstance(data, list | tuple):
        if len(data) not in (1, 2):
            raise InputError(f"data has {len(data)} files, expected train and dev")
        return dict(zip(("train", "dev"), map(Path, data)))
    path = Path(data)
    if path.is_file():
        return {"train": path}
    if not path.is_dir():
        raise InputError(f"no file or folder {path}. Check the path")
    files = {}
    for split, names in SPLITS.items():
        found = [
            path / f"{name}.{ending}" for name in names for ending in FORMATS if (path / f"{name}.{ending}").is_file()
        ]
        if found:
            files[split] = found[0]
    if not files:
        raise InputError(f"{path} holds no train or dev file ending in .tsv, .csv or .jsonl: name the files")
    return files


def find_labels(task: Task, path: os.PathLike) -> Task:
    """The task with the labels that occur in a file, sorted, where it names none."""
    if task.labels or task.kind != "classification":
        return task
    values = {row[task.label] for row in read_table(path, columns=[task.label])}
    if len(values) < 2:
        raise InputError(f"{path} has one label only in column {task.label!r}: {min(values)!r}; expected at least two")
    if len(values) > 10_000:
        raise InputError(f"{path} has {len(values)} different labels in column {task.label!r}: is it the label column?")
    try:
        order = sorted(values, key=lambda value: (float(value), value))
    except ValueError:
        order = sorted(values)
    return dataclasses.replace(task, labels={value: value for value in order})


def read_rows(task: Task, path: os.PathLike, *, targets: bool = True) -> Rows:
    """Texts and targets of a file.

    Raises:
        InputError: a missing column, a label the task does not know, a number that is none; with file and row.
    """
    columns = [column for column in (task.text, task.text_b, task.label if targets else None) if column]
    table = read_table(path, columns=columns)
    texts = [(row[task.text], row[task.text_b]) if task.text_b else row[task.text] for row in table]
    if not targets:
        return Rows(texts, None)
    if task.kind == "regression":
        return Rows(texts, np.array([_number(row[task.label], path, i) for i, row in enumerate(table)], "float32"))
    index = {value: i for i, value in enumerate(task.labels)} | {name: i for i, name in enumerate(task.labels.values())}
    wrong = next((i for i, row in enumerate(table) if row[task.label] not in index), None)
    if wrong is not None:
        known = ", ".join(list(task.labels)[:20])
        raise InputError(
            f"{path}, row {wrong + 1}: label {table[wrong][task.label]!r} is unknown. Expected one of: {known}"
        )
    return Rows(texts, np.array([index[row[task.label]] for row in table], "int32"))


def _number(value: str, path: os.PathLike, row: int) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not np.isfinite(number):
        raise InputError(f"{path}, row {row + 1}: {value!r} is not a number, as a regression's label must be")
    return number


def hold_out(rows: Rows, seed: int, share: float = 0.1) -> tuple[Rows, Rows]:
    """Train and dev rows of one file: the rows whose random number, by index and seed, is below `share` are dev."""
    drawn = np.asarray(random.uniform(random.key(seed, "hold out", np.arange(len(rows.texts), dtype="int32")), ()))
    dev = drawn < share
    if not dev.any() or dev.all():
        raise InputError(f"{len(rows.texts)} rows are too few to hold some out for evaluation: name a dev file")
    return rows.take(np.flatnonzero(~dev)), rows.take(np.flatnonzero(dev))
