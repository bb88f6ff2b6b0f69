"""`kerasbert vectors | nearest`: word vectors from text, from and to others' files; the words nearest to a word."""

import argparse
import json

from kerasbert.cli.given import check_read
from kerasbert.cli.options import Keywords, numbered
from kerasbert.cli.parser import Declare
from kerasbert.cli.shared_options import encoding_option, out_options
from kerasbert.errors import InputError

FORMATS = ("vec", "bin", "glove", "fasttext")
OWN = ("size", "window", "epochs", "min_count", "learning_rate", "negative", "buckets", "batch", "seed", "words")


def _pair(text: str) -> tuple[int, int]:
    """`3-6` -> (3, 6)."""
    least, _, most = text.partition("-")
    return int(least), int(most)


def _vectors(options: argparse.Namespace) -> None:
    from kerasbert.classics import word_vectors

    settings: Keywords = {name: getattr(options, name) for name in OWN}
    settings |= {
        "vocabulary": options.vocabulary,
        "ngrams": options.ngrams,
        "skipgram": False if options.cbow else None,
    }
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
    add.add_argument("--format", choices=FORMATS, help="fasttext of fastText, else vec by default")
    numbered(add, "--size", 1, help="numbers of a vector (default: 100)")
    numbered(add, "--window", 1, help="words to either side (default: 5)")
    numbered(add, "--epochs", 1, help="passes over the text (default: 5, of glove 25)")
    numbered(add, "--min-count", 1, help="rarer words are left out (default: 5)")
    numbered(add, "--vocabulary", 1, metavar="N", help="the N commonest words alone")
    add.add_argument("--cbow", action="store_true", help="a word from those around it, not they from the word")
    numbered(add, "--negative", 1, help="drawn words for each one (default: 5)")
    add.add_argument("--ngrams", type=_pair, metavar="3-6", help="characters of fastText's n-grams (default: 3-6)")
    numbered(add, "--buckets", 1, help="rows that the n-grams share (default: 200000)")
    numbered(add, "--batch", 1, help="pairs of an update of glove (default: 8192)")
    numbered(add, "--learning-rate", 0, float, help="(default: 0.025, of glove 0.05)")
    add.add_argument(
        "--words", choices=("bert", "regex", "blanks"), help="what splits lines into words (default: bert)"
    )
    add.add_argument("--cased", action="store_true", help="keep case and accents")
    numbered(add, "--seed", 0, help="(default: 0)")
    add.add_argument("--text-field", default="text", help="column of the text in tables")
    encoding_option(add)
    out_options(add)

    add = command("nearest", _nearest, "the words of the highest cosine with a word")
    add.add_argument("words", nargs="+", metavar="WORD")
    add.add_argument("--vectors", required=True, metavar="DIR", help="of kerasbert vectors, or a file of vectors")
    numbered(add, "--top", 1, default=10, help="how many words")
    add.add_argument("--json", action="store_true")
