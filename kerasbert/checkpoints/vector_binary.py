"""Binary files of word vectors: word2vec's .bin and fastText's .bin. Nothing is reserved by what a file says of itself."""

import codecs
import os
import struct
from typing import BinaryIO

import numpy as np

from kerasbert.checkpoints.vector_text import AGAIN, LONGEST_WORD, NAMELESS, WIDEST, Skipped, check_claim, is_header
from kerasbert.checkpoints.word_vectors import ROWS, FastTextVectors, WordVectors
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

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
NEXT = 64  # bytes behind a vector that tell whether a word begins there
SOFTMAX_TREE = 1  # of the field `loss`: fastText's hierarchical softmax, whose output layer has a row a node
# the upper bytes of float32s from 2^-59 to 2^21: numbers of vectors; letters and a blank taken for numbers have others
USUAL = bytes(sign | top for sign in (0, 0x80) for top in range(0x22, 0x4A))
ABSURD = 1e15  # a number of no vector
FLOATS = "Is its header right, and are they float32?"
CURE = "Convert the corpus to UTF-8 and train again, or load and save it in gensim (load_word2vec_format, encoding=)"


class Stream:
    """Bytes of a file, one after the other; an end where more was promised is an error with the file and what was read."""

    def __init__(self, path: str | os.PathLike, file: BinaryIO) -> None:
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

    def ahead(self, count: int) -> bytes:
        """The next bytes, fewer at the end of the file; they stay there."""
        while len(self.buffer) - self.place < count and (part := self.file.read(CHUNK)):
            self.buffer, self.place = self.buffer[self.place :] + part, 0
        return self.buffer[self.place : self.place + count]

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


def read_word2vec(path: str | os.PathLike, file: BinaryIO, skipped: Skipped | None = None) -> WordVectors:
    """word2vec's .bin: a line with the numbers of words and of dimensions, then a word, a blank and float32s, V times.

    Words may hold blanks: see `_spaced`.

    Args:
        skipped: words that are not UTF-8, empty or occur again are counted there.

    Raises:
        InputError: a header that lies, a truncated file, rows that are shifted.
    """
    skipped = skipped or Skipped(path, CURE)
    stream = Stream(path, file)
    head = stream.until(b"\n", 64, "its header").removeprefix(codecs.BOM_UTF8)
    if not is_header(head):
        raise InputError(f"{path}: {head[:40]!r} is no header of word2vec's .bin, expected two whole numbers")
    count, width = map(int, head.split())
    check_claim(path, count, width, 4 * width + 2)
    words: dict[str, None] = {}
    data = bytearray()
    ended: bool | None = None  # the original program ends each vector by a line feed, gensim does not
    for number in range(1, count + 1):
        where = f"word {number:,} of {count:,}"
        spelled, row, ended = _row(stream, width, ended, where)
        word = skipped.decoded(spelled, f"{path}, {where}")
        if not word or word in words:
            if word is not None:
                skipped.add(AGAIN if word else NAMELESS, spelled)
            continue
        words[word] = None
        data += row
    if stream.more().strip(b"\n"):
        raise InputError(
            f"{path}: its header says {count:,} words of {width:,} numbers, and more bytes follow. Copy it again"
        )
    skipped.lines(count)
    if not words:
        raise InputError(f"{path} holds no word vectors: no word of {count:,} can be read")
    table = np.frombuffer(data, "<f4").reshape(len(words), width).astype(np.float32, copy=False)
    return WordVectors(words, _usual(finite(table, str(path)), str(path)))


def _row(stream: Stream, width: int, ended: bool | None, where: str) -> tuple[bytes, bytes, bool]:
    """A word, its vector, and whether a line feed ends each vector; `ended` is what is known of that, `where` names the word."""
    spelled = stream.until(b" ", 4 * LONGEST_WORD, where).lstrip(b"\n")
    row = stream.take(4 * width, f"the vector of {where}")
    after = stream.ahead(NEXT)
    if not _sound(row, after, ended):
        spelled, row = _spaced(stream, spelled, row, ended)
        after = stream.ahead(NEXT)
        if _is_shifted(spelled, row, after, ended):
            raise InputError(
                f"{stream.path}, {where}: its rows are shifted: {spelled[:40]!r} is no word with {width} numbers after it. "
                f"{FLOATS}"
            )
    return spelled, row, after[:1] == b"\n" if ended is None else ended


def _usual(table: np.ndarray, where: str) -> np.ndarray:
    """The table, if most of its rows hold numbers of vectors: float64s taken for float32s are no such."""
    absurd = sum(int((np.abs(table[at : at + ROWS]) > ABSURD).any(1).sum()) for at in range(0, len(table), ROWS))
    if 2 * absurd > len(table):
        raise InputError(f"{where}: its rows are shifted: {absurd:,} of {len(table):,} hold absurd numbers. {FLOATS}")
    return table


def _is_shifted(spelled: bytes, row: bytes, after: bytes, ended: bool | None) -> bool:
    """Whether a word and its row are none: letters taken for numbers, or numbers for letters."""
    if (ended and after[:1] not in (b"\n", b"")) or b"\n" in spelled or b"\0" in spelled:
        return True
    at = row.find(b" ")
    absurd = at > 0 and (np.abs(np.frombuffer(row, "<f4")) > ABSURD).any()
    return bool(absurd and _is_word(row[:at]))


def _sound(row: bytes, after: bytes, ended: bool | None) -> bool:
    """Whether bytes look like a vector, and stand where one ends: a line feed is behind it, or a word.

    Args:
        after: the NEXT bytes behind it. ended: whether a line feed ends each vector; None for what is not known yet.
    """
    if after[:1] not in (b"\n", b"") if ended else not _begins(after):
        return False
    odd = row[3::4].translate(None, USUAL)
    if not odd:
        return True
    if odd.strip(b"\0\x80"):
        return False
    numbers = np.frombuffer(row, "<f4")
    return not ((numbers != 0) & (np.abs(numbers) < 1e-18)).any()  # zeros are usual


def _spaced(stream: Stream, spelled: bytes, row: bytes, ended: bool | None) -> tuple[bytes, bytes]:
    """A word that holds blanks, and its vector: the first blank behind which numbers of a vector stand ends the word.

    Where there is no such blank, what was read up to the first one is given back.
    """
    size = len(row)
    rest = row + stream.ahead(4 * LONGEST_WORD + size + NEXT)
    at = -1
    while 0 <= (at := rest.find(b" ", at + 1)) <= 4 * LONGEST_WORD:
        word, numbers = spelled + b" " + rest[:at], rest[at + 1 : at + 1 + size]
        if len(numbers) < size:
            break
        if _sound(numbers, rest[at + 1 + size : at + 1 + size + NEXT], ended) and _is_word(word):
            stream.take(at + 1, "a word")
            return word, numbers
    return spelled, row


def _begins(after: bytes) -> bool:
    """Whether a word stands there; numbers in front of it are no text. A word may be cut inside a character at its end."""
    at = after.find(b" ")
    word = after[: max(at, 0)].lstrip(b"\n")
    if at < 0 or word.isalnum():  # as most are
        return True
    try:
        text = word.decode()
    except UnicodeDecodeError as error:
        text = word[: error.start].decode() if error.end == len(word) and error.start > 0 else "\0"
    return all(character >= " " and character != "\x7f" for character in text)


def _is_word(spelled: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters."""
    try:
        return all(character >= " " and character != "\x7f" for character in spelled.decode())
    except UnicodeDecodeError:
        return False


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


def read_fasttext(path: str | os.PathLike, file: BinaryIO, skipped: Skipped | None = None) -> FastTextVectors:
    """fastText's .bin of an unsupervised model, versions 11 and 12: words, the rows of words and n-grams, the output layer.

    Args:
        skipped: words that are not UTF-8 are counted there.

    Raises:
        InputError: a quantized or supervised model, a header that lies, a truncated file.
    """
    skipped = skipped or Skipped(path, CURE)
    stream = Stream(path, file)
    magic, version = stream.unpack("2i", "its header")
    if magic != MAGIC or version not in VERSIONS:
        raise InputError(f"{path} is no .bin of fastText (version {version}), expected version 11 or 12")
    head: Json = dict(zip(FIELDS, stream.unpack("12id", "its header")))
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
    names, counts = _names(stream, words, skipped)
    if pruned > 0 or stream.unpack("?", "its tables")[0]:
        raise InputError(f"{path} is a quantized model of fastText (.ftz), expected one that was not: its .bin or .vec")
    table = _matrix(stream, path, words, buckets, width)
    output = _output_layer(stream, path, words, width) if stream.more() else None
    settings = {name: head[name] for name in DEFAULTS} | {"ntokens": tokens, "version": version}
    own, buckets = table[:words], table[words:]
    if len(names) < words:
        kept = list(names.values())
        own, counts = own[kept], [counts[row] for row in kept]
        if output is not None:
            output = output[kept] if len(output) == words and head["loss"] != SOFTMAX_TREE else None
    return FastTextVectors(names, own, buckets, least, most, output=output, settings=settings, counts=counts)


def _output_layer(stream: Stream, path: str | os.PathLike, words: int, width: int) -> np.ndarray:
    """float32 [at most words, width]."""
    quantized, rows, columns = stream.unpack("?qq", "its output layer")
    if quantized or not 0 <= rows <= words or columns != width:
        raise InputError(
            f"{path}: an output layer of {rows} x {columns}, expected at most {words} x {width}: it is damaged"
        )
    return stream.table(rows, columns, "its output layer")


def _names(stream: Stream, words: int, skipped: Skipped) -> tuple[dict[str, int], list[int]]:
    """The words that are UTF-8, with their rows, and how often each word of the file occurs."""
    names: dict[str, int] = {}
    counts = []
    for number in range(1, words + 1):
        where = f"word {number:,} of {words:,}"
        name = skipped.decoded(stream.until(b"\0", 4 * LONGEST_WORD, where), f"{stream.path}, {where}")
        if name in names:
            raise InputError(f"{stream.path}, {where}: {name[:60]!r} occurs twice, expected each word once")
        if name is not None:
            names[name] = number - 1
        counts.append(stream.unpack("qb", where)[0])
    skipped.lines(words)
    if not names:
        raise InputError(f"{stream.path} holds no word vectors: no word of {words:,} can be read")
    return names, counts


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
    settings: Json = DEFAULTS | vectors.settings
    counts = vectors.counts if vectors.counts is not None else [1] * len(vectors)
    own: Json = {
        "dim": vectors.width,
        "bucket": len(vectors.buckets),
        "minn": vectors.least,
        "maxn": vectors.most,
    }
    values: list[float] = [(settings | own)[name] for name in FIELDS]
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
