"""`kerasbert vocab | data`: text -> vocabulary -> records."""

import argparse
from pathlib import Path

from kerasbert.cli.parser import Declare, out_options
from kerasbert.errors import InputError


def _vocab(options: argparse.Namespace) -> None:
    from kerasbert.errors import unknown
    from kerasbert.text.files import KINDS
    from kerasbert.text.train import train

    if options.kind not in KINDS:
        raise unknown("tokenizer kind", options.kind, KINDS, "kerasbert list tokenizers")
    out = Path(options.out)
    if out.exists() and not options.overwrite and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already. Choose another --out or pass --overwrite")
    from kerasbert import files

    text = [Path(file) for file in options.files]
    tokenizer = train(options.kind, text, options.size, lowercase=not options.cased)
    with files.new_directory(out, replace=options.overwrite) as folder:
        tokenizer.save(folder)
    print(f"{out}: {tokenizer.size} pieces")


def _data(options: argparse.Namespace) -> None:
    from kerasbert import text
    from kerasbert.data import write_records

    if bool(options.files) == bool(options.language):
        raise InputError("give FILES, or --language NAME FILE... for each language")
    files: dict[str, list[str]] = {}
    for name, *paths in options.language:
        files.setdefault(name, []).extend(paths)
    records = write_records(
        options.files or files,
        text.load_tokenizer(options.tokenizer),
        options.out,
        length=options.length,
        packing=options.packing,
        seed=options.seed,
        shards=options.shards,
        dupe_factor=options.dupe_factor,
        text_field=options.text_field,
        smoothing=options.smoothing,
        words=options.words,
        entities=options.entities,
        language_ids=options.language_ids,
        runner=options.runner,
        beam_options=options.beam_options,
        overwrite=options.overwrite,
    )
    state = "unchanged, reused" if records.reused else "written"
    counts = records.manifest["counts"]
    print(
        f"{options.out}: {records.examples:,} examples, {records.tokens:,} tokens of {counts['documents']:,} documents "
        f"({counts['duplicates']:,} exact duplicates left out), {state}"
    )
    for name, found in records.manifest.get("languages", {}).items():
        print(f"  {name}: {found['tokens']:,} tokens, each document taken {found['repeats']:.3f} times on average")


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("vocab", _vocab, "learn a vocabulary; the folder is a --tokenizer")
    add.add_argument("files", nargs="+", metavar="FILE")
    add.add_argument("--kind", default="wordpiece", help="wordpiece, bpe or unigram")
    add.add_argument("--size", type=int, default=30000)
    add.add_argument("--cased", action="store_true", help="keep case and accents (bpe always does)")
    out_options(add)

    add = command("data", _data, "text -> records: tokenized, packed, sharded")
    add.add_argument("files", nargs="*", metavar="FILE", help="text (blank line = document), jsonl, tsv, csv")
    add.add_argument(
        "--language",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "FILE"),
        help="instead of FILES, once for each language: they are then balanced by --smoothing",
    )
    add.add_argument("--smoothing", type=float, default=0.7, help="exponent on a language's share of the tokens")
    add.add_argument("--tokenizer", required=True, metavar="DIR")
    add.add_argument("--length", type=int, default=128, help="tokens in an example")
    add.add_argument(
        "--packing",
        default="pairs",
        help="pairs (BERT), order (ALBERT), place (StructBERT); sentences, full or doc (RoBERTa's SENTENCE-PAIR, "
        "FULL-SENTENCES, DOC-SENTENCES); packed (best fit); translations (XLM)",
    )
    add.add_argument("--seed", type=int, default=0)
    add.add_argument("--shards", type=int)
    add.add_argument("--dupe-factor", type=int, default=1, help="how often each document is packed")
    add.add_argument("--text-field", default="text", help="column of the text; of translations two, such as en,fr")
    add.add_argument("--language-ids", action="store_true", help="rows hold the numbers of their languages (XLM)")
    for level, what in (("words", "words or phrases"), ("entities", "named entities")):
        add.add_argument(
            f"--{level}",
            metavar="SOURCE",
            help=f"what finds {what} in the text, to be masked whole: a lexicon (one a line), MODULE:FUNCTION or a plug-in's",
        )
    add.add_argument("--runner", default="local", help="local, or beam (Apache Beam)")
    add.add_argument("--beam-options", default="", metavar="OPTIONS", help='Beam\'s own: "--runner=DataflowRunner ..."')
    out_options(add)
