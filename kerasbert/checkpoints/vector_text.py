"""Text files of word vectors: `word number number ...` a line, with a header (word2vec, fastText's .vec) or without (GloVe)."""

import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from kerasbert.checkpoints.word_vectors import WordVectors
from kerasbert.data.reading import packing_of
from kerasbert.errors import InputError
from kerasbert.storage.remote import size

LONGEST_WORD = 1000  # characters; GloVe's own MAX_STRING_LENGTH
WIDEST = 65_536  # numbers of a vector
NUMBER = 64  # bytes of a number at most
SPACES = b" \t\r\n"


def read_text(path: str | os.PathLike, file: BinaryIO, header: bool | None) -> WordVectors:
    """The vectors of a text file. A word that occurs again is left out, as others' readers do; blank lines are skipped.

    A word may hold blanks, as GloVe's 840B has them (`. . .`): the vector is what stands last.

    Args:
        path: for messages, and for the size.
        file: its bytes, unpacked.
        header: whether the first line says how many words and numbers there are; None: where it is two whole numbers.

    Raises:
        InputError: a ragged line, a number that is none, a header that lies, bytes that are not UTF-8; file and line.
    """
    lines = _lines(path, file)
    number, line = next(lines, (0, b""))
    if not number:
        raise InputError(f"{path} holds no word vectors: it is empty")
    claimed = width = None
    if header or (header is None and is_header(line)):
        claimed, width = _claim(path, line)
    else:
        width = _first_width(path, number, line)
    words: dict[str, None] = {}
    table, told = bytearray(), 0
    rows = lines if claimed is not None else _again(number, line, lines)
    for number, line in rows:
        word, vector = _row(path, number, line, width)
        told += 1
        if word not in words:
            words[word] = None
            table += vector.tobytes()
    if claimed is not None and claimed != told:
        raise InputError(f"{path}: its header says {claimed:,} words, and {told:,} follow. Copy it again")
    if not words:
        raise InputError(f"{path} holds no word vectors: nothing follows its header")
    return WordVectors(words, np.frombuffer(table, np.float32).reshape(len(words), width))


def is_header(line: bytes) -> bool:
    """Whether a line is two whole numbers."""
    fields = line.split()
    return len(fields) == 2 and all(field.isdigit() and len(field) < 12 for field in fields)


def write_text(file: BinaryIO, vectors: WordVectors, header: bool) -> None:
    """Write vectors as text; each number by the fewest digits that give its float32 again.

    Raises:
        InputError: a word that a line of the format cannot hold.
    """
    if header:
        file.write(f"{len(vectors)} {vectors.width}\n".encode())
    for word, row in zip(vectors.words, vectors.table):
        if not word or "\n" in word or "\r" in word or (header and " " in word):
            raise InputError(
                f"the word {word[:60]!r} holds a blank, which a line of this format cannot. Take --format glove"
            )
        file.write(f"{word} {' '.join(map(str, np.asarray(row)))}\n".encode())


def _lines(path: str | os.PathLike, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(number, line) of the lines that are not blank; of no line is more than its longest form in memory."""
    limit = 4 * LONGEST_WORD + NUMBER * WIDEST
    buffer, number = b"", 0
    while True:
        chunk = file.read(2**20)
        lines = (buffer + chunk).split(b"\n")
        buffer = lines.pop() if chunk else b""
        for line in lines:
            number += 1
            if line.strip(SPACES):
                yield number, line
        if len(buffer) > limit:
            raise InputError(f"{path}, line {number + 1}: more than {limit:,} bytes, expected a word and its numbers")
        if not chunk:
            return


def _again(number: int, line: bytes, rest: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    yield number, line
    yield from rest


def _claim(path: str | os.PathLike, line: bytes) -> tuple[int, int]:
    """What a header says, if a file of this size can hold it."""
    if not is_header(line):
        raise InputError(
            f"{path}, line 1: {_shown(line)} is no header, expected how many words and how many numbers each has"
        )
    words, width = map(int, line.split())
    check_claim(path, words, width, 2 * width + 2)
    return words, width


def check_claim(path: str | os.PathLike, words: int, width: int, bytes_of_row: int) -> None:
    """Refuse numbers of a header that are none, or more than the file has bytes for."""
    if words < 1 or not 1 <= width <= WIDEST:
        raise InputError(
            f"{path}: its header says {words:,} words of {width:,} numbers, expected 1 to {WIDEST:,} numbers"
        )
    held = size(path)
    if held is not None and packing_of(path) is None and words * bytes_of_row > held + 2:
        raise InputError(
            f"{path}: its header says {words:,} words of {width:,} numbers, and it has {held:,} bytes. Copy it again"
        )


def _first_width(path: str | os.PathLike, number: int, line: bytes) -> int:
    """Numbers of the first vector of a file without a header: all that stand last."""
    fields = line.strip(SPACES).split(b" ")
    if len(fields) > WIDEST + LONGEST_WORD:
        raise InputError(f"{path}, line {number}: {len(fields) - 1:,} numbers, expected at most {WIDEST:,}")
    width = 0
    while width < len(fields) - 1 and _is_number(fields[-1 - width]):
        width += 1
    if not width:
        raise InputError(f"{path}, line {number}: {_shown(line)} is no word and its numbers")
    return width


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _row(path: str | os.PathLike, number: int, line: bytes, width: int) -> tuple[str, np.ndarray]:
    """The word and the vector of a line."""
    where = f"{path}, line {number}"
    fields = line.rstrip(SPACES).rsplit(b" ", width)
    word = decoded(fields[0].rstrip(b"\t"), where)
    if len(fields) <= width or not word:
        told = len(line.split()) - 1
        raise InputError(
            f"{where}: {max(0, told)} numbers, expected {width} after the word, as before. Mend or drop the line"
        )
    if not all(map(_is_number, fields[1:])):
        wrong = next(field for field in fields[1:] if not _is_number(field))
        raise InputError(f"{where}: {_shown(wrong)} is no number, expected {width} numbers after the word")
    with np.errstate(over="ignore"):
        vector = np.array([float(field) for field in fields[1:]]).astype(np.float32)
    extra = fields[0].split(b" ")[1:]
    if extra and _is_number(extra[-1]):
        more = width + sum(map(_is_number, extra))
        raise InputError(f"{where}: {more} numbers, expected {width} after the word, as before. Mend or drop the line")
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: a number of {word[:60]!r} is not finite, expected numbers that a float32 holds")
    return word, vector


def decoded(spelled: bytes, where: str) -> str:
    """A word of a file.

    Raises:
        InputError: it is too long, or not UTF-8.
    """
    if len(spelled) > 4 * LONGEST_WORD:
        raise InputError(f"{where}: a word of more than {LONGEST_WORD:,} characters ({len(spelled):,} bytes). Drop it")
    try:
        word = spelled.decode()
    except UnicodeDecodeError as error:
        wrong = spelled[error.start]
        raise InputError(
            f"{where}: byte 0x{wrong:02x} is not UTF-8. Convert the file (iconv -t utf-8) or drop the word"
        ) from None
    if len(word) > LONGEST_WORD:
        raise InputError(f"{where}: a word of {len(word):,} characters, expected at most {LONGEST_WORD:,}. Drop it")
    return word


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))
