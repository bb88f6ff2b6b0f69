"""`kerasbert similarity | search`: how alike texts are, and the nearest to a query."""

import argparse
import json
from typing import Any

from kerasbert.cli.answers import LANGUAGE, check_out
from kerasbert.cli.parser import Declare, encoding_option, show
from kerasbert.errors import InputError


def _columns(model: Any, default: tuple[str, ...], *chosen: str | None) -> list[str]:
    """Columns of the texts: those that were chosen, else the task's, else the default ones."""
    task = getattr(model, "task", None)
    own = task.parts if task is not None and len(task.parts) >= len(default) else default
    return [column or part for column, part in zip(chosen, own)]


def _similarity(options: argparse.Namespace) -> None:
    if bool(options.data) == bool(options.texts) or (options.texts and len(options.texts) != 2):
        raise InputError("similarity takes two texts, or --data FILE with two columns")
    if not options.data and (options.out or options.text_column or options.text_b_column):
        raise InputError("--out and the names of columns go with --data FILE")
    kind = check_out(options.out, options.overwrite) if options.out else None
    from kerasbert.storage import files
    from kerasbert.tasks import answer_tables
    from kerasbert.tasks.base import Task
    from kerasbert.tasks.load import load
    from kerasbert.tasks.search import similarity

    model, settings = load(options.model), {"length": options.length, "language": options.language}
    if not options.data:
        (value,) = similarity(model, options.texts[:1], options.texts[1:], **settings).tolist()
        show({"similarity": value}, options.json, f"{value:.4f}")
        return
    columns = _columns(model, ("text_a", "text_b"), options.text_column, options.text_b_column)
    own, rows, texts = answer_tables.read(options.data, columns, Task("texts", "vector"))
    values = similarity(model, [one for one, _ in texts], [other for _, other in texts], **settings).tolist()
    answers = [{"similarity": value} for value in values]
    made = answer_tables.text(kind or ("jsonl" if options.json else own), rows, answers, ("similarity",))
    if options.out:
        files.write_atomic(options.out, made)
        print(options.out)
    else:
        print(made, end="")


def _search(options: argparse.Namespace) -> None:
    if options.top < 1:
        raise InputError(f"--top must be at least 1. Received: {options.top}")
    from kerasbert.tasks import answer_tables
    from kerasbert.tasks.base import Task
    from kerasbert.tasks.load import load
    from kerasbert.tasks.search import searched

    model = load(options.model)
    columns = _columns(model, ("text",), options.text_column)
    read = answer_tables.read(options.file, columns, Task("texts", "vector"))[2]
    texts = [text for text in read if not answer_tables.blank(text)]
    if not texts:
        raise InputError(f"{options.file} holds no text, expected some to search in")
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
    add.add_argument("--out", metavar="TABLE", help="where it goes, by its ending; the standard output without it")
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
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
    add.add_argument("--json", action="store_true")
