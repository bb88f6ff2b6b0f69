"""Documents -> entries of a shard: tokenized in batches, with long lines split where a packing pairs sentences."""

import functools
import hashlib
import importlib.util
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from kerasbert.data import joins, spool
from kerasbert.data.packing import Fit
from kerasbert.data.sentences import split_sentences
from kerasbert.registry import TOKENIZERS
from kerasbert.text.base import Tokenizer

LINES = 4096  # lines that the tokenizer gets at once: a call costs about 1 ms (2.9M tokens/s with 512, 5.0M with 4096)

STARTED = 3.0  # seconds until TensorFlow is imported and the tokenizer's graph is there
SAMPLE = 2**17  # characters by which it is told how long pure Python would take

Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray]]
Tokenize = Callable[[list[str]], tuple[np.ndarray, np.ndarray, np.ndarray | None]]


def entries(documents: Iterable[list[str]], language: int, encode: Encode, fit: Fit | None = None) -> Iterator[bytes]:
    """Documents, tokenized by `encode` (see `batch_encoder`), as a shard takes them.

    Args:
        documents: lists of lines.
        language: number of their language.
        fit: what a segment may hold where the packing makes pairs; None leaves lines as they are. Then a document of one
            line is running text and is split into sentences, as is every other line of more than `fit.line` tokens; a
            sentence of more than `fit.most` is cut into pieces of `fit.piece`. A document's hash is that of its lines before.
    """
    for some in gather_lines(documents):
        yield from batch_entries(some, language, encode, fit)


def gather_lines(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
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


def batch_entries(documents: list[list[str]], language: int, encode: Encode, fit: Fit | None = None) -> Iterator[bytes]:
    """`entries` of documents that are tokenized together: those that keep a token."""
    lines = documents
    if fit:
        lines = [split_sentences(document[0]) if len(document) == 1 else document for document in documents]
    texts = [line for document in lines for line in document]
    counts = np.array([*map(len, lines)], np.int64)
    ids, lengths = _encode_all(texts, encode)
    if fit:
        ids, lengths, parts = _split_long(texts, ids, lengths, encode, fit)
        counts = np.add.reduceat(parts, np.cumsum(counts) - counts) if len(parts) else counts
    counts = np.add.reduceat(lengths > 0, np.cumsum(counts) - counts, dtype=np.int64)
    digests = [
        hashlib.sha256("\n".join(document).encode()).digest()
        for document, count in zip(documents, counts.tolist())
        if count
    ]
    if digests:
        yield from spool.entries(digests, language, counts[counts > 0], lengths[lengths > 0], ids)


def _encode_all(texts: list[str], encode: Encode) -> tuple[np.ndarray, np.ndarray]:
    # Only a list of more lines than that is cut: a call for a few lines left over would cost as much as a full one.
    parts = [encode(texts[begin : begin + 2 * LINES]) for begin in range(0, len(texts), 2 * LINES)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _split_long(
    texts: list[str], ids: np.ndarray, lengths: np.ndarray, encode: Encode, fit: Fit
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids and lengths with the long lines split, and into how many segments each line went: int64 [G]."""
    parts = np.ones(len(texts), np.int64)
    long = np.flatnonzero(lengths > fit.line)
    if not len(long):
        return ids, lengths, parts
    found = [(line, split_sentences(texts[line])) for line in long.tolist()]
    found = [(line, sentences) for line, sentences in found if len(sentences) > 1]
    if found:
        again, sizes = _encode_all([sentence for _, sentences in found for sentence in sentences], encode)
        ends, again_ends = np.append(0, np.cumsum(lengths)), np.append(0, np.cumsum(sizes))
        all_ids, all_lengths, before, place = [], [], 0, 0
        for line, sentences in found:
            after = place + len(sentences)
            all_ids += [ids[ends[before] : ends[line]], again[again_ends[place] : again_ends[after]]]
            all_lengths += [lengths[before:line], sizes[place:after]]
            parts[line] = len(sentences)
            before, place = line + 1, after
        ids = np.concatenate([*all_ids, ids[ends[before] :]])
        lengths = np.concatenate([*all_lengths, lengths[before:]])
    # what is a sentence and too long: full pieces and a rest
    pieces = np.where(lengths > fit.most, -(-lengths // fit.piece), 1)
    cut = np.full(pieces.sum(), fit.piece, np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * fit.piece
    return ids, cut, np.add.reduceat(pieces, np.cumsum(parts) - parts)


def batch_encoder(
    tokenizer: Tokenizer, units: Sequence[joins.Segmenter | None] = (), size: float = math.inf
) -> Callable[[list[str]], tuple[np.ndarray, np.ndarray]]:
    """Lines -> (ids of all, number of ids in each line), the ids marked where there are units.

    With tensorflow-text where it is installed and the kind has a form for it, else in pure Python (a TPU VM): the ids are
    the same. A text that is tokenized before TensorFlow would have been imported does without, too.

    Args:
        size: of all lines in bytes, about.
    """
    marked = any(units)
    kind = TOKENIZERS.get(tokenizer.kind)
    graph = importlib.util.find_spec("tensorflow_text") is not None and not (kind and kind.graph is None)
    tokenize = _one_by_one(tokenizer, marked)
    if graph:
        begin = functools.partial(_in_graph, tokenizer, marked)
        known = "tensorflow" in sys.modules or size == math.inf
        tokenize = begin() if known else _faster(tokenize, begin, size)

    def encode(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, counts, starts = tokenize(lines)
        return (ids if starts is None else joins.mark(ids, counts, starts, lines, units)), counts

    return encode


def _faster(plain: Tokenize, begin: Callable[[], Tokenize], size: float) -> Tokenize:
    """`plain`, or what `begin` gives where `plain` would take longer than STARTED: by what it takes for the first lines."""
    chosen: list[Tokenize] = []

    def tokenize(lines: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        if chosen:
            return chosen[0](lines)
        if not lines:
            return plain(lines)
        count = int(np.cumsum([*map(len, lines)]).searchsorted(SAMPLE))
        some = lines[:count] or [lines[0][:SAMPLE]]
        start = time.thread_time()
        first = plain(some)
        each = (time.thread_time() - start) / max(1, sum(map(len, some)))
        chosen.append(plain if each * size < STARTED else begin())
        rest = chosen[0](lines[count:]) if count < len(lines) else None
        return first if rest is None else _joined(first, rest) if count else rest

    return tokenize


def _joined(
    *parts: tuple[np.ndarray, np.ndarray, np.ndarray | None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """What was made of lines one after the other."""
    ids, counts, starts = ([part for part in column if part is not None] for column in zip(*parts))
    return np.concatenate(ids), np.concatenate(counts), np.concatenate(starts) if starts else None


def _one_by_one(tokenizer: Tokenizer, offsets: bool) -> Tokenize:
    """Lines -> ids, counts and, where asked for, the first character of each token."""

    def tokenize(lines: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        tokens = [tokenizer.tokenize(line) for line in lines] if offsets else []
        pieces = [found.ids for found in tokens] if offsets else [tokenizer.encode(line) for line in lines]
        ids = np.fromiter(itertools.chain.from_iterable(pieces), np.int32)
        counts = np.fromiter(map(len, pieces), np.int64)
        starts = itertools.chain.from_iterable(found.starts for found in tokens)
        return ids, counts, np.fromiter(starts, np.int64) if offsets else None

    return tokenize


def _in_graph(tokenizer: Tokenizer, offsets: bool) -> Tokenize:
    """As `_one_by_one`, with tensorflow-text."""
    from kerasbert.text.graph import of_lists

    run = of_lists(tokenizer, offsets)

    def tokenize(lines: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        ids, counts, *places = run(lines)
        return (ids.copy(), counts, places[0]) if offsets else (ids, counts, None)  # marks are set in it

    return tokenize
