"""Text files of word vectors: `word number number ...` a line, with a header (word2vec, fastText's .vec) or without (GloVe)."""

import codecs
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
SAMPLE = 100  # lines that tell how many numbers a vector has
SHOWN = 3  # words of those that are skipped
REAL = re.compile(rb"[ \t][-+]?\d*\.\d|[ \t][-+]?\d+[eE]")  # a number that is not whole
NOT_UTF8, AGAIN = "are not UTF-8 and are skipped", "occur again and are skipped"
NUMBERED = "end in a number, which is taken for a part of the word"
NAMELESS = "are empty and are skipped"
CURE = "Convert the file: iconv -f ENCODING -t utf-8"


class Skipped:
    """What a reader leaves out of a file of vectors, by reason: how many words, and the first few.

    Args:
        path: of the file, for the lines.
        cure: what helps where words are not UTF-8: another thing for a text than for a binary file.
    """

    def __init__(self, path: str | os.PathLike, cure: str) -> None:
        self.path, self.cure = path, cure
        self.found: dict[str, list[str]] = {}
        self.counts: Counter[str] = Counter()

    def add(self, reason: str, spelled: bytes | str) -> None:
        """Count a word."""
        self.counts[reason] += 1
        if self.counts[reason] <= SHOWN:
            word = spelled if isinstance(spelled, str) else spelled.decode("utf-8", "backslashreplace")
            self.found.setdefault(reason, []).append(repr(word[:40]))

    def decoded(self, spelled: bytes, where: str) -> str | None:
        """A word of a file; None of one that is not UTF-8, as word2vec.c cuts long words inside a character.

        Raises:
            InputError: it is too long.
        """
        if len(spelled) > 4 * LONGEST_WORD:
            raise InputError(
                f"{where}: a word of more than {LONGEST_WORD:,} characters ({len(spelled):,} bytes). Drop it"
            )
        try:
            word = spelled.decode()
        except UnicodeDecodeError:
            self.add(NOT_UTF8, spelled)
            return None
        if len(word) > LONGEST_WORD:
            raise InputError(f"{where}: a word of {len(word):,} characters, expected at most {LONGEST_WORD:,}. Drop it")
        return word

    def lines(self, words: int) -> list[str]:
        """What is told of a file with so many words, a line a reason.

        Raises:
            InputError: most words are not UTF-8: the file has another encoding.
        """
        wrong = self.counts[NOT_UTF8]
        if 2 * wrong > words:
            raise InputError(
                f"{self.path}: {wrong:,} of {words:,} words are not UTF-8: it has another encoding. {self.cure}"
            )
        lines = []
        for reason, count in self.counts.items():
            more = ", ..." if count > SHOWN else ""
            hint = f" (where they are words of another encoding: {self.cure})" if reason == NOT_UTF8 else ""
            lines.append(
                f"{self.path}: {count:,} of {words:,} words {reason}: {', '.join(self.found[reason])}{more}{hint}"
            )
        return lines


def read_text(
    path: str | os.PathLike, file: BinaryIO, header: bool | None, skipped: Skipped | None = None
) -> WordVectors:
    """The vectors of a text file. A word that occurs again is left out, as others' readers do; blank lines are skipped.

    Blanks and tabs, one or several, stand between a word and its numbers. A word may hold blanks, as GloVe's 840B has them
    (`. . .`): the vector is what stands last.

    Args:
        path: for messages, and for the size.
        file: its bytes, unpacked.
        header: whether the first line says how many words and numbers there are; None: where it is two whole numbers.
        skipped: what is left out is counted there.

    Raises:
        InputError: a ragged line, a number that is none, a header that lies; file and line.
    """
    skipped = skipped or Skipped(path, CURE)
    lines = _lines(path, file)
    first = list(itertools.islice(lines, SAMPLE))
    if not first:
        raise InputError(f"{path} holds no word vectors: it is empty")
    claimed = width = None
    if header or (header is None and is_header(first[0][1])):
        claimed, width = _claim(path, first.pop(0)[1])
    else:
        width = _usual_width(path, first)
    reals = any(REAL.search(line) for _, line in first)
    words: dict[str, None] = {}
    table, told = bytearray(), 0
    for number, line in itertools.chain(first, lines):
        told += 1
        spelled, vector = _row(path, number, line, width)
        word = skipped.decoded(spelled, f"{path}, line {number}")
        if word is None:
            continue
        _check_word(f"{path}, line {number}", word, width, reals, skipped)
        _check_finite(f"{path}, line {number}", word, vector)
        if word in words:
            skipped.add(AGAIN, word)
            continue
        words[word] = None
        table += vector.tobytes()
    if claimed is not None and claimed != told:
        raise InputError(f"{path}: its header says {claimed:,} words, and {told:,} follow. Copy it again")
    _check_found(path, words, told, skipped)
    return WordVectors(words, np.frombuffer(table, np.float32).reshape(len(words), width))


def _check_found(path: str | os.PathLike, words: Collection[str], told: int, skipped: Skipped) -> None:
    """Refuse a file without words, or whose words all end in numbers."""
    skipped.lines(told)
    if not words:
        raise InputError(f"{path} holds no word vectors: nothing follows its header")
    if 2 * skipped.counts[NUMBERED] > len(words):
        raise InputError(
            f"{path}: most words end in a number ({skipped.found[NUMBERED][0]}): its header, or its first line, says too few "
            "numbers. Mend the header"
        )


def _check_finite(where: str, word: str, vector: np.ndarray) -> None:
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: a number of {word[:60]!r} is not finite, expected numbers that a float32 holds")


def _check_word(where: str, word: str, width: int, reals: bool, skipped: Skipped) -> None:
    """Count a word such as `windows 95`; refuse one whose last part is a number of the vector.

    Args:
        reals: whether the numbers of the file are written with points, which tells them from the number of a word.
    """
    parts = word.split()  # at U+00A0 and U+3000 too, which are no separators
    if len(parts) < 2 or not _is_number(parts[-1].encode()):
        return
    if not (reals and parts[-1].isascii() and parts[-1].isdigit()):
        more = width + sum(_is_number(part.encode()) for part in parts[1:])
        raise InputError(
            f"{where}: {more} numbers, expected {width} after the word, with blanks or tabs between. Mend or drop the line"
        )
    skipped.add(NUMBERED, word)


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
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if line.strip(SPACES):
                yield number, line
        if len(buffer) > limit:
            raise InputError(f"{path}, line {number + 1}: more than {limit:,} bytes, expected a word and its numbers")
        if not chunk:
            return


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


def _usual_width(path: str | os.PathLike, lines: Sequence[tuple[int, bytes]]) -> int:
    """Numbers of a vector of a file without a header: the commonest count of numbers at the end of its first lines.

    Not that of the first line alone, whose word may end in a number (`windows 95`); among equals the earliest.
    """
    counts: Counter[int] = Counter()
    for number, line in lines:
        fields = line.split()
        if len(fields) > WIDEST + LONGEST_WORD:
            raise InputError(f"{path}, line {number}: {len(fields) - 1:,} numbers, expected at most {WIDEST:,}")
        counts[sum(1 for _ in itertools.takewhile(_is_number, reversed(fields[1:])))] += 1
    width = counts.most_common(1)[0][0]
    if not width:
        number, line = lines[0]
        raise InputError(f"{path}, line {number}: {_shown(line)} is no word and its numbers{_commas(line)}")
    return width


def _commas(line: bytes) -> str:
    """What helps where numbers have commas, or commas stand between them."""
    if b"," not in line:
        return ""
    if all(map(_is_number, line.split(b",")[1:])):
        return ". Commas stand between them: write blanks or tabs"
    if all(map(_is_number, line.replace(b",", b".").split()[1:])):
        return ". The numbers have decimal commas: write points"
    return ""


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _row(path: str | os.PathLike, number: int, line: bytes, width: int) -> tuple[bytes, np.ndarray]:
    """The word, as its bytes, and the vector of a line."""
    where = f"{path}, line {number}"
    fields = line.rsplit(None, width)
    word = fields[0].strip(SPACES)
    if len(fields) == width and all(map(_is_number, fields)):  # the word itself is a blank, or there is none
        head = line[: len(line) - len(line.lstrip())]
        fields, word = [head, *fields], head[:-1]
    if len(fields) <= width or not word:
        told = len(line.split()) - 1
        raise InputError(
            f"{where}: {max(0, told)} numbers, expected {width} after the word, as before. Mend or drop the line"
        )
    if not all(map(_is_number, fields[1:])):
        wrong = next(field for field in fields[1:] if not _is_number(field))
        raise InputError(
            f"{where}: {_shown(wrong)} is no number, expected {width} numbers after the word{_commas(line)}"
        )
    with np.errstate(over="ignore"):
        return word, np.array([float(field) for field in fields[1:]]).astype(np.float32)


def _shown(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return repr(text) if text.replace("\t", " ").isprintable() else "what is no text"
