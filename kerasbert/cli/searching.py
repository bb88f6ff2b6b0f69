"""`kerasbert encode | index | search`: vectors of texts, an index of them, and the texts that are nearest to a query."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kerasbert.blanks import one_line
from kerasbert.cli import tables
from kerasbert.cli.given import check_read
from kerasbert.cli.lines import given_texts
from kerasbert.cli.options import Keywords, numbered
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare
from kerasbert.cli.shared_options import out_options, precision_option
from kerasbert.cli.similarity import columns_of, reading_options
from kerasbert.data.sources import check_files
from kerasbert.errors import InputError
from kerasbert.progress import Progress
from kerasbert.retrieval.folder import about, is_index
from kerasbert.storage import places

if TYPE_CHECKING:
    from kerasbert.retrieval.passages import Source
    from kerasbert.tasks.similarity import Hit


PROMPT = "prompt before each text, of those of an import; '' for none"


# Vectors


def _encode(options: argparse.Namespace) -> None:
    from kerasbert.tasks import early_checks

    early_checks.check_pooling(options.pooling)  # before TensorFlow's import
    early_checks.check_dims(options.dims, options.model, options.pooling)
    if bool(options.data) != bool(options.out):
        raise InputError("--data FILE and --out VECTORS.npy go together; without them vectors of lines are printed")
    settings = {"pooling": options.pooling, "dims": options.dims, "length": options.length}
    settings |= {"language": options.language, "prompt_name": options.prompt_name}
    if options.data:
        _encode_file(options, settings)
        return
    early_checks.check_length(options.model, options.length)
    early_checks.some_task(options.model)
    texts = given_texts(options, blank=True)  # the n-th vector is the n-th line's
    check_read(options, "rounding")
    from kerasbert.tasks.predict import as_model, encode
    from kerasbert.tasks.prompts import tell_prompt

    model = as_model(options.model, options.rounding)
    tell_prompt(model, options.prompt_name)
    at_once = tables.WINDOW * 64
    with tables.telling_truncated(), Progress(len(texts)) as progress:
        for i in range(0, len(texts), at_once):
            for vector in encode(model, texts[i : i + at_once], **settings):
                print(json.dumps([float(value) for value in vector]))
            sys.stdout.flush()
            progress.to(i + at_once)


def _encode_file(options: argparse.Namespace, settings: Keywords) -> None:
    """The vectors of a file, into a file."""
    if options.texts:
        raise InputError("texts come as arguments or from --data, expected one of them")
    if not options.out.endswith(".npy"):
        raise InputError(f"--out {options.out}: expected a name ending in .npy")
    places.check_file(options.out, options.overwrite, "vectors", [options.data])
    check_files([options.data])
    source = _source(options, keep_blank=True)
    settings |= {"dtype": options.dtype, "overwrite": options.overwrite}
    check_read(options, "rounding")
    from kerasbert.retrieval.encoding import encode_file
    from kerasbert.tasks.predict import as_model
    from kerasbert.tasks.prompts import tell_prompt

    model = as_model(options.model, options.rounding)
    tell_prompt(model, options.prompt_name)
    told = encode_file(model, source, options.out, **settings)
    count, width = told.shape
    tables.tell(
        [
            f"{options.out}: {count:,} vectors of {width} numbers; the n-th is the n-th text's",
            *source.told(),
            *told.lines(),
        ]
    )


def _source(options: argparse.Namespace, keep_blank: bool = False, id_column: str | None = None) -> "Source":
    """The texts of a file, read once, so that a mistake in it is told before TensorFlow is imported."""
    from kerasbert.retrieval.passages import Source
    from kerasbert.tasks import early_checks

    if is_index(options.data):
        raise InputError(f"{options.data} is an index, expected texts: kerasbert search {options.data} QUERY")
    early_checks.check_length(options.model, options.length)
    own = columns_of(early_checks.some_task(options.model), ("text",), options.text_column)
    return Source(options.data, own[0], default=not options.text_column, keep_blank=keep_blank, id_column=id_column)


# Index


def _index(options: argparse.Namespace) -> None:
    from kerasbert.tasks import early_checks

    early_checks.check_dims(options.dims, options.model)
    places.check_folder(options.out, options.overwrite, [options.data])
    source = _source(options, id_column=options.id_column)
    settings = {"length": options.length, "language": options.language, "prompt_name": options.prompt_name}
    settings |= {"dims": options.dims, "precision": options.rounding}
    parts = {"dtype": options.dtype, "neighbours": options.neighbours, "words": options.words}
    check_read(options)
    from kerasbert.retrieval.building import build

    told, _ = build(options.model, source, options.out, overwrite=options.overwrite, **settings, **parts)
    tables.tell(told)
    print(options.out)


def of_index(options: argparse.Namespace) -> bool:
    """Whether a search is of an index: of one that is there, or by what stands after its name, which is then no FILE.

    Raises:
        InputError: it is not there.
    """
    known = vars(options)  # a look, by which no option counts as used
    model, texts = known["model"], known["texts"]
    if is_index(model):
        return True
    of_file = len(texts) > 1 and (os.path.exists(texts[0]) or os.path.splitext(texts[0])[1][1:].isalnum())
    if not os.path.exists(model) and (known["relevant"] or not of_file):
        about(model)
    return False


def _search(options: argparse.Namespace) -> None:
    if options.top is not None and options.top < 1:
        raise InputError(f"--top must be at least 1. Received: {options.top}")
    if options.relevant:
        _judge(options)
        return
    options.top = 5 if options.top is None else options.top
    if not options.texts:
        raise InputError("search takes at least one QUERY, or of an index --relevant FILE")
    held = about(options.model) if is_index(options.model) else None
    with tables.telling_truncated():
        found = _of_file_itself(options) if held is None else _of_index(options, held)
    several = len(options.texts) > (2 if held is None else 1)
    by_line = held is None or not held.get("ids")  # a line's number says nothing of a text
    for query, hits in found:
        if options.json:
            print(json.dumps({"query": query, "hits": [hit.to_json() for hit in hits]}, ensure_ascii=False))
            continue
        if several:
            print(f"# {one_line(query)}")
        for hit in hits:
            named = f"\t{hit.id}" if hit.id and not (by_line and hit.id.isdecimal()) else ""
            print(f"{hit.score:.4f}\t{one_line(hit.text)}{named}")


def _judge(options: argparse.Namespace) -> None:
    """How well the queries of a file find the texts that are relevant to them."""
    from kerasbert.cli.parser import show
    from kerasbert.retrieval import judging

    if options.texts or not is_index(options.model):
        raise InputError("--relevant FILE goes with an index and no QUERY: the queries are the file's")
    relevant = judging.read(options.relevant)
    settings, by = _how(options, about(options.model)) | {"top": 10 if options.top is None else options.top}, options.by
    check_read(options)
    from kerasbert.retrieval.index import Index

    index = Index(options.model, by)
    with tables.telling_truncated():
        found = index.evaluate(relevant, **settings)
    lines = [f"{name}\t{value:.4f}" for name, value in found["metrics"].items()]
    show(found, options.json, "\n".join([f"{found['queries']:,} queries, {found['texts']:,} texts", *lines]))


def _how(options: argparse.Namespace, held: Mapping[str, object]) -> Keywords:
    """How an index is searched; what it has not, as index.json says, is refused before TensorFlow's import."""
    if options.how in ("words", "both") and "words" not in held:
        raise InputError(
            f"{options.model} has vectors alone: build it with words (words=True, kerasbert index --words)"
        )
    if options.rerank:
        from kerasbert.tasks import early_checks

        early_checks.check_judge(options.rerank, "--rerank")
    settings = {"exact": options.exact, "prompt_name": options.prompt_name, "how": options.how}
    return settings | ({"rerank": options.rerank, "candidates": options.candidates} if options.rerank else {})


def _of_index(options: argparse.Namespace, held: Mapping[str, object]) -> Iterable[tuple[str, "list[Hit]"]]:
    queries = options.texts
    tables.check_texts(queries, "an index has its texts: give queries alone")
    settings, by = _how(options, held) | {"top": options.top}, options.by
    check_read(options)
    from kerasbert.retrieval.index import Index

    return zip(queries, Index(options.model, by).search(queries, **settings))


def _of_file_itself(options: argparse.Namespace) -> Iterable[tuple[str, "list[Hit]"]]:
    """Search in a file whose texts are encoded for this call."""
    if len(options.texts) < 2:
        raise InputError(
            f"search {options.model} takes FILE QUERY: a text a line, or a table. Of an index (kerasbert index) QUERY alone"
        )
    file, *queries = options.texts
    tables.check_texts(queries, "FILE comes first, then the queries")
    options.data = file
    source = _source(options)
    passages = list(source)
    settings = {"length": options.length, "language": options.language, "prompt_name": options.prompt_name}
    check_read(options)
    from kerasbert.tasks.load import load
    from kerasbert.tasks.similarity import searched

    found = searched(load(options.model), [each.text for each in passages], queries, top=options.top, **settings)
    tables.tell(source.told())
    if source.folder is None:
        return zip(queries, found)
    named = ([dataclasses.replace(hit, id=passages[hit.index].id) for hit in hits] for hits in found)
    return zip(queries, named)


def add(command: Declare) -> None:
    """Declare the commands."""
    _add_encode(command("encode", _encode, "vectors of texts: one json list a line, or of a file a .npy"))
    _add_index(command("index", _index, "keep the texts of a file and their vectors, to search in"))
    _add_search(command("search", _search, "the texts of an index, or of a file, that are nearest to a query"))


def _add_encode(add: argparse.ArgumentParser) -> None:
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--data", metavar="FILE", help="a text a line, or a table with a column of texts; with --out")
    text = "the vectors of --data, as numpy reads them. The same command goes on where it was stopped"
    writes(add.add_argument("--out", metavar="VECTORS.npy", help=text), "vectors")
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")
    add.add_argument(
        "--pooling",
        help="mean, first, last, max, mean_sqrt_len, weighted_mean, some of these as first+mean, or pooled; default: what the "
        "model learned to give (a vector's task, Skip-Thought), else mean",
    )
    precision_option(add)
    _text_options(add, PROMPT)


def _add_index(add: argparse.ArgumentParser) -> None:
    add.add_argument("model", metavar="RUN")
    text = "a text a line, or a table with a column of texts; or a folder of documents: .txt, .md, tables"
    add.add_argument("data", metavar="FILE", help=text)
    out_options(add)
    add.add_argument("--id-column", metavar="NAME", help="column of the texts' ids; by default their lines")
    text = "a graph of neighbours (faiss): no query is compared with all; default: from 50,000 texts, where faiss is installed"
    add.add_argument("--neighbours", action=argparse.BooleanOptionalAction, help=text)
    add.add_argument("--words", action="store_true", help="find texts by their words too (BM25, by bm25s)")
    precision_option(add, "faster on processors with AVX512-BF16 or AMX, of queries too; the answers differ slightly")
    _text_options(add, f"{PROMPT}; default: the model's for documents")


def _text_options(add: argparse.ArgumentParser, prompt: str) -> None:
    """How the texts of a file become vectors, and how these are kept."""
    text = "how many of the first numbers of a vector are kept; default: all"
    add.add_argument("--dims", type=int, metavar="N", help=text)
    text = "of the numbers that are kept: float32, float16, int8 or binary (a bit each)"
    add.add_argument("--dtype", default="float32", choices=("float32", "float16", "int8", "binary"), help=text)
    add.add_argument("--text-column", metavar="NAME", help="column of the texts; the task's, or text, by default")
    add.add_argument("--prompt-name", metavar="NAME", help=prompt)
    reading_options(add)


def _add_search(add: argparse.ArgumentParser) -> None:
    add.add_argument("model", metavar="DIR", help="an index; or RUN, then FILE or a folder, then the queries")
    add.add_argument("texts", nargs="*", metavar="QUERY")
    text = "how many texts of a query; 5 by default, with --relevant 10"
    add.add_argument("--top", type=int, help=text)
    text = "of an index: tell NDCG, MRR, MAP and recall of a table's queries; columns query, id and perhaps score (a grade)"
    add.add_argument("--relevant", metavar="FILE", help=text)
    add.add_argument("--by", metavar="RUN", help="the model of an index, where it is no longer in its place")
    text = "of an index: compare with every vector, where it has a graph of neighbours too"
    add.add_argument("--exact", action="store_true", help=text)
    text = "of an index: vectors, words (BM25) or both (rank fusion); default: both, where it was built with --words"
    add.add_argument("--how", choices=("vectors", "words", "both"), help=text)
    text = "of an index: a model of pairs (a cross-encoder) that orders what was found"
    add.add_argument("--rerank", metavar="RUN", help=text)
    numbered(add, "--candidates", 1, default=100, metavar="N", help="texts that --rerank reads of each query")
    add.add_argument("--prompt-name", metavar="NAME", help="prompt before a query; default: the model's for queries")
    add.add_argument("--text-column", metavar="NAME", help="column of FILE; the task's, or text, by default")
    reading_options(add)
    add.add_argument("--json", action="store_true")
