"""`kerasbert similarity | search`: how alike texts are, and the nearest to a query."""

import argparse
import json
from typing import Any

from kerasbert import __version__
from kerasbert.cli import tables
from kerasbert.cli.answers import LANGUAGE
from kerasbert.cli.given import check_read
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, encoding_option, show
from kerasbert.errors import InputError


def _pairs(options: argparse.Namespace, task: Any) -> Any:
    """The rows of --data, each with its two texts, of a model of a task or of an encoder (None)."""
    from kerasbert.tasks import answer_tables
    from kerasbert.tasks.base import Task

    columns = _columns(task, ("text_a", "text_b"), options.text_column, options.text_b_column)
    return answer_tables.read(options.data, columns, Task("texts", "vector", text_b="text_b"))


def _columns(task: Any, default: tuple[str, ...], *chosen: str | None) -> list[str]:
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
    from kerasbert.tasks.load import load
    from kerasbert.tasks.similarity import similarity

    model, settings = load(options.model), {"length": options.length, "language": options.language}
    check_read(options)
    if not options.data:
        (value,) = similarity(model, options.texts[:1], options.texts[1:], **settings).tolist()
        show({"similarity": value}, options.json, f"{value:.4f}")
        return
    asked = tables.asked(_pairs(options, getattr(model, "task", None)), options, ("similarity",))

    def answer(pairs: list[Any]) -> list[tuple[bool, list[float]]]:
        values = similarity(model, [one for one, _ in pairs], [other for _, other in pairs], **settings).tolist()
        return [(False, [value]) for value in values]

    about = {"model": tables.digest(options.model), "version": __version__, **settings}
    about |= {name: getattr(options, name) for name in ("encoding", "delimiter", "columns")}
    tables.write(asked, answer, ("similarity",), out=options.out, batch=64, about=about, name="similarity")


def _search(options: argparse.Namespace) -> None:
    if options.top < 1:
        raise InputError(f"--top must be at least 1. Received: {options.top}")
    tables.check_texts(options.queries, "FILE comes first, then the queries")
    from kerasbert.data.sources import check_files

    check_files([options.file])
    from kerasbert.data import texts as reader
    from kerasbert.tasks import early_checks

    early_checks.check_length(options.model, options.length)
    default = () if options.text_column else reader.TEXT
    columns = _columns(early_checks.some_task(options.model), ("text",), options.text_column)
    next(iter(reader.opened(options.file, columns, default=default)), None)
    from kerasbert.tasks.load import load
    from kerasbert.tasks.similarity import searched

    model = load(options.model)
    columns = _columns(getattr(model, "task", None), ("text",), options.text_column)
    texts = reader.read(options.file, columns, default=default)
    settings = {"length": options.length, "language": options.language}
    for query, hits in zip(options.queries, searched(model, texts, options.queries, top=options.top, **settings)):
        if options.json:
            print(json.dumps({"query": query, "hits": [hit.to_json() for hit in hits]}, ensure_ascii=False))
            continue
        for hit in hits:
            print(f"{hit.score:.4f}\t{hit.text}")


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
    _shared(add)

    add = command("search", _search, "the texts of a file that are nearest to a query")
    add.add_argument("model", metavar="RUN")
    add.add_argument("file", metavar="FILE", help="a text a line, or a table with a column of texts")
    add.add_argument("queries", nargs="+", metavar="QUERY")
    add.add_argument("--top", type=int, default=5, help="how many texts of a query")
    add.add_argument("--text-column", metavar="NAME", help="column of the texts; the task's, or text, by default")
    _shared(add)


def _shared(add: argparse.ArgumentParser) -> None:
    encoding_option(add)
    tables.dialect_options(add)
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
    add.add_argument("--json", action="store_true")
