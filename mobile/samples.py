"""Texts for a comparison or a timing, made of a vocabulary where nobody gave any; those of files `data.texts` reads."""

import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


if TYPE_CHECKING:  # a launch on a phone does without
    from kerasbert.answers.base import Kind
    from kerasbert.data.texts import Texts
    from kerasbert.export.bundle import Bundle
    from kerasbert.tasks.base import Task


Sample = str | tuple[str | tuple[str, ...], ...]  # an input: a text, or its parts, of which one may be a list of texts


def read(path: str | os.PathLike, task: "Task | None" = None, pair: bool = False) -> list[Sample]:
    """The texts of a file of any format: what a model of the task is asked, or without a task its lines or columns.

    Args:
        task: Task of the model; None for an encoder. pair: bool, without a task whether a text is two.
    """
    from kerasbert.data import texts

    if task is None:
        return texts.read(path, texts.PAIR if pair else texts.TEXT)
    from kerasbert.tasks.answer_tables import inputs_of
    from kerasbert.tasks.task import answerable

    return answerable(task, inputs_of(task, path))


def corpus(path: str | os.PathLike, task: "Task | None" = None) -> list[Sample]:
    """The texts of a file for their words alone: each line, or of a table the columns of the task, else `text`."""
    from kerasbert.data import texts

    opened = texts.opened(path)
    if task is None or opened.kind == "text":
        return opened.texts()
    return texts.read(path, task.parts, default=texts.TEXT, lists=task.answer_kind.lists)


def columns(bundle: "Bundle") -> tuple[str, ...]:
    """Names of the columns that hold the parts of an input of an exported model."""
    from kerasbert.data import texts

    return bundle.parts or bundle.columns or (texts.PAIR if bundle.pair else texts.TEXT)


def opened(path: str | os.PathLike, bundle: "Bundle", kind: "Kind", *named: str | None) -> "Texts":
    """The rows of a file that an exported model is to answer.

    Args:
        bundle: of the model, whose columns are read. kind: `answers.Kind`. named: other names of the columns; None for its own.
    """
    from kerasbert.data import texts
    from kerasbert.tasks.answer_tables import line_of

    own = columns(bundle)
    texts.check_second((*named, None, None)[1], own)
    chosen = [other or name for other, name in zip((*named, *[None] * len(own)), own)]
    default = texts.TEXT if kind.annotated and not any(named) else ()  # texts are answered as well as words
    return texts.opened(path, chosen, default=default, lists=kind.lists, line=line_of(kind, chosen))


def generated(
    tokenizer: "Tokenizer", count: int, pair: bool = False, seed: int = 1, longest: int | None = None
) -> list[str | tuple[str, str]]:
    """Texts (or pairs) of 1 to 40 random pieces of the vocabulary; the same ones every time.

    Args:
        longest: int, tokens that none has more of: random texts cannot tell how long real ones are.
    """
    draw = random.Random(seed)
    ordinary = set(range(tokenizer.size)).difference(tokenizer.special_ids)
    pieces = [tokenizer.decode([i]).strip() for i in sorted(ordinary)]
    words = [piece for piece in pieces if piece.isalpha()] or pieces or ["a"]

    def text() -> list[str]:
        return [draw.choice(words) for _ in range(draw.randint(1, 40))]

    made = [(text(), text()) if pair else (text(),) for _ in range(count)]
    for parts in made:
        while longest and any(parts) and len(tokenizer.pack(*map(" ".join, parts), length=None)[0]) > longest:
            max(parts, key=len).pop()
    return [(" ".join(parts[0]), " ".join(parts[-1])) if pair else " ".join(parts[0]) for parts in made]
