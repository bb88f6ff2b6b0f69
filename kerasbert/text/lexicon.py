"""Names in a text: forward maximum matching, over a set of entries or over a sorted list. Standard library only.

Matching is exact, on the raw text; where a tokenizer drops case or accents, without these (`folding`). Where words are written
with blanks, a name never begins or ends inside a word.
"""

import array
import itertools
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.text.normalize import TABLES, Normalizer, inside

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer

FIRST_WITHOUT_BLANKS = 0xE00
"""Thai and most of what follows it in Unicode: Lao, Khmer, kana, ideographs (and Hangul, where endings join words)."""
LEAST = 2  # characters of a name

Spans = Sequence[tuple[int, int]]


class Lexicon:
    """Forward maximum matching: at each character the longest entry that begins there, then on behind it.

    A file has an entry a line, UTF-8. Columns after a tab are ignored, and behind a Chinese word those after a blank too
    (frequencies, as in jieba's dictionary). Entries of one character are left out.

    >>> Lexicon(["研究", "研究生", "生命", "New York"])("研究生命 in New York")
    [(0, 3), (8, 16)]
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = {entry for entry in entries if len(entry) >= LEAST}
        lengths: dict[str, set[int]] = {}
        for entry in self.entries:
            lengths.setdefault(entry[0], set()).add(len(entry))
        self.lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Lexicon":
        """The lexicon of a file.

        Raises:
            InputError: a file that is not UTF-8, or without an entry of two characters.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the lexicon {path}: {error}. Expected UTF-8, an entry a line") from error
        entries = [line.partition("\t")[0].strip() for line in lines]
        made = cls([entry.split()[0] if entry and _without_blanks(entry[0]) else entry for entry in entries])
        if not made.entries:
            raise InputError(f"the lexicon {path} has no entry of two characters or more, expected one a line")
        return made

    def __call__(self, text: str) -> Spans:
        found, place, size = [], 0, len(text)
        while place < size:
            next_place = place + 1
            for length in self.lengths.get(text[place], ()):
                end = place + length
                if end <= size and text[place:end] in self.entries and apart(text, place, end):
                    found.append((place, end))
                    next_place = end
                    break
            place = next_place
        return found


class Strings(Sequence[str]):
    """Many strings in one piece of memory, each made when it is asked for.

    Args:
        content: bytes, UTF-8, one after the other. ends: of each the byte behind it.

    >>> some = Strings.of(["New York", "生命"])
    >>> len(some), some[1], list(some)
    (2, '生命', ['New York', '生命'])
    """

    def __init__(self, content: bytes | memoryview, ends: Sequence[int]) -> None:
        self.content, self.ends = content, ends

    @classmethod
    def of(cls, strings: Iterable[str]) -> "Strings":
        """These strings."""
        parts = [string.encode() for string in strings]
        return cls(b"".join(parts), array.array("I", itertools.accumulate(map(len, parts))))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> str:
        return str(self.content[self.ends[number - 1] if number else 0 : self.ends[number]], "utf-8")


class SortedLexicon:
    """Forward maximum matching over sorted entries, which it takes as they are: ready at once, however many there are.

    The entries that begin with a character are put into a table when a text first holds it.

    Args:
        entries: str, ascending by code points, each once, of LEAST characters or more: a list, or `Strings`.
        folded: code point -> code point, of entries and texts before they are compared (`folding`). The number of several
            entries that are the same then is that of the first.

    >>> SortedLexicon(["New York", "生命", "研究", "研究生"])("研究生命 in New York")
    [(0, 3, 3), (8, 16, 0)]
    """

    def __init__(self, entries: Sequence[str], folded: Mapping[int, int] | None = None) -> None:
        self.entries, self.folded = entries, folded or {}
        self._sources: dict[str, list[str]] = {}  # character -> those that are folded to it
        for source, target in self.folded.items():
            self._sources.setdefault(chr(target), []).append(chr(source))
        # first character -> lengths, entry -> numbers
        self._known: dict[str, tuple[list[int], dict[str, list[int]]]] = {}

    def __call__(self, text: str) -> list[tuple[int, int, int]]:
        """(begin, end, number of the entry) of each name in a text."""
        found, place, size, known = [], 0, len(text), self._known
        text = text.translate(self.folded) if self.folded else text  # which keeps letters letters
        while place < size:
            first, next_place = text[place], place + 1
            lengths, numbers = known[first] if first in known else self._beginning(first)
            for length in lengths:
                end = place + length
                if end <= size and text[place:end] in numbers and apart(text, place, end):
                    found.append((place, end, numbers[text[place:end]][0]))
                    next_place = end
                    break
            place = next_place
        return found

    def alike(self, number: int) -> list[int]:
        """The entries that are folded to the same as this one, itself among them."""
        if not self.folded:
            return [number]
        entry = self.entries[number].translate(self.folded)
        numbers = (self._known.get(entry[:1]) or self._beginning(entry[:1]))[1]
        return numbers.get(entry, [number])

    def _beginning(self, first: str) -> tuple[list[int], dict[str, list[int]]]:
        numbers: dict[str, list[int]] = {}
        for source in sorted([first, *self._sources.get(first, ())]):
            for number in range(bisect_left(self.entries, source), len(self.entries)):
                entry = self.entries[number]
                if not entry.startswith(source):
                    break
                if len(entry) >= LEAST:
                    numbers.setdefault(entry.translate(self.folded), []).append(number)
        self._known[first] = found = sorted({len(entry) for entry in numbers}, reverse=True), numbers
        return found


def apart(text: str, begin: int, end: int) -> bool:
    """Whether a name neither begins nor ends inside a word that blanks set apart."""
    size, known = len(text), IN_WORD
    if 0 < begin < size and known[text[begin - 1]] and known[text[begin]]:
        return False
    return not (0 < end < size and known[text[end - 1]] and known[text[end]])


def folding(tokenizer: "Tokenizer") -> dict[int, int]:
    """What a tokenizer makes of single characters: the lower case of each, and each without its accent, where it does that.

    Of code points, but for those that become several or none.
    """
    normal = Normalizer(_drops(tokenizer, "lowercase", "Aa"), _drops(tokenizer, "strip_accents", "\u00e9e"), False)
    if not (normal.lowercase or normal.strip_accents):
        return {}
    codes = {*range(ord("A"), ord("Z") + 1), *TABLES.lower, *(TABLES.strip if normal.strip_accents else ())}
    pairs = ((code, normal[chr(code)]) for code in sorted(codes))
    return {code: ord(text) for code, text in pairs if len(text) == 1 and text not in (" ", chr(code))}


def _drops(tokenizer: "Tokenizer", flag: str, pair: str) -> bool:
    """Whether a tokenizer drops case or accents: by its own word for it, else by the tokens of two letters."""
    one, other = (tokenizer.encode(each) for each in pair)
    return getattr(tokenizer, flag, one == other and bool(one) and getattr(tokenizer, "unk_id", None) not in one)


def _without_blanks(character: str) -> bool:
    return character >= chr(FIRST_WITHOUT_BLANKS)


class _InWord(dict):
    """Character -> whether it is a letter or a digit of a script with blanks; filled on demand, by the pinned tables."""

    def __missing__(self, character: str) -> bool:
        code = ord(character)
        found = code < FIRST_WITHOUT_BLANKS and (inside(code, TABLES.letters) or inside(code, TABLES.numbers))
        self[character] = found
        return found


IN_WORD = _InWord()
