"""Files of text -> records. Runs without TensorFlow too, then with the tokenizer's pure-Python form."""

import contextlib
import hashlib
import itertools
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.data import joins, reading
from kerasbert.data.job import Job, Source
from kerasbert.data.languages import Files, check_language_ids, translated
from kerasbert.data.packing import packing as find_packing
from kerasbert.data.processes import chosen, hands
from kerasbert.data.records import MANIFEST, Records, differences, read_manifest
from kerasbert.data.shards import Report, ShardWriter, manifest
from kerasbert.data.sources import check_files, file_format
from kerasbert.data.spool import add_count
from kerasbert.errors import InputError, unknown
from kerasbert.registry import PACKINGS
from kerasbert.storage import files as whole
from kerasbert.storage import remote
from kerasbert.text.base import Tokenizer
from kerasbert.text.languages import number_languages, write_languages

SHARD_BYTES = 64 * 2**20  # of source text, where the number of shards is not given; a shard is packed in memory
UNPACKED = 4  # bytes of text in a byte of a packed file, about
SPLITTING = 1  # the rule by which lines are split where a packing makes pairs; another rule, another number
LEAST_KEPT = 0.9  # of the tokens, or records are refused
MOST_ALIKE = 0.9  # of the answers about pairs, or records are refused
FEWEST = 20  # examples, before a share says anything


def write_records(
    files: Files,
    tokenizer: Tokenizer,
    out: str | os.PathLike,
    *,
    length: int = 128,
    packing: str | None = None,
    seed: int = 0,
    shards: int | None = None,
    dupe_factor: int = 1,
    text_field: str = "text",
    encoding: str | None = None,
    smoothing: float = 0.7,
    words: str | None = None,
    entities: str | None = None,
    sentence_borders: bool = False,
    language_ids: bool = False,
    runner: str = "local",
    beam_options: str = "",
    allow_loss: bool = False,
    overwrite: bool = False,
    processes: int | None = None,
) -> Records:
    """Tokenize, pack and write; where `out` holds records of the same inputs already, only open them.

    Documents with the same text are taken once. The bytes written depend neither on the order of the files nor on the
    runner nor on the number of processes. Where a packing makes pairs of sentences, a line that would fill one alone, and
    a document of one line, is split into sentences first (`encode.entries`), and the manifest counts what is kept.

    Args:
        files: text (blank line = document), jsonl, json, tsv, csv or parquet, perhaps packed (`data.sources`); or a dict,
            language -> its files: then each language is taken more or less often, see `smoothing`. Of translations a
            pair of languages -> its files, such as {"en-fr": ["a.tsv"]}: two columns of these names.
        tokenizer: a tokenizer of `kerasbert.text`.
        out: directory to make; it appears when all is written. With Beam also an address such as gs://bucket/records,
            whose manifest is written last.
        length: S, tokens in an example, special tokens included.
        packing: "pairs" (BERT's segment pairs), "order" (ALBERT's), "place" (StructBERT's); RoBERTa's "sentences"
            (SENTENCE-PAIR), "full" (FULL-SENTENCES) and "doc" (DOC-SENTENCES); "packed" (best fit, pieces that do not
            see each other); "stream" (rows that go on where the one before ends); or XLM's "translations" of two
            `text_field`s. "sentence_pairs", "sentence_order_pairs", "structbert_pairs" and "best_fit" are other names of
            pairs, order, place and packed, which records say. None: "pairs", or "stream" where the tokenizer has no [CLS].
        seed: int >= 0, of the packing.
        shards: number of files, by default one for every 64 MB of text.
        dupe_factor: how often each document is packed, each time with other pairs (BERT's option; pairs only).
        text_field: column or field of the text in jsonl, json, tsv, csv and parquet; of translations the two languages'
            ("en,fr").
        encoding: of the files, where they are not UTF-8 and have no byte order mark.
        smoothing: exponent on a language's share of the tokens: 1 leaves the shares as they are, 0 makes them equal,
            multilingual BERT took 0.7. The corpus keeps its size.
        words, entities: what finds words or phrases, and named entities, in the text (see `data.joins.find`): a lexicon
            file, MODULE:FUNCTION, or a registered segmenter; objectives then select whole ones.
        sentence_borders: bool, whether rows hold where sentences begin (BART's sentence permutation); lines are split
            into sentences.
        language_ids: bool, whether rows hold the numbers of their parts' languages (XLM), which are those of
            `tokenizer.languages`; where it has none, or lacks some, these follow in alphabetical order. The records' own
            tokenizer has the table. Translations always hold them.
        runner: "local", this machine with one shard in memory at a time, or "beam", Apache Beam.
        beam_options: Beam's own options, such as "--runner=DataflowRunner --project=p".
        allow_loss: write pairs also where less than 90% of the tokens stand in an example, or more than 90% of the
            answers about the pairs are the same.
        overwrite: replace records of other inputs.
        processes: int >= 1, of this machine; None: one for every available core, fewer for less text than 16 MB each.
            Each holds one shard in memory.

    Returns:
        The opened records; `.reused` says whether they were there already, `.processes` how many made them.

    Raises:
        InputError: files that cannot be read, do not decode or hold no text, a setting out of range, too much that is
            lost, or records of other inputs at `out` (what differs is named).
    """
    if runner not in ("local", "beam"):
        raise unknown("runner", runner, ["local", "beam"], "kerasbert data --help")
    if runner == "local" and remote.is_remote(out):
        raise InputError(
            f"cannot write records to {out}: write them to a local directory, then copy it there, or use --runner beam"
        )
    if runner == "beam" and processes is not None:
        raise InputError("processes are of --runner local; Beam's --beam-options say how many workers it has")
    encoding = reading.chosen_encoding(encoding)
    packing = chosen_packing(packing, tokenizer)
    between = separators(tokenizer) if find_packing(packing, length, dupe_factor).pairs else 1
    find_packing(packing, length, dupe_factor, between)
    pairs = translated(files, text_field) if packing == "translations" else {}
    if language_ids and not pairs:
        check_language_ids(files, packing)
    named = files if isinstance(files, Mapping) else {}
    names = {*itertools.chain.from_iterable(pairs.values())} if pairs else {*named} if language_ids else set()
    table = number_languages(names, tokenizer.languages) if names else {}
    sources = find_sources(files, text_field, pairs, encoding)
    size = sum(map(_text_size, sources))
    processes = chosen(processes, size)
    if shards is None:
        shards = max(1, math.ceil(size / SHARD_BYTES))
    for name, value, least in (("shards", shards, 1), ("dupe_factor", dupe_factor, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name} is {value}, expected at least {least}")
    if not 0 <= smoothing <= 1:
        raise InputError(f"smoothing is {smoothing}, expected 0 (languages alike) to 1 (as they are)")
    settings = {
        "length": length,
        "packing": packing,
        "seed": seed,
        "shards": shards,
        "dupe_factor": dupe_factor,
        "text_field": text_field,
    }
    if isinstance(files, Mapping):
        settings["smoothing"] = smoothing
    if encoding:
        settings["encoding"] = encoding
    if PACKINGS[packing].labels or sentence_borders:
        settings["splitting"] = SPLITTING
    if sentence_borders:
        settings[joins.BORDERS] = True
    if table:
        # The place of a name is its number. Those behind the last one in use may come and go: the rows stay the same.
        settings["language_ids"] = list(table)[: max(table[name] for name in names) + 1]
    units = [joins.find(os.fspath(source)) if source else None for source in (words, entities)]
    for level, segmenter in zip(joins.LEVELS, units):
        if segmenter:
            settings[level] = {"source": segmenter.name, "sha256": segmenter.sha256}
    plan = {
        "sources": sorted(map(_describe, sources), key=lambda s: (s["sha256"], s["format"], s["name"])),
        "tokenizer": {
            "kind": tokenizer.kind,
            "size": tokenizer.size,
            "digest": tokenizer.digest(),
            "settings": tokenizer.settings(),
        },
        "settings": settings,
    }
    exists = remote.size(remote.join(out, MANIFEST)) is not None
    if exists and not overwrite:
        return _reuse(out, plan)
    # Only what is known to be records is ever removed.
    with directory_for(out, replace=exists) as directory:
        writer = ShardWriter(
            directory=os.fspath(directory),
            shards=shards,
            length=length,
            packing=packing,
            seed=seed,
            dupe_factor=dupe_factor,
            vocabulary=tokenizer.size,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
            separators=between,
            joined=any(units),
            borders=sentence_borders,
            columns=tuple((table[a], table[b]) for a, b in pairs.values()),
            language_ids=tuple(table[name] for name in sorted(named)) if table and not pairs else (),
        )
        job = Job(sources, tokenizer, writer, settings.get("smoothing"), tuple(units))
        if runner == "beam":
            from kerasbert.data import beam

            report, languages = beam.run(job, beam_options)
        else:
            report, languages, processes = run(job, processes)
        if not report.documents:
            names = ", ".join(source.path for source in sources)
            raise InputError(f"empty corpus: {names} hold no text that the tokenizer keeps")
        if not allow_loss:
            check_loss(report, packing)
        plan |= {"languages": languages} if languages else {}
        save_tokenizer(tokenizer, directory, table)  # pretraining takes it from here
        remote.write(remote.join(directory, MANIFEST), manifest(plan, report, tokenizer.special_ids))
    records = Records(out)
    records.processes = processes if runner == "local" else None
    return records


def chosen_packing(name: str | None, tokenizer: Tokenizer) -> str:
    """The packing of that name, or the one that goes with the tokenizer.

    Raises:
        InputError: no such packing, or one whose rows begin with a [CLS] that the tokenizer has not.
    """
    without = tokenizer.cls_id is None
    name = PACKINGS.name(name or ("stream" if without else "pairs"))
    if without and PACKINGS[name].cls:
        raise InputError(
            f"packing {name!r} begins rows with [CLS], and the tokenizer has none (as T5's and GPT-2's): take --packing stream"
        )
    return name


def check_loss(report: Report, packing: str) -> None:
    """Refuse records that lose much of the text, or from whose pairs nothing can be learned.

    Raises:
        InputError: less than LEAST_KEPT of the tokens are kept, or more than MOST_ALIKE of the answers are the same.
    """
    if sum(shard.examples for shard in report.shards) < FEWEST:
        return
    kept, total = report.kept_tokens, report.source_tokens
    advice = "or go on with --allow-loss"
    if packing == "translations":
        advice = f"take a longer --length, mend rows that lack a translation, {advice}"
    else:
        advice = (
            f"take a longer --length, more --dupe-factor, or --packing full, doc or packed, which keep all; {advice}"
        )
    if kept < LEAST_KEPT * total:
        raise InputError(
            f"packing {packing!r} keeps {kept / total:.1%} of the {total:,} tokens, expected {LEAST_KEPT:.0%} or more: {advice}"
        )
    if np.size(report.labels) and report.labels.max() > MOST_ALIKE * report.labels.sum():
        label, share = report.labels.argmax(), report.labels.max() / report.labels.sum()
        raise InputError(
            f"{share:.1%} of the pairs have {PACKINGS[packing].feature} {label}, expected {MOST_ALIKE:.0%} or less: most "
            "documents have one sentence, so that nothing follows it. Give documents of several sentences, take --packing "
            "full, doc or packed, or go on with --allow-loss"
        )


def separators(tokenizer: Tokenizer) -> int:
    """How many separators stand between the two parts of a pair: 1, RoBERTa's 2.

    Raises:
        InputError: the tokenizer's template for pairs is not `cls a sep ... sep b sep`.
    """
    items = [item.text or item.id for item in tokenizer.pair]
    between = len(items) - 4
    if between < 1 or items != [tokenizer.cls_id, "A", *[tokenizer.sep_id] * between, "B", tokenizer.sep_id]:
        raise InputError(
            f"the tokenizer's template for pairs is {tokenizer.template[1]!r}, expected cls $A sep ... $B sep: take "
            "another tokenizer, or a --packing of single texts (full, doc, packed)"
        )
    return between


@contextlib.contextmanager
def directory_for(out: str | os.PathLike, replace: bool) -> Iterator[str | os.PathLike]:
    """Where the files are written: a local directory appears when all are there, on gs:// the manifest comes last."""
    if not remote.is_remote(out):
        with whole.new_directory(out, replace=replace) as directory:
            yield directory
        return
    if replace:
        remote.remove(remote.join(out, MANIFEST))
    yield out


def save_tokenizer(tokenizer: Tokenizer, directory: str | os.PathLike, languages: Mapping[str, int]) -> None:
    """The tokenizer's own directory beside the shards, with the table of languages where there is one."""
    languages = languages or tokenizer.languages or {}
    if not remote.is_remote(directory):
        tokenizer.save(Path(directory) / "tokenizer")
        if languages:
            write_languages(Path(directory) / "tokenizer", languages)
        return
    with tempfile.TemporaryDirectory() as local:
        tokenizer.save(local)
        if languages:
            write_languages(local, languages)
        for file in Path(local).iterdir():
            remote.write(remote.join(directory, f"tokenizer/{file.name}"), file.read_bytes())


def find_sources(
    files: Files, text_field: str, pairs: Mapping[str | None, tuple[str, str]], encoding: str | None
) -> list[Source]:
    """The files, each with its language, or an error that names the first one that is no readable file."""
    if not isinstance(files, Mapping):
        return [Source(os.fspath(path), None, 0, text_field, encoding) for path in check_files(files)]
    found = []
    for number, name in enumerate(sorted(files)):
        field = ",".join(pairs[name]) if pairs else text_field
        found += [Source(os.fspath(path), name, number, field, encoding) for path in check_files(files[name])]
    return found


def _text_size(source: Source) -> int:
    packed = reading.packing_of(source.path) or reading.is_parquet(source.path)
    return (remote.size(source.path) or 0) * (UNPACKED if packed else 1)


def run(job: Job, processes: int = 1) -> tuple[Report, dict[str, Any], int]:
    """Write all shards on this machine: what was written, the languages, and how many processes did it.

    Every document goes to the disk once, then each process has one shard in memory at a time.
    """
    counts: dict[int, tuple[int, int]] = {}
    with hands(job, processes) as (number, each, flush):
        for found in each("tokenize", job.batches(job.sources)):
            for language, (documents, tokens) in found.items():
                add_count(counts, language, tokens, documents)
        flush()
        languages = job.languages(dict(sorted(counts.items())))
        repeats = job.repeats(languages)
        reports = each("write", ((shard, repeats) for shard in range(job.writer.shards)))
        return sum(reports, Report()), languages, number


def _reuse(out: str | os.PathLike, plan: dict[str, Any]) -> Records:
    changed = differences(read_manifest(out), plan)
    if changed:
        raise InputError(
            f"{out} holds records of other inputs. Changed: {'; '.join(changed)}. "
            "Choose another --out or pass --overwrite"
        )
    records = Records(out)
    records.reused = True
    return records


def _describe(source: Source) -> dict[str, Any]:
    kind, digest, size = file_format(source.path, source.encoding), hashlib.sha256(), 0
    try:
        for chunk in remote.chunks(source.path):
            digest.update(chunk)
            size += len(chunk)
    except OSError as error:
        raise InputError(f"cannot read {source.path}: {error.strerror or error}") from error
    found = {"name": os.path.basename(source.path), "format": kind, "bytes": size}
    return found | {"sha256": digest.hexdigest()} | ({"language": source.language} if source.language else {})
