"""`kerasbert vocab | data`: text -> vocabulary -> records."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kerasbert.cli.parser import Declare, encoding_option, out_options
from kerasbert.errors import InputError


def _vocab(options: argparse.Namespace) -> None:
    from kerasbert.data.vocabulary import learn
    from kerasbert.registry import TOKENIZERS

    TOKENIZERS.find(options.kind)
    if options.kind == "bpe" and options.lowercase:
        raise InputError("--lowercase with --kind bpe, which keeps every byte: leave it out, or take another --kind")
    tokenizer, coverage = learn(
        options.files,
        options.kind,
        options.size,
        sentinels=options.sentinels,
        layout=options.layout,
        lowercase=True if options.lowercase else False if options.cased else None,
        text_field=options.text_field,
        encoding=options.encoding,
        out=options.out,
        overwrite=options.overwrite,
    )
    print(f"{options.out}: {tokenizer.size} pieces, {coverage}")
    for line in coverage.warnings(options.size, tokenizer.size):
        print(f"warning: {line}", file=sys.stderr)


def _data(options: argparse.Namespace) -> None:
    from kerasbert import text
    from kerasbert.data import write_records

    if bool(options.files) == bool(options.language):
        raise InputError("give FILES, or --language NAME FILE... for each language")
    files: dict[str, list[str]] = {}
    for name, *paths in options.language:
        files.setdefault(name, []).extend(paths)
    tokenizer = text.load_tokenizer(options.tokenizer)
    records = write_records(
        options.files or files,
        tokenizer,
        options.out,
        length=options.length,
        packing=options.packing,
        seed=options.seed,
        shards=options.shards,
        dupe_factor=options.dupe_factor,
        text_field=options.text_field,
        encoding=options.encoding,
        smoothing=options.smoothing,
        words=options.words,
        entities=options.entities,
        sentence_borders=options.sentence_borders,
        language_ids=options.language_ids,
        runner=options.runner,
        beam_options=options.beam_options,
        allow_loss=options.allow_loss,
        overwrite=options.overwrite,
        processes=options.processes,
    )
    state = "unchanged, reused" if records.reused else "written"
    if records.processes:
        state += f" by {records.processes} process" + "es" * (records.processes > 1)
    counts = records.manifest["counts"]
    print(
        f"{options.out}: {records.examples:,} examples, {records.tokens:,} tokens of {counts['documents']:,} documents "
        f"({counts['duplicates']:,} exact duplicates left out), {state}"
    )
    _print_shares(records.manifest)
    for name, found in records.manifest.get("languages", {}).items():
        print(f"  {name}: {found['tokens']:,} tokens, each document taken {found['repeats']:.3f} times on average")
    _keep_languages(Path(options.tokenizer), tokenizer.languages, records.manifest["settings"].get("language_ids"))


def _print_shares(manifest: Mapping[str, Any]) -> None:
    """What the pairs keep and how their answers are shared out; records of an earlier version do not count them."""
    counts, settings = manifest["counts"], manifest["settings"]
    if "kept_tokens" in counts:
        kept, total = counts["kept_tokens"], max(1, counts["source_tokens"])
        print(f"  {kept / total:.1%} of {total:,} tokens kept (packing {settings['packing']})")
    if "labels" in counts:
        name = next(feature for feature in manifest["features"] if feature.endswith("_label"))
        shares = [f"{count / max(1, sum(counts['labels'])):.1%}" for count in counts["labels"]]
        print(f"  {name}: " + ", ".join(f"{label} {share}" for label, share in enumerate(shares)))
        if counts["documents"] == 1:
            print(
                "  the corpus is one document (no blank line, or one row): sentences that do not follow are of the same "
                "text. Put a blank line between documents"
            )


def _keep_languages(directory: Path, known: Mapping[str, int] | None, names: list[str] | None) -> None:
    """Write a table that has grown beside the tokenizer, so that the next records number the languages alike."""
    from kerasbert.text.languages import write_languages

    table = {name: number for number, name in enumerate(names or [])} | dict(known or {})
    if table == (known or {}):
        return
    table = dict(sorted(table.items(), key=lambda item: item[1]))
    shown = ", ".join(f"{name} {number}" for name, number in table.items())
    if directory.is_dir():
        write_languages(directory, table)
        print(f"  languages: {shown}, kept in {directory}/languages.json for the next records")
    else:
        print(f"  languages: {shown}. {directory} is no directory: take the records' tokenizer for the next ones")


FILES = "text, jsonl, json, tsv, csv or parquet, perhaps packed (gz, bz2, xz, zst)"


def _runner_options(add: argparse.ArgumentParser) -> None:
    """Who writes the records."""
    add.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="on this machine: by default one for every available core, fewer for a small corpus. The bytes are the same; "
        "each holds a shard in memory",
    )
    add.add_argument("--runner", default="local", help="local, or beam (Apache Beam)")
    add.add_argument("--beam-options", default="", metavar="OPTIONS", help='Beam\'s own: "--runner=DataflowRunner ..."')


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("vocab", _vocab, "learn a vocabulary; the folder is a --tokenizer")
    add.add_argument("files", nargs="+", metavar="FILE", help=FILES)
    add.add_argument("--kind", default="wordpiece", help="wordpiece, bpe, word_bpe, unigram, regex or word_characters")
    add.add_argument("--size", type=int, default=30000)
    add.add_argument(
        "--sentinels", type=int, default=0, help="special tokens beside them, for span corruption (T5: 100)"
    )
    add.add_argument(
        "--layout", help="of unigram's special tokens: albert ([CLS] text [SEP]) or xlnet (text <sep> <cls>)"
    )
    case = add.add_mutually_exclusive_group()
    case.add_argument("--cased", action="store_true", help="keep case and accents: bpe's and unigram's default")
    case.add_argument("--lowercase", action="store_true", help="drop case and accents: wordpiece's default")
    add.add_argument("--text-field", default="text", help="column of the text in tables")
    encoding_option(add)
    out_options(add)

    add = command("data", _data, "text -> records: tokenized, packed, sharded")
    add.add_argument("files", nargs="*", metavar="FILE", help=f"{FILES}; a blank line ends a document")
    add.add_argument(
        "--language",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "FILE"),
        help="instead of FILES, once for each language, or pair of translations such as en-fr: they are then balanced "
        "by --smoothing",
    )
    add.add_argument("--smoothing", type=float, default=0.7, help="exponent on a language's share of the tokens")
    add.add_argument("--tokenizer", required=True, metavar="DIR")
    add.add_argument("--length", type=int, default=128, help="tokens in an example")
    add.add_argument(
        "--packing",
        help="sentence_pairs or pairs (BERT; the default), sentence_order_pairs or order (ALBERT), structbert_pairs or place "
        "(StructBERT); sentences, full or doc (RoBERTa's SENTENCE-PAIR, FULL-SENTENCES, DOC-SENTENCES); best_fit or "
        "packed; stream (rows that follow one another; the default of tokenizers without [CLS]); translations (XLM)",
    )
    add.add_argument("--seed", type=int, default=0)
    add.add_argument("--shards", type=int)
    add.add_argument("--dupe-factor", type=int, default=1, help="how often each document is packed")
    add.add_argument("--text-field", default="text", help="column of the text; of translations two, such as en,fr")
    encoding_option(add)
    add.add_argument(
        "--sentence-borders", action="store_true", help="rows hold where sentences begin (BART's sentence permutation)"
    )
    add.add_argument("--language-ids", action="store_true", help="rows hold the numbers of their languages (XLM)")
    for level, what in (("words", "words or phrases"), ("entities", "named entities")):
        add.add_argument(
            f"--{level}",
            metavar="SOURCE",
            help=f"what finds {what} in the text, to be masked whole: a lexicon (one a line), MODULE:FUNCTION or a plug-in's",
        )
    add.add_argument(
        "--allow-loss",
        action="store_true",
        help="write pairs also where under 90%% of the tokens are kept, or over 90%% of the answers are the same",
    )
    _runner_options(add)
    out_options(add)
