"""Tokenized documents on their way to a shard: as bytes, by shard, and together again in the order of their hash."""

import hashlib
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kerasbert.data.examples import put
from kerasbert.data.packing import Documents

SPOOL_BYTES = 64 * 2**20  # tokenized documents held before they go to the disk
DIGEST = 32  # bytes of a document's sha256, with which an entry begins
HEAD = DIGEST // 4 + 3  # words of four bytes before the lengths: hash, language, number of segments, number of tokens


def entries(
    digests: Sequence[bytes], language: int, counts: np.ndarray, lengths: np.ndarray, ids: np.ndarray
) -> Iterator[bytes]:
    """Tokenized documents as bytes, one by one: hash, language, numbers of segments and tokens, lengths, ids.

    Args:
        digests: of the D documents.
        language: number of their language.
        counts: int [D], segments in each.
        lengths: int [G], tokens in each segment.
        ids: int [T].
    """
    totals = np.add.reduceat(lengths, np.cumsum(counts) - counts)
    ends = np.cumsum(HEAD + counts + totals)
    begins = ends - HEAD - counts - totals
    words = np.empty(ends[-1], np.int32)
    words[begins[:, None] + np.arange(DIGEST // 4)] = np.frombuffer(b"".join(digests), np.int32).reshape(
        -1, DIGEST // 4
    )
    words[begins + HEAD - 3], words[begins + HEAD - 2], words[begins + HEAD - 1] = language, counts, totals
    put(words, begins + HEAD, lengths, _spans(counts))
    put(words, begins + HEAD + counts, ids, _spans(totals))
    data = words.tobytes()
    for begin, end in zip((4 * begins).tolist(), (4 * ends).tolist()):
        yield data[begin:end]


def _spans(sizes: np.ndarray) -> np.ndarray:
    """Sizes [M] -> the spans [M, 2] that lie side by side."""
    ends = np.cumsum(sizes)
    return np.stack([ends - sizes, ends], axis=1)


def _joined(words: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Runs of the words, one after the other."""
    return np.concatenate([words[:0], *(words[a:b] for a, b in zip(starts.tolist(), (starts + sizes).tolist()))])


def measure(data: bytes) -> tuple[int, int]:
    """(number of the language, number of tokens) of an entry."""
    language, _, tokens = struct.unpack_from("=3i", data, DIGEST)
    return language, tokens


def add_count(counts: dict[int, tuple[int, int]], language: int, tokens: int, documents: int = 1) -> None:
    """Add to the number of (documents, tokens) of a language."""
    before = counts.get(language, (0, 0))
    counts[language] = before[0] + documents, before[1] + tokens


def shard_of(digest: bytes, shards: int) -> int:
    """A document's shard: hash mod N."""
    return int.from_bytes(digest[:8], "little") % shards


def copies(digest: bytes, repeats: float) -> list[bytes]:
    """The hashes of a document's copies, on average `repeats` of them: whether there is one more is up to its hash.

    The first copy has the document's own hash; each other has one of its own, so that it stands elsewhere in the shard
    and is paired and packed anew.
    """
    share = int.from_bytes(digest[8:16], "little") / 2**64  # other bytes than the shard's
    count = int(repeats) + (share < repeats % 1)
    return [
        hashlib.sha256(digest + f"/copy {number}".encode()).digest() if number else digest for number in range(count)
    ]


def gather(data: bytes, repeats: Mapping[int, float] | None = None) -> tuple[Documents, int, int]:
    """The documents of one shard in the order of their hash, whatever order the entries have.

    Args:
        data: entries, one after the other.
        repeats: how often a document of each language (by number) is taken, on average; once without.

    Returns:
        (documents, how many different ones there were, number of exact duplicates that were left out).
    """
    words, view = np.frombuffer(data, np.int32), memoryview(data).cast("i")
    begins, place = [], 0
    while place < len(view):
        begins.append(place)
        place += HEAD + view[place + HEAD - 2] + view[place + HEAD - 1]
    heads = words[np.array(begins, np.int64)[:, None] + np.arange(HEAD)]
    hashes = np.ascontiguousarray(heads[:, : DIGEST // 4])
    # by the hash's bytes, then by the language: a text that two languages hold counts for the first of them
    order = np.lexsort((heads[:, -3], *hashes.view(">u8").T[::-1]))
    hashes = hashes[order]
    first = np.append(True, (hashes[1:] != hashes[:-1]).any(axis=1))[: len(order)]
    chosen, duplicates = order[first], len(order) - int(first.sum())
    joined = hashes[first].tobytes()
    digests = [joined[begin : begin + DIGEST] for begin in range(0, len(joined), DIGEST)]
    different = len(digests)
    if repeats is not None:
        copied = [
            (digest, entry)
            for known, entry, language in zip(digests, chosen.tolist(), heads[chosen, -3].tolist())
            for digest in copies(known, repeats[language])
        ]
        copied.sort(key=lambda document: document[0])
        digests, chosen = [digest for digest, _ in copied], np.array([entry for _, entry in copied], np.int64)
    starts, counts, totals = np.array(begins, np.int64)[chosen] + HEAD, heads[chosen, -2], heads[chosen, -1]
    lengths = _joined(words, starts, counts)
    documents = Documents(
        ids=_joined(words, starts + counts, totals),
        bounds=np.append(0, np.cumsum(lengths, dtype=np.int64)),
        firsts=np.append(0, np.cumsum(counts, dtype=np.int64)),
        digests=digests,
        languages=heads[chosen, -3].astype(np.int64),
    )
    return documents, different, duplicates


class Spool:
    """Entries on the disk, by shard: only one shard is ever in memory.

    Args:
        directory: for the temporary files; each is removed when it is taken.
        shards: their number.
        number: int, of the process that holds this spool, and of how many: each has files of its own.
    """

    def __init__(self, directory: Path, shards: int, number: int = 0, processes: int = 1) -> None:
        self.directory, self.shards, self.number = directory, shards, number
        self._most = SPOOL_BYTES // processes
        self._parts: dict[int, list[bytes]] = {}
        self._held = 0

    def add(self, data: bytes) -> None:
        """Put an entry into its shard."""
        self._parts.setdefault(shard_of(data[:DIGEST], self.shards), []).append(data)
        self._held += len(data) + sys.getsizeof(b"")  # with many small documents the objects count too
        if self._held > self._most:
            self.flush()

    def flush(self) -> None:
        """Append what is held to the files."""
        for shard, parts in self._parts.items():
            with open(self.directory / f"spool-{shard:05d}.{self.number}", "ab") as file:
                file.writelines(parts)
        self._parts, self._held = {}, 0

    def take(self, shard: int) -> bytes:
        """The entries of one shard, of all processes; the files are removed."""
        parts = []
        for path in sorted(self.directory.glob(f"spool-{shard:05d}.*")):
            parts.append(path.read_bytes())
            path.unlink()
        return b"".join(parts)
