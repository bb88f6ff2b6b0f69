"""Binary files of word vectors: word2vec's .bin and fastText's .bin. Nothing is reserved by what a file says of itself."""

import os
import struct
from typing import Any, BinaryIO

import numpy as np

from kerasbert.checkpoints.vector_text import LONGEST_WORD, WIDEST, check_claim, decoded, is_header
from kerasbert.checkpoints.word_vectors import ROWS, FastTextVectors, WordVectors
from kerasbert.errors import InputError

CHUNK = 2**20  # bytes read at once
MAGIC, VERSIONS = 793712314, (11, 12)
# of fastText's header (Args::save), in its order: int32 each, and `t` a float64
FIELDS = (
    "dim",
    "ws",
    "epoch",
    "minCount",
    "neg",
    "wordNgrams",
    "loss",
    "model",
    "bucket",
    "minn",
    "maxn",
    "lrUpdateRate",
    "t",
)
DEFAULTS = {
    "ws": 5,
    "epoch": 5,
    "minCount": 5,
    "neg": 5,
    "wordNgrams": 1,
    "loss": 2,
    "model": 2,
    "lrUpdateRate": 100,
    "t": 1e-4,
}
SUPERVISED = 3  # of the field `model`


class Stream:
    """Bytes of a file, one after the other; an end where more was promised is an error with the file and what was read."""

    def __init__(self, path: str | os.PathLike, file: BinaryIO):
        self.path, self.file = path, file
        self.buffer, self.place = b"", 0

    def take(self, count: int, what: str) -> bytes:
        """So many bytes."""
        parts = [self.buffer[self.place : self.place + count]]
        self.place += len(parts[0])
        missing = count - len(parts[0])
        while missing > 0:
            part = self.file.read(min(missing, CHUNK))
            if not part:
                raise InputError(
                    f"{self.path} ends in {what}: {missing:,} of {count:,} bytes are missing. Copy it again"
                )
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def until(self, end: bytes, limit: int, what: str) -> bytes:
        """The bytes before the next `end`, which is passed over."""
        while (found := self.buffer.find(end, self.place)) < 0:
            kept = self.buffer[self.place :]
            if len(kept) > limit:
                break
            part = self.file.read(CHUNK)
            if not part:
                raise InputError(f"{self.path} ends in {what}. Copy it again")
            self.buffer, self.place = kept + part, 0
        if found < 0 or found - self.place > limit:
            raise InputError(
                f"{self.path}: more than {limit:,} bytes in {what}, expected at most {LONGEST_WORD:,} characters"
            )
        part = self.buffer[self.place : found]
        self.place = found + len(end)
        return part

    def unpack(self, form: str, what: str) -> tuple:
        """Numbers, little-endian."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), what))

    def table(self, rows: int, width: int, what: str) -> np.ndarray:
        """float32 [rows, width]; grows with what the file holds."""
        data, missing = bytearray(), 4 * rows * width
        while missing:
            count = min(missing, CHUNK)
            data += self.take(count, what)
            missing -= count
        table = np.frombuffer(data, "<f4").reshape(rows, width).astype(np.float32, copy=False)
        return finite(table, f"{self.path}, {what}")

    def more(self) -> bytes:
        """Some of what has not been read, which stays there; nothing at the end."""
        if self.place == len(self.buffer):
            self.buffer, self.place = self.file.read(CHUNK), 0
        return self.buffer[self.place :]


def finite(table: np.ndarray, where: str) -> np.ndarray:
    """The table, if all of its numbers are finite."""
    if not np.isfinite(table).all():
        row = int(np.argmin(np.isfinite(table).all(1)))
        raise InputError(
            f"{where}: row {row + 1} holds a number that is not finite. Is it the format that its name says?"
        )
    return table


def read_word2vec(path: str | os.PathLike, file: BinaryIO) -> WordVectors:
    """word2vec's .bin: a line with the numbers of words and of dimensions, then a word, a blank and float32s, V times.

    Raises:
        InputError: a header that lies, a truncated file, bytes that are not UTF-8, a word that occurs twice.
    """
    stream = Stream(path, file)
    head = stream.until(b"\n", 64, "its header")
    if not is_header(head):
        raise InputError(f"{path}: {head[:40]!r} is no header of word2vec's .bin, expected two whole numbers")
    count, width = map(int, head.split())
    check_claim(path, count, width, 4 * width + 2)
    words: dict[str, None] = {}
    data = bytearray()
    for number in range(1, count + 1):
        where = f"word {number:,} of {count:,}"
        # the original program ends each vector by a line feed, gensim does not
        word = decoded(stream.until(b" ", 4 * LONGEST_WORD, where).lstrip(b"\n"), f"{path}, {where}")
        row = stream.take(4 * width, f"the vector of {where}")
        if not word:
            raise InputError(f"{path}, {where}: no word. Is its header right?")
        if word not in words:
            words[word] = None
            data += row
    if stream.more().strip(b"\n"):
        raise InputError(
            f"{path}: its header says {count:,} words of {width:,} numbers, and more bytes follow. Copy it again"
        )
    return WordVectors(
        words, finite(np.frombuffer(data, "<f4").reshape(len(words), width).astype(np.float32, copy=False), str(path))
    )


def write_word2vec(file: BinaryIO, vectors: WordVectors) -> None:
    """Write word2vec's .bin, byte for byte as gensim does.

    Raises:
        InputError: a word with a blank, which the format cannot hold.
    """
    file.write(f"{len(vectors)} {vectors.width}\n".encode())
    for word, row in zip(vectors.words, vectors.table):
        if not word or " " in word or "\n" in word:
            raise InputError(f"the word {word[:60]!r} holds a blank, which word2vec's .bin cannot. Take --format glove")
        file.write(f"{word} ".encode() + np.asarray(row, "<f4").tobytes())


def read_fasttext(path: str | os.PathLike, file: BinaryIO) -> FastTextVectors:
    """fastText's .bin of an unsupervised model, versions 11 and 12: words, the rows of words and n-grams, the output layer.

    Raises:
        InputError: a quantized or supervised model, a header that lies, a truncated file, bytes that are not UTF-8.
    """
    stream = Stream(path, file)
    magic, version = stream.unpack("2i", "its header")
    if magic != MAGIC or version not in VERSIONS:
        raise InputError(f"{path} is no .bin of fastText (version {version}), expected version 11 or 12")
    head: dict[str, Any] = dict(zip(FIELDS, stream.unpack("12id", "its header")))
    words, labels = _counts(stream, path)
    if labels or head["model"] == SUPERVISED:
        raise InputError(
            f"{path} is a supervised model of fastText ({labels} labels), expected word vectors (skipgram or cbow)"
        )
    tokens, pruned = stream.unpack("qq", "its header")
    width, buckets, least, most = (head[name] for name in ("dim", "bucket", "minn", "maxn"))
    if not 1 <= width <= WIDEST or buckets < 0 or not 0 <= least <= LONGEST_WORD or not 0 <= most <= LONGEST_WORD:
        raise InputError(
            f"{path}: its header says {width} numbers, {buckets} buckets, n-grams of {least} to {most}: it is damaged"
        )
    if most == 0:
        buckets = 0  # as fastText does: no n-grams at all
    check_claim(path, words, width, 4 * width + 10)
    names: dict[str, None] = {}
    counts = []
    for number in range(1, words + 1):
        where = f"word {number:,} of {words:,}"
        name = decoded(stream.until(b"\0", 4 * LONGEST_WORD, where), f"{path}, {where}")
        if name in names:
            raise InputError(f"{path}, {where}: {name[:60]!r} occurs twice, expected each word once")
        names[name] = None
        counts.append(stream.unpack("qb", where)[0])
    if pruned > 0 or stream.unpack("?", "its tables")[0]:
        raise InputError(f"{path} is a quantized model of fastText (.ftz), expected one that was not: its .bin or .vec")
    table = _matrix(stream, path, words, buckets, width)
    output = None
    if stream.more():
        quantized, rows, columns = stream.unpack("?qq", "its output layer")
        if quantized or not 0 <= rows <= words or columns != width:
            raise InputError(
                f"{path}: an output layer of {rows} x {columns}, expected at most {words} x {width}: it is damaged"
            )
        output = stream.table(rows, columns, "its output layer")
    settings = {name: head[name] for name in DEFAULTS} | {"ntokens": tokens, "version": version}
    return FastTextVectors(
        names, table[:words], table[words:], least, most, output=output, settings=settings, counts=counts
    )


def _counts(stream: Stream, path: str | os.PathLike) -> tuple[int, int]:
    """How many words and labels the dictionary has."""
    entries, words, labels = stream.unpack("3i", "its header")
    if words < 1 or labels < 0 or entries != words + labels:
        raise InputError(f"{path}: its header says {entries} entries, {words} words, {labels} labels: it is damaged")
    return words, labels


def _matrix(stream: Stream, path: str | os.PathLike, words: int, buckets: int, width: int) -> np.ndarray:
    """The rows of words and buckets, [V + B, D]."""
    rows, columns = stream.unpack("qq", "its tables")
    if (rows, columns) != (words + buckets, width):
        raise InputError(
            f"{path}: a table of {rows:,} x {columns:,}, and its header says {words:,} words, {buckets:,} buckets, {width:,} "
            "numbers: it is damaged"
        )
    return stream.table(rows, columns, "the rows of words and n-grams")


def write_fasttext(file: BinaryIO, vectors: WordVectors) -> None:
    """Write fastText's .bin, version 12.

    Raises:
        InputError: vectors without n-grams, or a word that the format cannot hold.
    """
    if not isinstance(vectors, FastTextVectors):
        raise InputError("these vectors have no n-grams, which fastText's .bin holds. Take --format vec, bin or glove")
    settings: dict[str, Any] = DEFAULTS | vectors.settings
    counts = vectors.counts if vectors.counts is not None else [1] * len(vectors)
    own: dict[str, Any] = {
        "dim": vectors.width,
        "bucket": len(vectors.buckets),
        "minn": vectors.least,
        "maxn": vectors.most,
    }
    values: list[Any] = [(settings | own)[name] for name in FIELDS]
    file.write(
        struct.pack(
            "<2i12id", MAGIC, int(settings.get("version", 12)), *[int(value) for value in values[:-1]], values[-1]
        )
    )
    tokens = int(settings.get("ntokens", sum(counts)))
    file.write(struct.pack("<3iqq", len(vectors), len(vectors), 0, tokens, -1))
    for word, count in zip(vectors.words, counts):
        if "\0" in word:
            raise InputError(f"the word {word[:60]!r} holds a zero, which fastText's .bin cannot")
        file.write(word.encode() + b"\0" + struct.pack("<qb", count, 0))
    file.write(struct.pack("<?qq", False, len(vectors) + len(vectors.buckets), vectors.width))
    for table in (vectors.own, vectors.buckets):
        for first in range(0, len(table), ROWS):  # never a copy of the whole
            file.write(np.asarray(table[first : first + ROWS], "<f4").tobytes())
    output = vectors.output if vectors.output is not None else np.zeros_like(vectors.own)  # as it begins
    file.write(struct.pack("<?qq", False, *output.shape) + np.ascontiguousarray(output, "<f4").tobytes())
