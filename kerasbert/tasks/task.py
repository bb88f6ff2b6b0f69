"""Tasks of ours, and the rows of their files."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kerasbert import registry
from kerasbert.data import hints
from kerasbert.data.dialects import current, say
from kerasbert.data.reading import ENDINGS
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError, no_file
from kerasbert.registry import register_task
from kerasbert.storage.json_view import JsonMap
from kerasbert.tasks import annotations, fasttext, labels, parallel, tables, word_rows
from kerasbert.tasks.base import Rows, Task
from kerasbert.tasks.rows import RowText
from kerasbert.tasks.tables import Memory, Source
from kerasbert.tasks.unlabelled import labelled

if TYPE_CHECKING:
    from kerasbert.checkpoints.directory import ModelInfo
    from kerasbert.tasks.tables import Data

SPLITS = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
Part = TypeVar("Part")  # of an input
FORMATS = ("tsv", "csv", "jsonl")
COLUMNS = "conll"  # the reader of files of columns; behind a colon the numbers of those of words and tags


for _kind, _metric in (("classification", "accuracy"), ("multi_label", "f1_micro"), ("regression", "spearman")):
    register_task(_kind, Task(_kind, kind=_kind, metric=_metric))
register_task("fill-mask", Task("fill-mask", kind="tokens"))
register_task("glue/sst2", Task("glue/sst2", text="sentence", labels={"0": "negative", "1": "positive"}))


def find_task(task: str | Task, **fields: Any) -> Task:
    """The task of that name, with other fields where given; other column names (text, text_b, label) are of a table.

    Columns of a file of columns (CoNLL) are chosen by their numbers from 1; the task remembers them in its `reader`.
    """
    known: Task = registry.task(task) if isinstance(task, str) else task
    named = {
        name: ",".join(value) if isinstance(value, list | tuple) else value for name, value in fields.items() if value
    }
    if not isinstance(known, Task):
        raise InputError(f"task is a {type(known).__name__}, expected the name of a task or a Task")
    if numbered := by_number(known, named):
        return numbered
    return dataclasses.replace(known, **named, **({"reader": ""} if {"text", "text_b", "label"} & set(named) else {}))


def by_number(task: Task, named: Mapping[str, object]) -> Task | None:
    """The task that reads the columns of those numbers; None where they are no numbers, or its files no columns.

    Args:
        named: fields of the task, `text` and `label` among them.
    """
    numbers = {name: str(named[name]) for name in ("text", "label") if str(named.get(name, "")).isdecimal()}
    reader, _, before = task.reader.partition(":")
    if reader != COLUMNS or not numbers:
        return None
    chosen = [numbers.get(name) or old for name, old in zip(("text", "label"), (before or ",").split(","))]
    others = {name: value for name, value in named.items() if name not in numbers}
    return dataclasses.replace(task, **others, reader=f"{COLUMNS}:{','.join(chosen)}")


def split_files(data: "Data", test: bool = False, task: Task | None = None) -> dict[str, Source]:
    """`train` and `dev` rows of a folder, of {"train", "dev"}, of (train, dev), or one file or table as `train`.

    Args:
        data: paths, or rows in memory in their place (a DataFrame, a dict of columns, a list of dicts or tuples).
        test: bool, whether `test` is returned too where it is there; best weights are never chosen on it.
        task: says how its files are called in a folder, before train.tsv and its like.
    """
    names = [name for known in SPLITS.values() for name in known]
    if isinstance(data, Mapping) and (set(data) <= set(names) or not tables.is_table(data)):
        unknown = set(data) - set(names)
        if unknown:
            raise InputError(f"data has {', '.join(sorted(map(str, unknown)))}, expected train and dev")
        given = {split: [name for name in known if data.get(name) is not None] for split, known in SPLITS.items()}
        if twice := next((known for known in given.values() if len(known) > 1), None):
            raise InputError(f"data has {' and '.join(twice)}, which are one: give one of them")
        found = {split: _source(data[known[0]]) for split, known in given.items() if known}
    elif isinstance(data, str | os.PathLike):
        found = _folder(_path(data), task)
    elif isinstance(data, Memory) or tables.is_table(data):
        found = {"train": tables.in_memory(data)}
    elif isinstance(data, list | tuple):
        if len(data) not in (1, 2):
            raise InputError(
                f"data has {len(data)} files, expected train and dev" if data else "data is empty, expected rows"
            )
        found = dict(zip(("train", "dev"), map(_source, data)))
    else:
        raise InputError(f"data is a {type(data).__name__}, expected a file, a folder or rows in memory")
    return {split: source for split, source in found.items() if test or split != "test"}


def _source(data: object) -> Source:
    return _path(data) if isinstance(data, str | os.PathLike) else tables.in_memory(data)


def _path(data: str | os.PathLike) -> Path:
    if not os.fspath(data):
        raise InputError("data holds an empty name, expected a file or a folder")
    return Path(data)


def _folder(path: Path, task: Task | None) -> dict[str, Source]:
    if path.is_file():
        return {"train": path}
    if not path.is_dir():
        raise no_file(path)
    named: Mapping[str, Sequence[str]] = {} if task is None else task.files
    files: dict[str, Source] = {}
    for split, names in SPLITS.items():
        wanted = [file for pattern in named.get(split, ()) for file in sorted(path.glob(pattern))]
        tabled = [
            path / f"{name}.{ending}{packed}" for name in names for ending in FORMATS for packed in ("", *ENDINGS)
        ]
        found = [*wanted, *(file for file in tabled if file.is_file())]  # a task may read a folder of files
        if found:
            files[split] = found[0]
    if not files and task is not None:
        files = dict(parallel.sources(path, task, SPLITS))
    if not files:
        own = [pattern for patterns in named.values() for pattern in patterns]
        told = f"{', '.join(own)} or one" if own else "train or dev file"
        raise InputError(f"{path} holds no {told} ending in .tsv, .csv or .jsonl: name the files")
    return files


def table(task: Task, source: Source, columns: Sequence[str]) -> list[NumberedRow]:
    """(line, column -> value) of each row of a task's file, or of rows in memory; lists of texts are tuples.

    Args:
        columns: those that every row must have.

    Raises:
        InputError: a missing column, a text that is none; with file and line.
    """
    if task.reader and isinstance(source, Path):
        rows = registry.READERS.find(task.reader.partition(":")[0])(source, task)
        if not rows:
            raise InputError(f"{source} holds no rows of {task.name}: is it another file?")
        if not set(columns) <= rows[0][1].keys():
            raise InputError(_unanswered(task, source, columns, rows[0][1]))
    else:
        rows = _spread(task, source, task.how.gathered(task, source, columns, _columns))
    if task.answer_kind.annotated:
        rows = annotations.tagged(task, source, word_rows.sentences(source, rows, (task.text, task.label)))
    if set(task.label_columns) & set(columns):
        rows = labels.joined(task, source, labelled(task, source, rows))
    kind = task.answer_kind
    rows = [(line, kind.joined(task.parts, row, task.label)) for line, row in rows]
    lists = [task.parts[i] for i in kind.lists]
    for line, row in rows:
        for column in task.parts:
            if isinstance(row.get(column), list) and column in lists:
                row[column] = tuple(row[column])
            value = row.get(column, "")
            several = column in lists and isinstance(value, tuple)
            if not all(isinstance(each, str) for each in (value if several else (value,))):
                raise InputError(hints.no_text(tables.where(source, line), column, "" if several else value))
    return rows


def _unanswered(task: Task, source: Path, columns: Sequence[str], row: Mapping[str, object]) -> str:
    """What is said of a file whose rows lack columns; where it has others, one of them may be meant."""
    can = "file without answers can only be predicted"
    if set(row) <= {"id", *task.parts}:
        return f"{source} holds no {', '.join(name for name in columns if name not in row)}: a {can}"
    return f"{hints.no_column(f'{source} has', columns, row)}. A {can}"


def _spread(task: Task, source: Source, rows: list[NumberedRow]) -> list[NumberedRow]:
    """The rows, several in the place of one that holds several texts; rows that were read before stay as they are.

    Raises:
        InputError: such a row has a label, which is of one of them.
    """
    if isinstance(source, Memory) and source.read:
        return rows
    spread = [(line, task.answer_kind.spread(task.parts, row)) for line, row in rows]
    several = [line for line, found in spread if len(found) > 1]
    if several and task.label:
        raise InputError(f"{tables.where(source, several[0])} has several texts in {task.parts[-1]!r} and one label")
    if several:
        say(
            f"{source}: {len(several)} of {len(rows)} rows have several texts in {task.parts[-1]!r}: a row is learnt of each"
        )
    return [(line, row) for line, found in spread for row in found]


def _columns(task: Task, source: Source, columns: Sequence[str]) -> list[NumberedRow]:
    """The rows of a table with these columns; those of labels may be empty where such rows are to be skipped."""
    order, wanted = task.columns, list(columns)
    if task.answer_kind.annotated and (rows := annotations.of_any(source, task)):
        return rows
    if fasttext.knows(source):
        return fasttext.rows_of(Path(str(source)), task)
    if isinstance(source, Memory):
        first = source.rows[0] if source.rows else ()
        if isinstance(first, tuple) and len(task.label_columns) > 1 and len(first) == len(task.parts) + 1:
            order, wanted = [*task.parts, task.label], [name for name in wanted if name not in task.label_columns]
    if not current().skip_unlabelled:
        return tables.table(source, order, wanted, task.parts)
    names = [name for name in wanted if name in task.label_columns]
    rows = tables.table(source, order, [name for name in wanted if name not in names], task.parts)
    if missing := [name for name in names if not any(name in row for _, row in rows)]:
        return tables.table(source, order, missing, task.parts)  # which says so
    return rows


def find_labels(task: Task, source: Source) -> Task:
    """The task with the labels that occur in the rows, where its kind has labels and it names none."""
    if task.labels or not task.how.answers.labelled:
        return task
    rows = table(task, source, list(task.label_columns))
    return task.how.with_labels(task, source, [line for line, _ in rows], [row[task.label] for _, row in rows])


def read_rows(task: Task, source: Source | str, *, targets: bool = True) -> Rows:
    """Texts and targets of a file or of rows in memory.

    Raises:
        InputError: a missing column or label, a label the task does not know, a number that is none; with file and line.
    """
    source = _source(source) if isinstance(source, str) else source
    rows = table(task, source, task.columns if targets else list(task.parts))
    texts = [one(tuple(row[part] for part in task.parts)) for _, row in rows]
    if not targets:
        return Rows(texts, None)
    lines, raw = [line for line, _ in rows], [row.get(task.label, "") for _, row in rows]
    return Rows(texts, task.how.targets(task, source, lines, raw, texts), raw if task.label else None)


def answerable(task: Task, texts: Sequence[object]) -> list[Any]:
    """The inputs to answer of a table's rows (`Rows.texts`): they, or where a kind answers fewer parts each of their texts."""
    if task.asked == task.parts:
        return list(texts)
    parts = [part for text in texts for part in (text if isinstance(text, tuple) else (text,))]
    return [text for part in parts for text in (part if isinstance(part, tuple) else (part,))]


def one(parts: tuple[Part, ...]) -> Part | tuple[Part, ...]:
    """The parts of an input as `Rows` hold them: a single text by itself."""
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str | bytes) else parts


def held_out(rows: Rows, share: float = 0.1, group: Callable[[Any], object] | None = None) -> np.ndarray:
    """Numbers of the rows that are held out of a table, ascending: of the data alone, the same for every seed and order.

    Every tenth of the different (label, text) in the order of their labels (or numbers) and of a hash of the text, so
    every label has its share, and equal rows stay together.

    Args:
        group: target -> what a row counts as; by default the target itself.
    """
    every = round(1 / share)
    numbers = fold(rows, every - 1, every, group)
    if not len(numbers):
        raise InputError(
            f"{len(rows.texts)} rows are too few to hold some out for evaluation, expected {every} different ones: "
            "name a dev file"
        )
    return numbers


def fold(rows: Rows, number: int, folds: int, group: Callable[[Any], object] | None = None) -> np.ndarray:
    """Numbers of the rows of a fold, ascending, decided as those of `held_out`.

    Args:
        number: int, from 0. folds: int, how many there are.
    """
    targets = rows.targets.tolist() if isinstance(rows.targets, np.ndarray) else rows.targets
    keys = [(target if group is None else group(target), _hash(text)) for target, text in zip(targets, rows.texts)]
    chosen = set(sorted(set(keys))[number::folds])
    return np.array([i for i, key in enumerate(keys) if key in chosen], int)


def _hash(text: RowText) -> bytes:
    parts = (text,) if isinstance(text, str) else text
    joined = "\0".join(part if isinstance(part, str) else "\1".join(part) for part in parts)
    return hashlib.blake2b(joined.encode("utf-8", "replace"), digest_size=8).digest()


def without(count: int, numbers: np.ndarray) -> np.ndarray:
    """The other numbers below `count`, ascending."""
    return np.setdiff1d(np.arange(count), numbers)


def joined(task: Task, train: Rows | None, unlabelled: Sequence[RowText]) -> tuple[Rows, np.ndarray]:
    """All rows, and float32 [n]: 1 where a row has a label."""
    rows, targets = train, task.how.unlabelled(task, unlabelled)
    texts = [*(rows.texts if rows else ()), *unlabelled]
    if not texts:
        raise InputError("empty corpus: neither train rows nor unlabelled texts, expected at least one text")
    if rows is not None:
        array = isinstance(rows.targets, np.ndarray)
        targets = (
            np.concatenate([rows.targets, targets.astype(rows.targets.dtype)]) if array else [*rows.targets, *targets]
        )
    return Rows(texts, targets), (np.arange(len(texts)) < len(texts) - len(unlabelled)).astype("float32")


def task_of(info: "ModelInfo") -> Task | None:
    """The task of a model directory; None for a bare encoder."""
    if info.task is None:
        return None
    return task_with(info.task, info.labels)


def task_with(content: JsonMap, labels: Sequence[str] | None) -> Task:
    """The task of that json, with these labels where it names none."""
    task = Task.from_json(content)
    if labels and not task.labels:
        task = dataclasses.replace(task, labels={label: label for label in labels})
    return task
