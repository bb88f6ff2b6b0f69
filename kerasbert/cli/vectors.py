"""`kerasbert vectors | nearest`: word vectors from text, from and to others' files; the words nearest to a word."""

import argparse
import json
from typing import Any

from kerasbert.cli.given import check_read
from kerasbert.cli.parser import Declare, encoding_option, out_options
from kerasbert.errors import InputError

OWN = ("size", "window", "epochs", "min_count", "learning_rate", "negative", "buckets", "batch", "seed", "words")


def _pair(text: str) -> tuple[int, int]:
    """`3-6` -> (3, 6)."""
    least, _, most = text.partition("-")
    return int(least), int(most)


def _vectors(options: argparse.Namespace) -> None:
    from kerasbert.training import word_vectors

    settings: dict[str, Any] = {name: getattr(options, name) for name in OWN}
    settings |= {"most": options.vocabulary, "ngrams": options.ngrams, "skipgram": False if options.cbow else None}
    settings |= {"lowercase": False if options.cased else None}
    settings = {name: value for name, value in settings.items() if value is not None}
    writing = {"out": options.out, "format": options.format, "overwrite": options.overwrite}
    if options.kind is None:
        if len(options.files) > 1:
            raise InputError(
                f"{len(options.files)} files and no --kind, expected --kind, or one file of vectors to convert"
            )
        if settings:
            raise InputError("without --kind a file of vectors is converted, and only --format and --out go with that")
        check_read(options)
        vectors = word_vectors.convert_vectors(options.files[0], **writing)
    else:
        reading = {"text_field": options.text_field, "encoding": options.encoding}
        check_read(options)
        vectors = word_vectors.train_vectors(options.files, kind=options.kind, **reading, **writing, **settings)
    print(f"{options.out}: {len(vectors):,} words of {vectors.width} numbers")


def _nearest(options: argparse.Namespace) -> None:
    from kerasbert.checkpoints.vectors import read_vectors

    vectors = read_vectors(options.vectors)
    for word in options.words:
        found = vectors.nearest(word, options.top)
        if options.json:
            hits = [{"word": other, "score": score} for other, score in found]
            print(json.dumps({"word": word, "nearest": hits}, ensure_ascii=False))
            continue
        for other, score in found:
            print(f"{score:.4f}\t{other}")


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("vectors", _vectors, "word vectors from text; without --kind, a file of vectors in another format")
    add.add_argument("files", nargs="+", metavar="FILE", help="text, jsonl, json, tsv, csv or parquet, perhaps packed")
    add.add_argument("--kind", choices=("word2vec", "fasttext", "glove"), help="what learns them")
    add.add_argument("--format", help="vec, bin, glove or fasttext; fasttext of fastText, else vec by default")
    add.add_argument("--size", type=int, help="numbers of a vector (default: 100)")
    add.add_argument("--window", type=int, help="words to either side (default: 5)")
    add.add_argument("--epochs", type=int, help="passes over the text (default: 5, of glove 25)")
    add.add_argument("--min-count", type=int, help="rarer words are left out (default: 5)")
    add.add_argument("--vocabulary", type=int, metavar="N", help="the N commonest words alone")
    add.add_argument("--cbow", action="store_true", help="a word from those around it, not they from the word")
    add.add_argument("--negative", type=int, help="drawn words for each one (default: 5)")
    add.add_argument("--ngrams", type=_pair, metavar="3-6", help="characters of fastText's n-grams (default: 3-6)")
    add.add_argument("--buckets", type=int, help="rows that the n-grams share (default: 200000)")
    add.add_argument("--batch", type=int, help="pairs of an update of glove (default: 8192)")
    add.add_argument("--learning-rate", type=float, help="(default: 0.025, of glove 0.05)")
    add.add_argument(
        "--words", choices=("bert", "regex", "blanks"), help="what splits lines into words (default: bert)"
    )
    add.add_argument("--cased", action="store_true", help="keep case and accents")
    add.add_argument("--seed", type=int, help="(default: 0)")
    add.add_argument("--text-field", default="text", help="column of the text in tables")
    encoding_option(add)
    out_options(add)

    add = command("nearest", _nearest, "the words of the highest cosine with a word")
    add.add_argument("words", nargs="+", metavar="WORD")
    add.add_argument("--vectors", required=True, metavar="DIR", help="of kerasbert vectors, or a file of vectors")
    add.add_argument("--top", type=int, default=10, help="how many words")
    add.add_argument("--json", action="store_true")
