"""Tokenized documents on their way to a shard: as bytes, by shard, and together again in the order of their hash."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kerasbert.data.packing import Documents

SPOOL_BYTES = 64 * 2**20  # tokenized documents held before they go to the disk
DIGEST = 32  # bytes of a document's sha256
HEAD = DIGEST + 8  # then the language's number and the number of segments, int32 each


def entry(digest: bytes, ids: np.ndarray, lengths: np.ndarray, language: int = 0) -> bytes:
    """A tokenized document as bytes: hash, language, number of segments, their lengths, ids."""
    numbers = np.array([language, len(lengths)], np.int32)
    return b"".join((digest, numbers.tobytes(), lengths.astype(np.int32).tobytes(), ids.astype(np.int32).tobytes()))


def measure(data: bytes) -> tuple[int, int]:
    """(number of the language, number of tokens) of an entry."""
    language, count = np.frombuffer(data, np.int32, 2, DIGEST).tolist()
    return language, (len(data) - HEAD) // 4 - count


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
    found, place = [], 0
    while place < len(data):
        language, count = np.frombuffer(data, np.int32, 2, place + DIGEST).tolist()
        lengths = np.frombuffer(data, np.int32, count, place + HEAD)
        begin = place + HEAD + 4 * count
        total = int(lengths.sum())
        found.append((data[place : place + DIGEST], language, lengths, np.frombuffer(data, np.int32, total, begin)))
        place = begin + 4 * total
    found.sort(key=lambda document: document[:2])
    # A text that two languages hold counts for the first of them.
    kept = [now for before, now in zip([(b"",), *found], found) if before[0] != now[0]]
    different, duplicates = len(kept), len(found) - len(kept)
    if repeats is not None:
        kept = sorted(
            ((digest, *rest) for first, *rest in kept for digest in copies(first, repeats[rest[0]])),
            key=lambda document: document[0],
        )
    lengths = np.concatenate([np.zeros(1, np.int64), *(document[2] for document in kept)])
    documents = Documents(
        ids=np.concatenate([np.zeros(0, np.int32), *(document[3] for document in kept)]),
        bounds=np.cumsum(lengths, dtype=np.int64),
        firsts=np.cumsum([0, *(len(document[2]) for document in kept)], dtype=np.int64),
        digests=[document[0] for document in kept],
    )
    return documents, different, duplicates


class Spool:
    """Entries on the disk, by shard: only one shard is ever in memory.

    Args:
        directory: for the temporary files; each is removed when it is taken.
        shards: their number.
    """

    def __init__(self, directory: Path, shards: int):
        self.directory, self.shards = directory, shards
        self._parts: dict[int, list[bytes]] = {}
        self._held = 0

    def add(self, data: bytes) -> None:
        """Put an entry into its shard."""
        self._parts.setdefault(shard_of(data[:DIGEST], self.shards), []).append(data)
        self._held += len(data) + sys.getsizeof(b"")  # with many small documents the objects count too
        if self._held > SPOOL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append what is held to the files."""
        for shard, parts in self._parts.items():
            with open(self._path(shard), "ab") as file:
                file.writelines(parts)
        self._parts, self._held = {}, 0

    def take(self, shard: int) -> bytes:
        """The entries of one shard; the file is removed."""
        path = self._path(shard)
        data = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        return data

    def _path(self, shard: int) -> Path:
        return self.directory / f"spool-{shard:05d}"
