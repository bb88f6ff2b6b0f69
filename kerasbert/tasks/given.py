"""Texts as a caller of Python gives them: lists, one text, a dict of columns, a DataFrame."""

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasbert import answers, inputs
from kerasbert.answers.base import TextOrParts
from kerasbert.blanks import absent
from kerasbert.data import hints
from kerasbert.errors import InputError
from kerasbert.tasks import datasets, tables
from kerasbert.tasks.base import Task, kind_of
from kerasbert.tasks.task import one

if TYPE_CHECKING:
    import keras


Texts = Sequence[Any]  # str, tuples of the parts of an input, or dicts of them


def check_path(texts: object) -> object:
    """The texts, one by itself as a list of one; the path of a file is refused, whose name would be answered."""
    if isinstance(texts, str | os.PathLike) and os.path.isfile(texts):
        raise InputError(
            f"{texts} is a file, expected texts: read it (kerasbert.data.texts.read), or kerasbert predict --data"
        )
    return inputs.listed(texts)


def check_texts(model: "keras.Model", texts: Texts) -> list[TextOrParts]:
    """The texts as a list of str, of pairs, or of tuples of the parts, as the task takes them."""
    task = getattr(model, "task", None)
    texts = listed(texts, task)
    kind, names = kind_of(model).answers, ("text",) if task is None else task.asked
    if kind.lists and kind.asked is None:
        return [
            one(kind.parts(text, ["text"] if kind.annotated and _is_raw(text) else names, f"text {i}"))
            for i, text in enumerate(texts)
        ]
    checked = [text if isinstance(text, str) else _parts(kind, text, names, i) for i, text in enumerate(texts)]
    for i, text in enumerate(checked):
        pair = isinstance(text, tuple)
        if pair and len(text) != 2:
            raise InputError(f"text {i} has {len(text)} parts, expected 2: (text_a, text_b)")
        wrong = [part for part in (text if pair else (text,)) if not isinstance(part, str | bytes)]
        if wrong:
            hint = f": {wrong[0]!r} is no text. Drop the row or fill it" if absent(wrong[0]) else ""
            raise InputError(f"text {i} is a {type(wrong[0]).__name__}, expected str{hint}")
        if task is not None and pair != task.pair:
            received, expected = ("a pair", "one text") if pair else ("one text", "a pair (text_a, text_b)")
            raise InputError(f"text {i} is {received}, expected {expected}: the model's task is {task.name}")
    return checked


def _is_raw(text: object) -> bool:
    return isinstance(text, Mapping) and set(text) == {"text"}


def listed(texts: object, task: Task | None = None, what: str = "texts") -> list[Any]:
    """The texts of a call as a list, one text as a list of one; those of a table by the columns that the task names.

    Raises:
        InputError: what holds none.
    """
    texts = check_path(datasets.plain(texts))
    if isinstance(texts, Mapping):
        if not texts or any(
            isinstance(column, str | bytes) or not hasattr(column, "__len__") for column in texts.values()
        ):
            raise InputError(f"{what} is a dict, expected a list of texts (or of dicts): put it into brackets")
        rows = tables.in_memory(texts).rows
        texts = [_named(row, task, what) for row in rows]
    elif hasattr(texts, "columns"):  # a DataFrame
        texts = _columns_of(texts, task)
    if isinstance(texts, set | frozenset):
        raise InputError(f"{what} is a set, which has no order: give a list, sorted({what})")
    if not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) == 0:
        raise InputError(f"{what} is a {type(texts).__name__}, expected a list of texts")
    return list(texts)


def _named(row: Mapping[str, object], task: Task | None, what: str) -> object:
    """The input of a row of a dict of columns."""
    names = _asked(task, row)
    if not set(names) <= row.keys():
        raise InputError(hints.no_column(f"{what} has", names, map(str, row), options=""))
    return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)


def _asked(task: Task | None, held: Container[str]) -> list[str]:
    """The columns that are read among those that are there: the task's; texts are answered as well as words."""
    names = ["text"] if task is None else list(task.asked)
    raw = task is not None and task.answer_kind.annotated and names[0] not in held and "text" in held
    return ["text"] if raw else names


def _parts(kind: answers.Kind, text: object, names: Sequence[str], number: int) -> Any:
    """A dict of the parts, or a list of them, as `Rows` hold them."""
    if isinstance(text, Mapping):
        return one(kind.parts(text, names, f"text {number}"))
    return tuple(text) if isinstance(text, list | tuple) else text


def _columns_of(table: Any, task: Task | None) -> list:
    """The texts of a DataFrame, in the columns that the task names."""
    names = _asked(task, table.columns)
    if not set(names) <= set(table.columns):
        held = map(str, table.columns)
        raise InputError(hints.no_column("the DataFrame has", names, held, options="Give one of them: frame[...]"))
    return list(table[names[0]]) if len(names) == 1 else list(zip(*(table[name] for name in names)))
