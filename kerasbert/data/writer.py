"""Files of text -> records. Runs without TensorFlow too, then with the tokenizer's pure-Python form."""

import dataclasses
import hashlib
import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import files as whole
from kerasbert.data.packing import Documents, Spans, render
from kerasbert.data.packing import packing as find_packing
from kerasbert.data.records import (
    BLOCK,
    FORMAT,
    MANIFEST,
    Records,
    Shard,
    differences,
    is_remote,
    read_manifest,
    row_dtype,
)
from kerasbert.data.sources import check_files, file_format, read_documents
from kerasbert.errors import InputError

LINES = 4096  # lines that the tokenizer gets at once: a call costs about 1 ms (2.9M tokens/s with 512, 5.0M with 4096)
SHARD_BYTES = 64 * 2**20  # of source text, where the number of shards is not given; a shard is packed in memory
SPOOL_BYTES = 64 * 2**20  # tokenized documents held before they go to the disk
ROWS = 64 * BLOCK  # rows that are rendered at once


def write_records(
    files: Sequence[str | os.PathLike],
    tokenizer: Any,
    out: str | os.PathLike,
    *,
    length: int = 128,
    packing: str = "pairs",
    seed: int = 0,
    shards: int | None = None,
    dupe_factor: int = 1,
    text_field: str = "text",
    overwrite: bool = False,
) -> Records:
    """Tokenize, pack and write; where `out` holds records of the same inputs already, only open them.

    Args:
        files: text (blank line = document), jsonl, tsv or csv; their order does not matter.
        tokenizer: a tokenizer of `kerasbert.text`.
        out: directory to make; it appears when all is written.
        length: S, tokens in an example, special tokens included.
        packing: "pairs" (BERT) or "full" (RoBERTa's FULL-SENTENCES).
        seed: int >= 0, of the packing.
        shards: number of files, by default one for every 64 MB of text.
        dupe_factor: how often each document is packed, each time with other pairs (BERT's option; "pairs" only).
        text_field: column or field of the text in jsonl, tsv and csv.
        overwrite: replace records of other inputs.

    Returns:
        The opened records; `.reused` says whether they were there already.

    Raises:
        InputError: files that cannot be read or hold no text, a setting out of range, or records of other inputs at
            `out` (what differs is named).
    """
    paths = check_files(files)
    if is_remote(out):
        raise InputError(f"cannot write records to {out}: write them to a local directory, then copy it there")
    pack = find_packing(packing, length)
    if shards is None:
        shards = max(1, math.ceil(sum(path.stat().st_size for path in paths) / SHARD_BYTES))
    for name, value, least in (("shards", shards, 1), ("dupe_factor", dupe_factor, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name} is {value}, expected at least {least}")
    plan = {
        "sources": sorted((_source(path) for path in paths), key=lambda s: (s["sha256"], s["format"], s["name"])),
        "tokenizer": {
            "kind": tokenizer.kind,
            "size": tokenizer.size,
            "digest": tokenizer.digest(),
            "settings": tokenizer.settings(),
        },
        "settings": {
            "length": length,
            "packing": packing,
            "seed": seed,
            "shards": shards,
            "dupe_factor": dupe_factor,
            "text_field": text_field,
        },
    }
    out = Path(out)
    replace = False
    if (out / MANIFEST).exists():
        if not overwrite:
            return _reuse(out, plan)
        replace = True  # only what is known to be records is ever removed

    def pack_shard(documents: Documents) -> Spans:
        return pack(documents, length=length, seed=seed, dupe_factor=dupe_factor, sep_id=tokenizer.sep_id)

    with whole.new_directory(out, replace=replace) as directory:
        spool = Spool(directory, shards)
        for document in tokenize(read_documents(paths, text_field=text_field), tokenizer):
            spool.add(*document)
        spool.flush()
        if not spool.documents:
            raise InputError(f"empty corpus: {', '.join(map(str, paths))} hold no text that the tokenizer keeps")
        unigrams = np.zeros(tokenizer.size, np.int64)
        written, random_next = [], 0
        for number in range(shards):
            documents = spool.take(number)
            name = f"shard-{number:05d}-of-{shards:05d}.bin"
            shard, random_here = _write_shard(directory / name, documents, pack_shard, length, tokenizer, unigrams)
            written.append(shard)
            random_next += random_here
        manifest = {
            "format": FORMAT,
            **plan,
            "dtype": row_dtype(tokenizer.size),
            "block": BLOCK,
            "features": _features(length, packing),
            "counts": {
                "documents": spool.documents,
                "examples": sum(shard.examples for shard in written),
                "tokens": sum(shard.tokens for shard in written),
                **({"random_next": random_next} if packing == "pairs" else {}),
            },
            "unigram": _unigram(unigrams, tokenizer.special_ids),
            "shards": [dataclasses.asdict(shard) for shard in written],
        }
        tokenizer.save(directory / "tokenizer")  # pretraining takes it from here
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return Records(out)


def _reuse(out: Path, plan: dict[str, Any]) -> Records:
    changed = differences(read_manifest(out), plan)
    if changed:
        raise InputError(
            f"{out} holds records of other inputs. Changed: {'; '.join(changed)}. "
            "Choose another --out or pass --overwrite"
        )
    records = Records(out)
    records.reused = True
    return records


def _source(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return {"name": path.name, "format": file_format(path), "bytes": path.stat().st_size, "sha256": digest}


def _features(length: int, packing: str) -> dict[str, dict[str, Any]]:
    shapes = {"token_ids": [length], "segment_lengths": [2]}
    if packing == "pairs":
        shapes["next_label"] = []
    return {name: {"dtype": "int32", "shape": shape} for name, shape in shapes.items()}


def tokenize(documents: Iterable[list[str]], tokenizer: Any) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    """(sha256 of the text, ids [T], tokens in each segment [G]) of every document that keeps a token."""
    encode = batch_encoder(tokenizer)
    waiting: list[list[str]] = []
    lines = 0
    for document in documents:
        waiting.append(document)
        lines += len(document)
        if lines >= LINES:
            yield from _encode(waiting, encode)
            waiting, lines = [], 0
    yield from _encode(waiting, encode)


def _encode(documents: list[list[str]], encode: Callable) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    texts = [line for document in documents for line in document]
    # Only a document of more lines than that is cut: a call for a few lines left over would cost as much as a full one.
    parts = [encode(texts[begin : begin + 2 * LINES]) for begin in range(0, len(texts), 2 * LINES)]
    ids = np.concatenate([np.zeros(0, np.int32), *(part[0] for part in parts)])
    lengths = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
    places = np.append(0, np.cumsum(lengths))
    begin = 0
    for document in documents:
        end = begin + len(document)
        segments = lengths[begin:end]
        if segments.any():
            text = "\n".join(document).encode()
            yield hashlib.sha256(text).digest(), ids[places[begin] : places[end]], segments[segments > 0]
        begin = end


def batch_encoder(tokenizer: Any) -> Callable[[list[str]], tuple[np.ndarray, np.ndarray]]:
    """Lines -> (ids of all, number of ids in each line).

    With tensorflow-text where it is installed, else in pure Python (a TPU VM): the ids are the same.
    """
    if importlib.util.find_spec("tensorflow_text") is None:

        def encode_one_by_one(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
            pieces = [tokenizer.encode(line) for line in lines]
            ids = np.fromiter(itertools.chain.from_iterable(pieces), np.int32)
            return ids, np.fromiter(map(len, pieces), np.int64)

        return encode_one_by_one

    import tensorflow as tf

    from kerasbert.text.graph import graph_tokenizer

    graph = graph_tokenizer(tokenizer)
    run = tf.function(graph.encode, input_signature=[tf.TensorSpec([None], tf.string)])

    def encode(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ragged = run(tf.constant(lines, tf.string))
        return ragged.flat_values.numpy(), np.diff(ragged.row_splits.numpy())

    return encode


class Spool:
    """Tokenized documents on the disk, by shard: only one shard is ever in memory.

    Args:
        directory: for the temporary files; each is removed when it is taken.
        shards: their number.
    """

    def __init__(self, directory: Path, shards: int):
        self.directory, self.shards = directory, shards
        self.documents = 0
        self._parts: dict[int, list[bytes]] = {}
        self._held = 0

    def add(self, digest: bytes, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Put a document into its shard: hash mod N."""
        shard = int.from_bytes(digest[:8], "little") % self.shards
        count = len(lengths).to_bytes(4, sys.byteorder)
        entry = b"".join((digest, count, lengths.astype(np.int32).tobytes(), ids.astype(np.int32).tobytes()))
        self._parts.setdefault(shard, []).append(entry)
        self.documents += 1
        self._held += len(entry)
        if self._held > SPOOL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append what is held to the files."""
        for shard, parts in self._parts.items():
            with open(self._path(shard), "ab") as file:
                file.writelines(parts)
        self._parts, self._held = {}, 0

    def _path(self, shard: int) -> Path:
        return self.directory / f"spool-{shard:05d}"

    def take(self, shard: int) -> Documents:
        """The documents of one shard, ordered by hash; the file is removed."""
        path = self._path(shard)
        data = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        found, place = [], 0
        while place < len(data):
            (count,) = np.frombuffer(data, np.int32, 1, place + 32)
            lengths = np.frombuffer(data, np.int32, count, place + 36)
            begin = place + 36 + 4 * int(count)
            total = int(lengths.sum())
            found.append((data[place : place + 32], lengths, np.frombuffer(data, np.int32, total, begin)))
            place = begin + 4 * total
        found.sort(key=lambda document: document[0])
        lengths = np.concatenate([np.zeros(1, np.int64), *(document[1] for document in found)])
        return Documents(
            ids=np.concatenate([np.zeros(0, np.int32), *(document[2] for document in found)]),
            bounds=np.cumsum(lengths, dtype=np.int64),
            firsts=np.cumsum([0, *(len(document[1]) for document in found)], dtype=np.int64),
            digests=[document[0] for document in found],
        )


def _write_shard(
    path: Path, documents: Documents, pack: Callable, length: int, tokenizer: Any, unigrams: np.ndarray
) -> tuple[Shard, int]:
    """Pack and write one shard; adds its tokens to `unigrams`. Returns the shard and its number of random next."""
    spans = pack(documents) if documents.digests else None
    dtype = np.dtype(row_dtype(tokenizer.size)).newbyteorder("<")
    digest = hashlib.sha256()
    examples = tokens = size = 0
    with open(path, "wb") as file:
        for begin in range(0, len(spans.a) if spans else 0, ROWS):
            part = spans.slice(begin, begin + ROWS)
            rows = render(
                part, length=length, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id, pad_id=tokenizer.pad_id
            )
            unigrams += np.bincount(rows[:, :length].ravel(), minlength=len(unigrams))
            tokens += int(rows[:, length : length + 2].sum())
            examples += len(rows)
            block = np.zeros((-(-len(rows) // BLOCK) * BLOCK, rows.shape[1]), dtype)
            block[: len(rows)] = rows
            data = block.tobytes()
            digest.update(data)
            size += len(data)
            file.write(data)
    random_next = int(spans.next_label.sum()) if spans and spans.next_label is not None else 0
    return Shard(path.name, examples, tokens, size, digest.hexdigest()), random_next


def _unigram(counts: np.ndarray, special_ids: Sequence[int]) -> dict[str, float]:
    """What a model learns without looking: entropy (nats) and share of the commonest token, special ones left out."""
    counts = counts.astype(np.float64)
    counts[list(special_ids)] = 0
    share = counts[counts > 0] / max(counts.sum(), 1)
    return {
        "entropy": round(float(-(share * np.log(share)).sum()), 6),
        "accuracy": round(float(share.max(initial=0)), 6),
    }
