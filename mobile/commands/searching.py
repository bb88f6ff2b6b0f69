"""`kerasbert-mobile nearest | index`: the texts whose vectors are nearest to one, on a device; TensorFlow is not needed."""

import argparse
import json
import os
from typing import TYPE_CHECKING

from kerasbert.cli import tables
from kerasbert.cli.given import check_read
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.errors import InputError
from .. import samples
from .running import load, runtime_options

if TYPE_CHECKING:
    from ..runtime import Runner


def _nearest(options: argparse.Namespace) -> None:
    tables.check_texts(options.texts, "--among {file} names the texts to search in")
    from kerasbert.data.sources import check_files

    check_files([options.among])
    if options.top < 1:
        raise InputError(f"--top must be at least 1. Received: {options.top}")
    model = load(options)
    with tables.telling_truncated():
        _print_nearest(model, options)


def _print_nearest(model: "Runner", options: argparse.Namespace) -> None:
    from kerasbert.tasks import spelled_specials
    from ..runtime.stored_index import MAGIC, StoredIndex

    model.kind.with_prompt(options.prompt_name)  # before the texts are encoded
    with open(options.among, "rb") as file:
        is_index = file.read(len(MAGIC)) == MAGIC
    if is_index:
        index = StoredIndex(model, options.among)
        spelled_specials.tell(model.tokenizer, options.texts, model.kind)
    else:
        texts = samples.opened(options.among, model.bundle, model.kind, options.text_column).texts()
        spelled_specials.tell(model.tokenizer, [*texts, *options.texts], model.kind)
        index = model.index(texts)
    check_read(options, "json", "top")
    for text in options.texts:
        for hit in index.nearest(text, options.top, options.prompt_name):
            found = {"query": text, "index": hit.index, "text": hit.text, "score": hit.score}
            found |= {"id": hit.id} if hit.id else {}
            line = json.dumps(found, ensure_ascii=False) if options.json else f"{hit.score:.4f}\t{hit.text}\t{text}"
            print(line, flush=True)


def _index(options: argparse.Namespace) -> None:
    from kerasbert.data import texts as reader
    from kerasbert.data.sources import check_files
    from kerasbert.retrieval.passages import Source
    from ..runtime.stored_index import write

    if not os.path.isdir(options.data):
        check_files([options.data])
    model = load(options)
    column = options.text_column or (model.bundle.columns or reader.TEXT)[0]
    source = Source(options.data, column, options.id_column, default=not options.text_column)
    check_read(options, "json")
    with tables.telling_truncated():
        count = write(model, source, options.out)
    tables.tell(source.told())
    size = os.path.getsize(options.out)
    about = {"out": options.out, "texts": count, "bytes": size, "left_out": len(source.blank)}
    show(about, options.json, f"{options.out}: {count:,} texts, {size / 1e6:.2f} MB")


def add(declare: Declare) -> None:
    """Declare the commands."""
    command = declare("nearest", _nearest, "the texts whose vectors are nearest to one")
    runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument("texts", nargs="+", metavar="TEXT")
    command.add_argument(
        "--among", required=True, metavar="FILE", help="what `index` wrote; or a text a line, or a table"
    )
    command.add_argument("--text-column", metavar="NAME", help="column of the texts; `text` or the task's by default")
    command.add_argument("--top", type=int, default=5, metavar="K", help="how many of them (default: 5)")
    command.add_argument("--prompt-name", metavar="NAME", help="prompt before TEXT; default: the file's for queries")

    command = declare("index", _index, "texts with int8 vectors in one file, for `nearest` and for apps to search in")
    runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument("data", metavar="PATH", help="a text a line, or a table; or a folder of documents")
    writes(command.add_argument("--out", required=True, metavar="INDEX", help="the file to write"), "index")
    command.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    command.add_argument("--text-column", metavar="NAME", help="column of the texts; `text` or the task's by default")
    command.add_argument("--id-column", metavar="NAME", help="column of the texts' names (default: their lines)")
