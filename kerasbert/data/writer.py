"""Files of text -> records. Runs without TensorFlow too, then with the tokenizer's pure-Python form."""

import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kerasbert.data import joins, reading
from kerasbert.data.config import RecordsConfig
from kerasbert.data.job import Job, Source
from kerasbert.data.languages import CorpusLanguages, Files, number_corpus
from kerasbert.data.packing import packing as find_packing
from kerasbert.data.processes import chosen, hands
from kerasbert.data.records import MANIFEST, Records, differences, read_manifest
from kerasbert.data.shards import Report, ShardWriter, manifest
from kerasbert.data.sources import check_files, file_format, named
from kerasbert.data.spool import add_count
from kerasbert.errors import InputError
from kerasbert.inputs import listed
from kerasbert.options import configured
from kerasbert.registry import PACKINGS
from kerasbert.storage import files as whole
from kerasbert.storage import remote, scratch, steady
from kerasbert.storage.json_view import Json
from kerasbert.text.base import Tokenizer
from kerasbert.text.languages import write_languages

SHARD_BYTES = 64 * 2**20  # of source text, where the number of shards is not given; a shard is packed in memory
UNPACKED = 4  # bytes of text in a byte of a packed file, about
SPLITTING = 1  # the rule by which lines are split where a packing makes pairs; another rule, another number
LEAST_KEPT = 0.9  # of the tokens, or records are refused
MOST_ALIKE = 0.9  # of the answers about pairs, or records are refused
FEWEST = 20  # examples, before a share says anything


@configured(RecordsConfig)
def write_records(files: Files, tokenizer: Tokenizer, out: str | os.PathLike, config: RecordsConfig) -> Records:
    """Tokenize, pack and write; where `out` holds records of the same inputs already, only open them.

    Documents with the same text are taken once. The bytes written depend neither on the order of the files nor on the
    runner nor on the number of processes. Where a packing makes pairs of sentences, a line that would fill one alone, and
    a document of one line, is split into sentences first (`encode.entries`), and the manifest counts what is kept.

    Args:
        files: one or several: text (blank line = document), jsonl, json, tsv, csv or parquet, perhaps packed
            (`data.sources`); or a dict, language -> its files: then each language is taken more or less often, see
            `smoothing`. Of translations a pair of languages -> its files, such as {"en-fr": ["a.tsv"]}: two columns of these
            names.
        tokenizer: a tokenizer of `kerasbert.text`.
        out: directory to make; it appears when all is written. With Beam also an address such as gs://bucket/records,
            whose manifest is written last.
        {options}

    Returns:
        The opened records; `.reused` says whether they were there already, `.processes` how many made them.

    Raises:
        InputError: files that cannot be read, do not decode or hold no text, a setting out of range, too much that is
            lost, or records of other inputs at `out` (what differs is named).
    """
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"tokenizer is {tokenizer!r:.60}, expected a tokenizer: kb.load_tokenizer(DIR)")
    files = {name: named(each) for name, each in files.items()} if isinstance(files, Mapping) else named(files)
    _check_out(out, config, files)
    encoding, packing = reading.chosen_encoding(config.encoding), chosen_packing(config.packing, tokenizer)
    config = dataclasses.replace(config, encoding=encoding, packing=packing)
    between = _separators_between(packing, config, tokenizer)
    languages = number_corpus(files, packing, config.text_field, config.language_ids, tokenizer.languages)
    sources = find_sources(files, config.text_field, languages.pairs, encoding)
    size = sum(map(_text_size, sources))
    read = steady.Files(source.path for source in sources)
    shards = max(1, math.ceil(size / SHARD_BYTES)) if config.shards is None else config.shards
    here = {"processes": chosen(config.processes, size)} if config.runner == "local" else {}
    config = dataclasses.replace(config, shards=shards, **here)
    units = tuple(joins.find(os.fspath(source)) if source else None for source in (config.words, config.entities))
    settings = _settings(config, isinstance(files, Mapping), languages, units)
    plan = {
        "sources": sorted(map(_describe, sources), key=lambda s: (s["sha256"], s["format"], s["name"])),
        "tokenizer": _identity(tokenizer),
        "settings": settings,
    }
    exists = remote.size(remote.join(out, MANIFEST)) is not None
    if exists and not config.overwrite:
        return _reuse(out, plan)
    # Only what is known to be records is ever removed.
    with directory_for(out, replace=exists) as directory:
        writer = _shard_writer(config, tokenizer, directory, between, languages, any(units))
        job = Job(sources, tokenizer, writer, settings.get("smoothing"), units, size)
        processes = _fill(job, config, directory, plan, languages.table)
        read.check()  # they were hashed before they were read
    records = Records(out)
    records.processes = processes
    return records


def _separators_between(packing: str, config: RecordsConfig, tokenizer: Tokenizer) -> int:
    """How many separators stand between two parts; a length or dupe_factor that the packing cannot have is refused."""
    between = separators(tokenizer) if find_packing(packing, config.length, config.dupe_factor).pairs else 1
    find_packing(packing, config.length, config.dupe_factor, between)
    return between


def _settings(
    config: RecordsConfig, balanced: bool, languages: CorpusLanguages, units: Sequence[joins.Segmenter | None]
) -> Json:
    """What the manifest says of the options: those on which the bytes of the records depend."""
    names = ("length", "packing", "seed", "shards", "dupe_factor", "text_field")
    settings: Json = {name: getattr(config, name) for name in names}
    if balanced:
        settings["smoothing"] = config.smoothing
    if config.encoding:
        settings["encoding"] = config.encoding
    if PACKINGS[settings["packing"]].labels or config.sentence_borders:
        settings["splitting"] = SPLITTING
    if config.sentence_borders:
        settings[joins.BORDERS] = True
    if languages.table:
        settings["language_ids"] = languages.named()
    for level, segmenter in zip(joins.LEVELS, units):
        if segmenter:
            settings[level] = {"source": segmenter.name, "sha256": segmenter.sha256}
    return settings


def _identity(tokenizer: Tokenizer) -> Json:
    """What the manifest says of the tokenizer."""
    return {
        "kind": tokenizer.kind,
        "size": tokenizer.size,
        "digest": tokenizer.digest(),
        "settings": tokenizer.settings(),
    }


def _shard_writer(
    config: RecordsConfig,
    tokenizer: Tokenizer,
    directory: str | os.PathLike,
    between: int,
    languages: CorpusLanguages,
    joined: bool,
) -> ShardWriter:
    """The writer of settled options: a packing by its name and a number of shards."""
    assert config.packing is not None
    assert config.shards is not None
    return ShardWriter(
        directory=os.fspath(directory),
        shards=config.shards,
        length=config.length,
        packing=config.packing,
        seed=config.seed,
        dupe_factor=config.dupe_factor,
        vocabulary=tokenizer.size,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        separators=between,
        joined=joined,
        borders=config.sentence_borders,
        columns=languages.columns(),
        language_ids=languages.of_documents(),
    )


def _fill(
    job: Job, config: RecordsConfig, directory: str | os.PathLike, plan: Json, table: Mapping[str, int]
) -> int | None:
    """Write the shards, the tokenizer and the manifest into a directory: how many processes of this machine did it."""
    if config.runner == "beam":
        from kerasbert.data import beam

        (report, languages), processes = beam.run(job, config.beam_options), None
    else:
        report, languages, processes = run(job, config.processes or 1)
    if not report.documents:
        names = ", ".join(source.path for source in job.sources)
        raise InputError(f"empty corpus: {names} hold no text that the tokenizer keeps")
    if not config.allow_loss:
        check_loss(report, job.writer.packing)
    plan = plan | ({"languages": languages} if languages else {})
    save_tokenizer(job.tokenizer, directory, table)  # pretraining takes it from here
    known = job.tokenizer
    around = [token for token in (known.pad_id, known.cls_id) if token is not None]
    written = manifest(plan, report, known.special_ids, around)
    remote.write(remote.join(directory, MANIFEST), written)
    return processes


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
    with scratch.folder() as local:
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


def run(job: Job, processes: int = 1) -> tuple[Report, Json, int]:
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


def _check_out(out: str | os.PathLike, config: RecordsConfig, files: Files) -> None:
    """Refuse a place where no records can be, before any text is read; only what is known to be records is ever removed."""
    if remote.is_remote(out):
        if config.runner == "local":
            raise InputError(
                f"cannot write records to {out}: write them to a local directory, then copy it there, or use --runner beam"
            )
        return
    held = remote.size(remote.join(out, MANIFEST)) is not None
    if held and not config.overwrite:
        return  # they are used again, or refused by what differs
    groups = files.values() if isinstance(files, Mapping) else [files]
    whole.check_free(out, held, [path for group in groups for path in listed(group)])


def _reuse(out: str | os.PathLike, plan: Json) -> Records:
    changed = differences(read_manifest(out), plan)
    if changed:
        raise InputError(
            f"{out} holds records of other inputs. Changed: {'; '.join(changed)}. "
            "Choose another --out or pass --overwrite"
        )
    records = Records(out)
    records.reused = True
    return records


def _describe(source: Source) -> Json:
    kind, digest, size = file_format(source.path, source.encoding), hashlib.sha256(), 0
    try:
        for chunk in remote.chunks(source.path):
            digest.update(chunk)
            size += len(chunk)
    except OSError as error:
        raise InputError(f"cannot read {source.path}: {error.strerror or error}") from error
    found = {"name": os.path.basename(source.path), "format": kind, "bytes": size}
    return found | {"sha256": digest.hexdigest()} | ({"language": source.language} if source.language else {})
