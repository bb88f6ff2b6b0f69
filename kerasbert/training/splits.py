"""Which rows a fine-tuning learns from, which it is judged by, and which `evaluate`, ledger and `compress` measure on.

Where no dev rows are given a tenth of the training rows is held out: by the data alone (`tasks.task.held_out`), written
into run.json, and taken up by the runs that start from it on the same rows.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.errors import InputError
from kerasbert.storage import steady
from kerasbert.storage.json_view import JsonMap
from kerasbert.tasks import labels, tables
from kerasbert.tasks.rows import RowText
from kerasbert.tasks.tables import Memory, Source
from kerasbert.tasks.task import (
    Rows,
    Task,
    answerable,
    find_labels,
    held_out,
    read_rows,
    split_files,
    without,
)
from kerasbert.training import runs

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.tables import Data


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows of a fine-tuning.

    Attributes:
        task: with its labels.
        sources: split -> file or rows in memory.
        digests: split -> sha256.
        train, dev: Rows; None where the data have none.
        held_out: numbers of the rows that were held out, as run.json has them; None with dev rows of their own.
        lines: what a user should know of them.
    """

    task: Task
    sources: dict[str, Source]
    digests: dict[str, str]
    train: Rows | None
    dev: Rows | None
    held_out: str | None
    lines: list[str]

    def apart(self) -> dict[str, Source]:
        """Split -> rows, those that were held out as dev rows of their own."""
        if self.held_out is None:
            return self.sources
        name = _name(self.sources["train"])
        told = {"train": f"the training rows of {name}", "dev": f"the rows held out of {name}"}
        return {part: in_memory(rows, told[part]) for part, rows in (("train", self.train), ("dev", self.dev)) if rows}


def in_memory(rows: Rows, name: str) -> Memory:
    """Rows of a file as rows in memory, which are called by that name."""
    parts = [text if isinstance(text, tuple) else (text,) for text in rows.texts]
    ends = [()] * len(parts) if rows.labels is None else [(value,) for value in rows.labels]
    return Memory(tuple((*texts, *end) for texts, end in zip(parts, ends)), name, read=True)


def split(
    task: Task,
    data: "Data",
    *,
    begun: JsonMap | None = None,
    start: object = None,
    dev: bool = True,
    order: Sequence[str] = (),
) -> Split:
    """The rows to train on and those that choose the best weights.

    Args:
        data: as `split_files` takes them.
        begun: what run.json of the run holds that goes on, whose rows and labels these are; None for a new run.
        start: directory of the model that is trained further; what it held out of the same rows stays held out.
        dev: bool, whether any are wanted.
        order: labels of a head that is trained further, in its order.

    Raises:
        InputError: files, columns, labels, too few rows.
    """
    sources = split_files(data, test=True, task=task)
    test = sources.pop("test", None)
    old = begun["settings"].get("data") if begun else None
    old = old if isinstance(old, dict) else {}
    with steady.unchanged(*sources.values()):
        digests = {name: tables.digest(source) for name, source in sources.items()}
        begun = begun if begun and old == digests else None
        if begun:
            task = task.how.continued(task, begun["settings"].get("task") or {})
        before = runs.description_of(start) if isinstance(start, str | os.PathLike) else None
        with tables.reading_of(before, *sources.values()):
            if "train" in sources:
                task = labels.as_head(find_labels(task, sources["train"]), order)
            train, judge, numbers, lines = _read(task, sources, digests, begun, start, dev)
    if numbers is not None and test is not None:
        lines[-1] += f"; {test} is not used"
    if judge is not None and train is not None:
        lines += task.how.absent(task, train, judge)
    kept = None if numbers is None else " ".join(map(str, numbers))
    return Split(task, sources, digests, train, judge, kept, lines)


def _read(
    task: Task,
    sources: Mapping[str, Source],
    digests: Mapping[str, str],
    begun: JsonMap | None,
    start: object,
    dev: bool,
) -> tuple[Rows | None, Rows | None, np.ndarray | None, list[str]]:
    """Training rows, dev rows, numbers of the rows that are held out, lines for the user."""
    train = judge = numbers = None
    lines: list[str] = []
    if "train" in sources:
        source = sources["train"]
        train = read_rows(task, source)
        lines += task.how.told(source, train)
        if "dev" not in sources and dev:
            numbers = _held_out(task, train, digests, begun, start)
            judge, train = train.take(numbers), train.take(without(len(train.texts), numbers))
            lines.append(f"{source}: {_count(judge)} are held out to choose the best weights (the same for every seed)")
    unknown = train is None and task.how.answers.labelled and not task.labels  # labels: `check_train` tells
    if "dev" in sources and dev and not unknown:
        judge = read_rows(task, sources["dev"])
    return train, judge, numbers, lines


def _held_out(task: Task, rows: Rows, digests: Mapping[str, str], begun: JsonMap | None, start: object) -> np.ndarray:
    """Numbers of the rows to hold out."""
    if begun is None and isinstance(start, str | os.PathLike):
        begun = runs.description_of(start)
    found = None if begun is None else numbers_of(begun, digests["train"], len(rows.texts))
    return held_out(rows, group=task.how.group) if found is None else found


def numbers_of(described: JsonMap, digest: str, count: int) -> np.ndarray | None:
    """Numbers of the rows that a run held out of the `count` rows of a digest; None if it did not."""
    data = described["settings"].get("data")
    if not isinstance(data, dict) or data.get("train") != digest or "dev" in data:
        return None
    try:
        found = np.array([int(number) for number in described["held_out"].split()])
        if not len(found) or found.max() >= count or found.min() < 0:
            raise ValueError(f"rows of {count}")
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"run.json is damaged: held_out ({error}). Train again, or give dev rows") from error
    return found


def _sources(task: Task, data: "Data | None", run: "str | os.PathLike | keras.Model") -> tuple[dict[str, Source], bool]:
    """Split -> file or rows in memory, by default those of a run; and whether they are one file that says no split."""
    if data is None:
        sources: dict[str, Source] = dict(runs.data_of(run)) if run is not None else {}
        if not sources:
            raise InputError("no data, and the rows of the fine-tuning are not there any more: give them")
        return sources, False
    sources = split_files(data, test=True, task=task)
    folder = isinstance(data, str | os.PathLike) and Path(data).is_dir()
    return sources, set(sources) == {"train"} and not (
        (isinstance(data, Mapping) and not tables.is_table(data)) or folder
    )


def _trained_on(task: Task, train: Source, described: JsonMap) -> tuple[Rows | None, np.ndarray | None]:
    """The rows of the file that a run was trained on, and the numbers of those that it held out; None of another file."""
    trained = (described["settings"].get("data") or {}) if described["kind"] != "pretrain" else {}
    digest = tables.digest(train)
    if not isinstance(trained, dict) or trained.get("train") != digest:
        return None, None
    with tables.reading_of(described, train):
        rows = read_rows(task, train)
    return rows, numbers_of(described, digest, len(rows.texts))


def measured(
    task: Task,
    data: "Data | None" = None,
    *,
    run: "str | os.PathLike | keras.Model | None" = None,
    split: str | None = None,
) -> tuple[Rows, str]:
    """The rows that a model is measured on, and in words what they are.

    Args:
        task: the model's.
        data: files or rows in memory as `split_files` takes them; by default those of the run.
        run: directory of the model, whose run.json tells which rows were held out.
        split: "train", "dev" or "test"; by default dev, of the run's own file the rows that it held out, else test.

    Raises:
        InputError: no such rows; a folder with training rows alone, unless they are asked for.
    """
    if split is not None and split not in ("train", "dev", "test"):
        raise InputError(f"no split {split!r}. Expected one of: train, dev, test")
    described = runs.description_of(run) if isinstance(run, str | os.PathLike) else None
    sources, single = _sources(task, data, run if described else None)
    train = sources.get("train")
    rows = numbers = None
    if train is not None and described and "dev" not in sources:
        rows, numbers = _trained_on(task, train, described)
        if rows is not None and numbers is None and single and split is None:
            return rows, f"{_count(rows)} of {_name(train)}, which the model was trained on"
    wanted = split or next(
        (
            name
            for name, there in (("dev", "dev" in sources or numbers is not None), ("test", "test" in sources))
            if there
        ),
        None,
    )
    if train is not None and rows is not None and numbers is not None and wanted == "dev":
        rows = rows.take(numbers)
        return rows, f"{_count(rows)} held out of {_name(train)}"
    if train is not None and rows is not None and numbers is not None and wanted == "train":
        rows = rows.take(without(len(rows.texts), numbers))
        return rows, f"{_count(rows)} of {_name(train)} that the model was trained on"
    if wanted is None and single:
        wanted = "train"
    if wanted not in sources:
        what = "no dev or test rows" if wanted is None else f"no {wanted} rows"
        hint = "; for the training rows pass --split train" if "train" in sources and wanted != "train" else ""
        raise InputError(f"{_place(data)} has {what}: give a file{hint}")
    with tables.reading_of(described, sources[wanted]):
        rows = read_rows(task, sources[wanted])
    return rows, f"{_count(rows)} of {_name(sources[wanted])}"


def training_texts(run: "str | os.PathLike | keras.Model", task: Task | None) -> list[RowText] | None:
    """The inputs to answer that a run was trained on, without those that it held out; None where they are not there any more."""
    sources = runs.data_of(run)
    if task is None or "train" not in sources:
        return None
    described = runs.description_of(run)
    assert described is not None  # it has data
    with tables.reading_of(described, sources["train"]):
        rows = read_rows(task, sources["train"])
    numbers = numbers_of(described, tables.digest(sources["train"]), len(rows.texts))
    rows = rows if numbers is None else rows.take(without(len(rows.texts), numbers))
    return answerable(task, rows.texts)


def _count(rows: Rows) -> str:
    return f"{len(rows.texts)} row{'s' * (len(rows.texts) != 1)}"


def _name(source: Source) -> str:
    return str(source) if isinstance(source, Memory) else source.name


def _place(data: "Data | None") -> str:
    return os.fspath(data) if isinstance(data, str | os.PathLike) else "data"
