"""`kerasbert similarity`: how alike two texts are."""

import argparse
from typing import TYPE_CHECKING

from kerasbert import __version__
from kerasbert.cli import tables
from kerasbert.cli.answers import LANGUAGE
from kerasbert.cli.given import check_read
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import encoding_option
from kerasbert.errors import InputError

if TYPE_CHECKING:
    from kerasbert.data.texts import Texts
    from kerasbert.tasks.base import Task


def _pairs(options: argparse.Namespace, task: "Task | None") -> "Texts":
    """The rows of --data, each with its two texts, of a model of a task or of an encoder (None)."""
    from kerasbert.tasks import answer_tables
    from kerasbert.tasks.base import Task

    columns = columns_of(task, ("text_a", "text_b"), options.text_column, options.text_b_column)
    return answer_tables.read(options.data, columns, Task("texts", "vector", text_b="text_b"))


def columns_of(task: "Task | None", default: tuple[str, ...], *chosen: str | None) -> list[str]:
    """Columns of the texts: those that were chosen, else the task's, else the default ones."""
    own = task.parts if task is not None and len(task.parts) >= len(default) else default
    return [column or part for column, part in zip(chosen, own)]


def _similarity(options: argparse.Namespace) -> None:
    if bool(options.data) == bool(options.texts) or (options.texts and len(options.texts) != 2):
        raise InputError("similarity takes two texts, or --data FILE with two columns")
    if not options.data and (options.out or options.text_column or options.text_b_column):
        raise InputError("--out and the names of columns go with --data FILE")
    tables.check_dialect(options)
    tables.check_texts(options.texts, "pass --data FILE, a table with two columns")
    if options.out:
        tables.check_out(options.out)
    from kerasbert.tasks import early_checks

    early_checks.check_length(options.model, options.length)
    if options.data:
        early = early_checks.some_task(options.model)
        next(iter(_pairs(options, early)), None)  # a mistake in its columns is told before TensorFlow's import
    settings = {"length": options.length, "language": options.language}
    check_read(options)
    from kerasbert.storage import files
    from kerasbert.tasks.load import load
    from kerasbert.tasks.similarity import similarity

    model = load(options.model)
    if not options.data:
        with tables.telling_truncated():
            (value,) = similarity(model, options.texts[:1], options.texts[1:], **settings).tolist()
        show({"similarity": value}, options.json, f"{value:.4f}")
        return
    asked = tables.asked(_pairs(options, getattr(model, "task", None)), options, ("similarity",))

    def answer(pairs: list[tuple[str, str]]) -> list[tuple[bool, list[float]]]:
        values = similarity(model, [one for one, _ in pairs], [other for _, other in pairs], **settings).tolist()
        return [(False, [value]) for value in values]

    about = {"model": files.digest(options.model), "version": __version__, **settings}
    about |= {name: getattr(options, name) for name in ("encoding", "delimiter", "columns")}
    with tables.telling_truncated():
        tables.write(asked, answer, ("similarity",), out=options.out, batch=64, about=about, name="similarity")


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("similarity", _similarity, "the cosine of two texts' vectors, or of those of a table's rows")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--data", metavar="FILE", help="a table with two columns of texts: all columns + the similarity")
    text = "where it goes, by its ending; the standard output without it"
    writes(add.add_argument("--out", metavar="TABLE", help=text), "table")
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")
    add.add_argument("--text-column", metavar="NAME", help="column of the one text; the task's, or text_a, by default")
    add.add_argument("--text-b-column", metavar="NAME", help="column of the other; the task's, or text_b, by default")
    reading_options(add)
    add.add_argument("--json", action="store_true")


def reading_options(add: argparse.ArgumentParser) -> None:
    """How files are read and texts are cut, of the commands that compare texts."""
    encoding_option(add)
    tables.dialect_options(add)
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
