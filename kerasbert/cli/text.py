"""`kerasbert vocab | data`: text -> vocabulary -> records."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from kerasbert.cli.given import check_read
from kerasbert.cli.options import add_options, given
from kerasbert.cli.parser import Declare
from kerasbert.cli.shared_options import encoding_option, out_options
from kerasbert.data.config import RecordsConfig, VocabularyConfig
from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonMap


def _vocab(options: argparse.Namespace) -> None:
    from kerasbert.data.vocabulary import learn
    from kerasbert.registry import TOKENIZERS

    lowercase = True if options.lowercase else False if options.cased else None
    config = VocabularyConfig(**given(options, VocabularyConfig), lowercase=lowercase, out=options.out)
    TOKENIZERS.find(config.kind)
    if config.kind == "bpe" and config.lowercase:
        raise InputError("--lowercase with --kind bpe, which keeps every byte: leave it out, or take another --kind")
    files = options.files
    check_read(options)
    tokenizer, coverage = learn(files, config)
    print(f"{options.out}: {tokenizer.size} pieces, {coverage}")
    for line in coverage.warnings(config.size, tokenizer.size):
        print(f"warning: {line}", file=sys.stderr)


def _data(options: argparse.Namespace) -> None:
    from kerasbert.checkpoints import source
    from kerasbert.data import write_records

    if bool(options.files) == bool(options.language):
        raise InputError("give FILES, or --language NAME FILE... for each language")
    files: dict[str, list[str]] = {}
    for name, *paths in options.language:
        files.setdefault(name, []).extend(paths)
    unused = [] if files else ["smoothing"]
    unused += [] if getattr(options, "runner", None) == "beam" else ["beam_options"]
    settings = given(options, RecordsConfig, unused)
    check_read(options, "tokenizer", "out")
    tokenizer = source.load_tokenizer(options.tokenizer)
    records = write_records(options.files or files, tokenizer, options.out, **settings)
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


def _print_shares(manifest: JsonMap) -> None:
    """What the pairs keep and how their answers are shared out."""
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
    if directory.is_dir() and not (directory / "model.json").is_file():  # a model stays as it is
        write_languages(directory, table)
        print(f"  languages: {shown}, kept in {directory}/languages.json for the next records")
    else:
        print(
            f"  languages: {shown}. {directory} is no directory of a tokenizer: take the records' tokenizer for the next ones"
        )


FILES = "text, jsonl, json, tsv, csv or parquet, perhaps packed (gz, bz2, xz, zst)"


def _vocab_options(add: argparse.ArgumentParser) -> None:
    """Which text, and the fields of VocabularyConfig."""
    add.add_argument("files", nargs="+", metavar="FILE", help=FILES)
    case = add.add_mutually_exclusive_group()
    case.add_argument("--cased", action="store_true", help="keep case and accents: bpe's and unigram's default")
    case.add_argument("--lowercase", action="store_true", help="drop case and accents: wordpiece's default")
    encoding_option(add)
    out_options(add)
    add_options(add, VocabularyConfig)


def _data_options(add: argparse.ArgumentParser) -> None:
    """Which text, by which tokenizer, and the fields of RecordsConfig."""
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
    add.add_argument("--tokenizer", required=True, metavar="DIR")
    encoding_option(add)
    out_options(add, kind="records")
    add_options(add, RecordsConfig)


def add(command: Declare) -> None:
    """Declare the commands."""
    _vocab_options(command("vocab", _vocab, "learn a vocabulary; the folder is a --tokenizer"))
    _data_options(command("data", _data, "text -> records: tokenized, packed, sharded"))
