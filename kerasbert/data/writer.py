"""Files of text -> records. Runs without TensorFlow too, then with the tokenizer's pure-Python form."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import files as whole
from kerasbert.data import joins, remote, spool
from kerasbert.data.languages import Files, check_language_ids, language_columns, language_repeats
from kerasbert.data.packing import packing as find_packing
from kerasbert.data.records import MANIFEST, Records, differences, read_manifest
from kerasbert.data.shards import Report, ShardWriter, manifest
from kerasbert.data.sources import check_files, file_documents, file_format
from kerasbert.data.spool import Spool, measure
from kerasbert.errors import InputError, unknown

LINES = 4096  # lines that the tokenizer gets at once: a call costs about 1 ms (2.9M tokens/s with 512, 5.0M with 4096)
SHARD_BYTES = 64 * 2**20  # of source text, where the number of shards is not given; a shard is packed in memory


def write_records(
    files: Files,
    tokenizer: Any,
    out: str | os.PathLike,
    *,
    length: int = 128,
    packing: str = "pairs",
    seed: int = 0,
    shards: int | None = None,
    dupe_factor: int = 1,
    text_field: str = "text",
    smoothing: float = 0.7,
    words: str | None = None,
    entities: str | None = None,
    language_ids: bool = False,
    runner: str = "local",
    beam_options: str = "",
    overwrite: bool = False,
) -> Records:
    """Tokenize, pack and write; where `out` holds records of the same inputs already, only open them.

    Documents with the same text are taken once. The bytes written depend neither on the order of the files nor on the
    runner.

    Args:
        files: text (blank line = document), jsonl, tsv or csv; or a dict, language -> its files: then each language is
            taken more or less often, see `smoothing`.
        tokenizer: a tokenizer of `kerasbert.text`.
        out: directory to make; it appears when all is written. With Beam also an address such as gs://bucket/records,
            whose manifest is written last.
        length: S, tokens in an example, special tokens included.
        packing: "pairs" (BERT's segment pairs), "order" (ALBERT's), "place" (StructBERT's); RoBERTa's "sentences"
            (SENTENCE-PAIR), "full" (FULL-SENTENCES) and "doc" (DOC-SENTENCES); "packed" (best fit, pieces that do not
            see each other); or XLM's "translations" of two `text_field`s.
        seed: int >= 0, of the packing.
        shards: number of files, by default one for every 64 MB of text.
        dupe_factor: how often each document is packed, each time with other pairs (BERT's option; pairs only).
        text_field: column or field of the text in jsonl, tsv and csv; of translations the two languages' ("en,fr").
        smoothing: exponent on a language's share of the tokens: 1 leaves the shares as they are, 0 makes them equal,
            multilingual BERT took 0.7. The corpus keeps its size.
        words, entities: what finds words or phrases, and named entities, in the text (see `data.joins.find`): a lexicon
            file, MODULE:FUNCTION, or a registered segmenter; objectives then select whole ones.
        language_ids: bool, whether rows hold the numbers of their parts' languages (XLM); the number of a language is its
            place among all names in alphabetical order. Translations always hold them.
        runner: "local", this machine with one shard in memory at a time, or "beam", Apache Beam.
        beam_options: Beam's own options, such as "--runner=DataflowRunner --project=p".
        overwrite: replace records of other inputs.

    Returns:
        The opened records; `.reused` says whether they were there already.

    Raises:
        InputError: files that cannot be read or hold no text, a setting out of range, or records of other inputs at
            `out` (what differs is named).
    """
    if runner not in ("local", "beam"):
        raise unknown("runner", runner, ["local", "beam"], "kerasbert data --help")
    if runner == "local" and remote.is_remote(out):
        raise InputError(
            f"cannot write records to {out}: write them to a local directory, then copy it there, or use --runner beam"
        )
    sources = find_sources(files)
    between = separators(tokenizer) if find_packing(packing, length, dupe_factor).pairs else 1
    find_packing(packing, length, dupe_factor, between)
    columns = language_columns(text_field) if packing == "translations" else ()
    if language_ids and not columns:
        check_language_ids(files, packing)
    if shards is None:
        shards = max(1, math.ceil(sum(remote.size(source.path) for source in sources) / SHARD_BYTES))
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
    if language_ids or columns:
        settings["language_ids"] = sorted(text_field.split(",")) if columns else sorted(files)
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
            columns=columns,
            language_ids=language_ids,
        )
        job = Job(sources, tokenizer, writer, text_field, settings.get("smoothing"), tuple(units))
        if runner == "beam":
            from kerasbert.data import beam

            report, languages = beam.run(job, beam_options)
        else:
            report, languages = run(job)
        if not report.documents:
            names = ", ".join(source.path for source in sources)
            raise InputError(f"empty corpus: {names} hold no text that the tokenizer keeps")
        plan |= {"languages": languages} if languages else {}
        save_tokenizer(tokenizer, directory)  # pretraining takes it from here
        remote.write(remote.join(directory, MANIFEST), manifest(plan, report, tokenizer.special_ids))
    return Records(out)


def separators(tokenizer: Any) -> int:
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
def directory_for(out: str | os.PathLike, replace: bool) -> Iterator[str | Path]:
    """Where the files are written: a local directory appears when all are there, on gs:// the manifest comes last."""
    if not remote.is_remote(out):
        with whole.new_directory(out, replace=replace) as directory:
            yield directory
        return
    if replace:
        remote.remove(remote.join(out, MANIFEST))
    yield out


def save_tokenizer(tokenizer: Any, directory: str | os.PathLike) -> None:
    """The tokenizer's own directory beside the shards."""
    if not remote.is_remote(directory):
        tokenizer.save(Path(directory) / "tokenizer")
        return
    with tempfile.TemporaryDirectory() as local:
        tokenizer.save(local)
        for file in Path(local).iterdir():
            remote.write(remote.join(directory, f"tokenizer/{file.name}"), file.read_bytes())


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of text, and the number of its language among the languages' names in order."""

    path: str
    language: str | None = None
    number: int = 0


@dataclasses.dataclass(frozen=True)
class Job:
    """What a runner is given; `smoothing` is None where there are no languages, `units` are segmenters by level or None."""

    sources: Sequence[Source]
    tokenizer: Any
    writer: ShardWriter
    text_field: str
    smoothing: float | None
    units: Sequence[joins.Segmenter | None] = (None, None)

    def languages(self, counts: Mapping[int, tuple[int, int]]) -> dict[str, dict[str, float]]:
        """What the manifest says of each language, from its number of (documents, tokens)."""
        if self.smoothing is None:
            return {}
        repeats = language_repeats({number: tokens for number, (_, tokens) in counts.items()}, self.smoothing)
        names = {source.number: source.language for source in self.sources}
        return {
            names[number]: {"documents": counts[number][0], "tokens": counts[number][1], "repeats": repeats[number]}
            for number in sorted(counts)
        }

    def repeats(self, languages: Mapping[str, Mapping[str, float]]) -> dict[int, float] | None:
        """How often a document of each language is taken, for `ShardWriter.write`."""
        numbers = {source.language: source.number for source in self.sources}
        return {numbers[name]: found["repeats"] for name, found in languages.items()} or None


def find_sources(files: Files) -> list[Source]:
    """The files, each with its language, or an error that names the first one that is no readable file."""
    if not isinstance(files, Mapping):
        return [Source(os.fspath(path)) for path in check_files(files)]
    found = []
    for number, name in enumerate(sorted(files)):
        found += [Source(os.fspath(path), name, number) for path in check_files(files[name])]
    return found


def entries(sources: Iterable[Source], text_field: str, encode: Callable) -> Iterator[bytes]:
    """The documents of files, tokenized by `encode` (see `batch_encoder`), as a shard takes them."""
    for number, group in itertools.groupby(sources, key=lambda source: source.number):
        documents = itertools.chain.from_iterable(file_documents(source.path, text_field) for source in group)
        for some in _gather_lines(documents):
            yield from _entries(some, number, encode)


def _gather_lines(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Lists of documents of about LINES lines."""
    waiting: list[list[str]] = []
    lines = 0
    for document in documents:
        waiting.append(document)
        lines += len(document)
        if lines >= LINES:
            yield waiting
            waiting, lines = [], 0
    if waiting:
        yield waiting


def _entries(documents: list[list[str]], language: int, encode: Callable) -> Iterator[bytes]:
    """Entries of the documents that keep a token."""
    texts = [line for document in documents for line in document]
    # Only a document of more lines than that is cut: a call for a few lines left over would cost as much as a full one.
    parts = [encode(texts[begin : begin + 2 * LINES]) for begin in range(0, len(texts), 2 * LINES)]
    ids = np.concatenate([part[0] for part in parts])
    lengths = np.concatenate([part[1] for part in parts])
    firsts = np.cumsum([0, *map(len, documents)])
    counts = np.add.reduceat(lengths > 0, firsts[:-1], dtype=np.int64)
    digests = [
        hashlib.sha256("\n".join(document).encode()).digest()
        for document, count in zip(documents, counts.tolist())
        if count
    ]
    if digests:
        yield from spool.entries(digests, language, counts[counts > 0], lengths[lengths > 0], ids)


def run(job: Job) -> tuple[Report, dict[str, Any]]:
    """Write all shards on this machine: every document goes to the disk once, then one shard is in memory at a time."""
    waiting = Spool(Path(job.writer.directory), job.writer.shards)
    counts: dict[int, tuple[int, int]] = {}
    for data in entries(job.sources, job.text_field, batch_encoder(job.tokenizer, job.units)):
        waiting.add(data)
        language, tokens = measure(data)
        documents, before = counts.get(language, (0, 0))
        counts[language] = documents + 1, before + tokens
    waiting.flush()
    languages = job.languages(counts)
    reports = (
        job.writer.write(shard, waiting.take(shard), job.repeats(languages)) for shard in range(job.writer.shards)
    )
    return sum(reports, Report()), languages


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
    digest, size = hashlib.sha256(), 0
    try:
        for chunk in remote.chunks(source.path):
            digest.update(chunk)
            size += len(chunk)
    except OSError as error:
        raise InputError(f"cannot read {source.path}: {error.strerror or error}") from error
    found = {"name": os.path.basename(source.path), "format": file_format(source.path), "bytes": size}
    return found | {"sha256": digest.hexdigest()} | ({"language": source.language} if source.language else {})


def batch_encoder(
    tokenizer: Any, units: Sequence[joins.Segmenter | None] = ()
) -> Callable[[list[str]], tuple[np.ndarray, np.ndarray]]:
    """Lines -> (ids of all, number of ids in each line), the ids marked where there are units.

    With tensorflow-text where it is installed, else in pure Python (a TPU VM): the ids are the same.
    """
    marked = any(units)
    graph = importlib.util.find_spec("tensorflow_text") is not None
    tokenize = (_in_graph if graph else _one_by_one)(tokenizer, marked)

    def encode(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, counts, starts = tokenize(lines)
        return (joins.mark(ids, counts, starts, lines, units) if marked else ids), counts

    return encode


def _one_by_one(tokenizer: Any, offsets: bool) -> Callable[[list[str]], tuple[np.ndarray, np.ndarray, Any]]:
    """Lines -> ids, counts and, where asked for, the first character of each token."""

    def tokenize(lines: list[str]) -> tuple[np.ndarray, np.ndarray, Any]:
        tokens = [tokenizer.tokenize(line) for line in lines] if offsets else None
        pieces = [found.ids for found in tokens] if offsets else [tokenizer.encode(line) for line in lines]
        ids = np.fromiter(itertools.chain.from_iterable(pieces), np.int32)
        counts = np.fromiter(map(len, pieces), np.int64)
        starts = itertools.chain.from_iterable(found.starts for found in tokens) if offsets else None
        return ids, counts, np.fromiter(starts, np.int64) if offsets else None

    return tokenize


def _in_graph(tokenizer: Any, offsets: bool) -> Callable[[list[str]], tuple[np.ndarray, np.ndarray, Any]]:
    """As `_one_by_one`, with tensorflow-text."""
    import tensorflow as tf

    from kerasbert.text.graph import graph_tokenizer

    graph = graph_tokenizer(tokenizer)

    def both(lines: Any) -> tuple[Any, Any]:
        ids, starts, _ = graph.tokenize(lines) if offsets else (graph.encode(lines), None, None)
        return ids, starts.flat_values if offsets else ()

    run = tf.function(both, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    def tokenize(lines: list[str]) -> tuple[np.ndarray, np.ndarray, Any]:
        ragged, starts = run(tf.constant(lines, tf.string))
        # a copy: marks are set in it
        ids = np.array(ragged.flat_values.numpy()) if offsets else ragged.flat_values.numpy()
        return ids, np.diff(ragged.row_splits.numpy()), starts.numpy() if offsets else None

    return tokenize
