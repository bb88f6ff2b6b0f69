"""What a task is: columns of a table, a kind, labels and a metric."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.registry import register_task
from kerasbert.tasks import labels, tables
from kerasbert.tasks.tables import Memory, Source

SPLITS = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
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
        length: int, longest text in tokens that a model of the task was trained with; None for all its positions.
        mean, std: float, of a regression's targets in the training rows: the head answers (target - mean) / std, and
            `LabelModel` undoes it.
    """

    name: str
    kind: str = "classification"
    text: str = "text"
    text_b: str | None = None
    label: str = "label"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metric: str = "accuracy"
    hidden_layer: bool | None = None
    length: int | None = None
    mean: float = 0.0
    std: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """What model.json holds; `inputs` tells the exporters whether it takes pairs."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("length", "mean", "std"):  # absent where nothing is said, as in older files
            if fields[name] == Task.__dataclass_fields__[name].default:
                del fields[name]
        return fields | {"labels": dict(self.labels), "inputs": "pair" if self.text_b else "text"}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Task":
        """The inverse of `to_json`; an imported classifier has only `kind` and `inputs`."""
        known = {field.name for field in dataclasses.fields(Task)}
        given = {name: value for name, value in content.items() if name in known}
        if content.get("inputs") == "pair":
            given.setdefault("text_b", "text_b")
        return Task(**{"name": given.get("kind", "classification")} | given)

    @property
    def columns(self) -> list[str]:
        """Names of the columns: the texts, then the label."""
        return [column for column in (self.text, self.text_b, self.label) if column]

    def standard(self, targets: np.ndarray) -> np.ndarray:
        """Numbers in their own unit -> what the head of a regression answers."""
        if (self.mean, self.std) == (0.0, 1.0):
            return targets
        return ((targets.astype("float64") - self.mean) / self.std).astype("float32")

    def rounding(self, tolerance: float) -> float:
        """A tolerance of answers of size 1, in the unit of the task's answers; float32 rounds a large mean."""
        return tolerance * self.std + 1e-6 * abs(self.mean)


for _kind, _metric in (("classification", "accuracy"), ("regression", "spearman")):
    register_task(_kind, Task(_kind, kind=_kind, metric=_metric))
register_task("glue/sst2", Task("glue/sst2", text="sentence", labels={"0": "negative", "1": "positive"}))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts and targets.

    Args:
        texts: str or pairs. targets: int32 class indices or float32 numbers [n], None where they were not read.
        labels: the labels as they stand in the file, or None.
    """

    texts: list[str | tuple[str, str]]
    targets: np.ndarray | None
    labels: list[Any] | None = None

    def take(self, indices: Sequence[int]) -> "Rows":
        """Some of the rows."""
        raw = None if self.labels is None else [self.labels[i] for i in indices]
        return Rows([self.texts[i] for i in indices], self.targets[indices], raw)


def find_task(task: str | Task, **columns: str | None) -> Task:
    """The task of that name, with other column names where given (text, text_b, label)."""
    task = registry.task(task) if isinstance(task, str) else task
    return dataclasses.replace(task, **{name: value for name, value in columns.items() if value})


def split_files(data: Any, test: bool = False) -> dict[str, Source]:
    """`train` and `dev` rows of a folder, of {"train", "dev"}, of (train, dev), or one file or table as `train`.

    Args:
        data: paths, or rows in memory in their place (a DataFrame, a dict of columns, a list of dicts or tuples).
        test: bool, whether `test` is returned too where it is there; best weights are never chosen on it.
    """
    names = [name for known in SPLITS.values() for name in known]
    if isinstance(data, Mapping) and (set(data) <= set(names) or not tables.is_table(data)):
        unknown = set(data) - set(names)
        if unknown:
            raise InputError(f"data has {', '.join(sorted(map(str, unknown)))}, expected train and dev")
        found = {
            split: _source(data[name]) for split, known in SPLITS.items() for name in known if _given(data.get(name))
        }
    elif isinstance(data, str | os.PathLike):
        found = _folder(Path(data))
    elif isinstance(data, Memory) or tables.is_table(data):
        found = {"train": tables.in_memory(data)}
    elif isinstance(data, list | tuple):
        if len(data) not in (1, 2):
            raise InputError(f"data has {len(data)} files, expected train and dev")
        found = dict(zip(("train", "dev"), map(_source, data)))
    else:
        raise InputError(f"data is a {type(data).__name__}, expected a file, a folder or rows in memory")
    return {split: source for split, source in found.items() if test or split != "test"}


def _given(data: Any) -> bool:
    return data is not None and not (isinstance(data, str) and not data)


def _source(data: Any) -> Source:
    return Path(data) if isinstance(data, str | os.PathLike) else tables.in_memory(data)


def _folder(path: Path) -> dict[str, Source]:
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


def find_labels(task: Task, source: Source) -> Task:
    """The task with the labels that occur in the rows, sorted, where it names none."""
    if task.labels or task.kind != "classification":
        return task
    rows = tables.table(source, task.columns, [task.label])
    found = labels.clean(source, task.label, [line for line, _ in rows], [row[task.label] for _, row in rows])
    labels.check_classes(source, task.label, found)
    values = set(found)
    try:
        order = sorted(values, key=lambda value: (float(value), value))
    except ValueError:
        order = sorted(values)
    return dataclasses.replace(task, labels={value: value for value in order})


def standardise(task: Task, source: Source, targets: np.ndarray) -> Task:
    """The task with the mean and the standard deviation of a regression's training targets.

    Raises:
        InputError: all targets are the same number.
    """
    if task.kind != "regression":
        return task
    numbers = targets.astype("float64").tolist()
    mean = math.fsum(numbers) / len(numbers)  # exact: the same on every machine
    std = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / len(numbers))
    if min(numbers) == max(numbers):
        raise InputError(
            f"{source}: all {len(numbers)} numbers in column {task.label!r} of the training rows are {numbers[0]:g}, "
            "expected different ones"
        )
    return dataclasses.replace(task, mean=mean, std=std)


def read_rows(task: Task, source: Source | str, *, targets: bool = True) -> Rows:
    """Texts and targets of a file or of rows in memory.

    Raises:
        InputError: a missing column or label, a label the task does not know, a number that is none; with file and line.
    """
    source = _source(source) if isinstance(source, str) else source
    columns = task.columns if targets else task.columns[:-1]
    table = tables.table(source, task.columns, columns)
    for line, row in table:
        for column in task.columns[:-1]:
            if not isinstance(row[column], str):
                raise InputError(f"{tables.where(source, line)}: column {column!r} holds no text")
    texts = [(row[task.text], row[task.text_b]) if task.text_b else row[task.text] for _, row in table]
    if not targets:
        return Rows(texts, None)
    lines, raw = [line for line, _ in table], [row[task.label] for _, row in table]
    if task.kind == "regression":
        numbers = [_number(value, source, line) for value, line in zip(raw, lines)]
        return Rows(texts, np.array(numbers, "float32"), raw)
    index = {value: i for i, value in enumerate(task.labels)} | {name: i for i, name in enumerate(task.labels.values())}
    found = labels.clean(source, task.label, lines, raw, known=index)
    wrong = next((i for i, value in enumerate(found) if value not in index), None)
    if wrong is not None:
        known = ", ".join(list(task.labels)[:20])
        raise InputError(
            f"{tables.where(source, lines[wrong])}: label {found[wrong]!r} is unknown. Expected one of: {known}"
        )
    return Rows(texts, np.array([index[value] for value in found], "int32"), raw)


def _number(value: Any, source: Source, line: int) -> float:
    try:
        number = float(value)
    except (ValueError, TypeError):
        number = float("nan")
    if not np.isfinite(np.float32(number)):
        raise InputError(f"{tables.where(source, line)}: {value!r} is not a number, as a regression's label must be")
    return number


def held_out(rows: Rows, share: float = 0.1) -> np.ndarray:
    """Numbers of the rows that are held out of a table, ascending: of the data alone, the same for every seed and order.

    Every tenth of the different (label, text) in the order of their labels (or numbers) and of a hash of the text, so
    every label has its share, and equal rows stay together.
    """
    keys = [(target, _hash(text)) for target, text in zip(rows.targets.tolist(), rows.texts)]
    order, every = sorted(set(keys)), round(1 / share)
    chosen = set(order[every - 1 :: every])
    if not chosen:
        raise InputError(
            f"{len(rows.texts)} rows are too few to hold some out for evaluation, expected {every} different ones: "
            "name a dev file"
        )
    return np.array([i for i, key in enumerate(keys) if key in chosen])


def _hash(text: Any) -> bytes:
    return hashlib.blake2b(
        "\0".join((text,) if isinstance(text, str) else text).encode("utf-8", "replace"), digest_size=8
    ).digest()


def held_out_by_seed(count: int, seed: int, share: float = 0.1) -> np.ndarray:
    """Numbers of the rows that earlier runs held out: those whose random number is below `share`."""
    drawn = np.asarray(random.uniform(random.key(seed, "hold out", np.arange(count, dtype="int32")), ()))
    return np.flatnonzero(drawn < share)


def without(count: int, numbers: np.ndarray) -> np.ndarray:
    """The other numbers below `count`, ascending."""
    return np.setdiff1d(np.arange(count), numbers)
