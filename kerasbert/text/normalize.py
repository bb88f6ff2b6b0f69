"""Text -> words, exactly as Hugging Face's BertNormalizer and BertPreTokenizer do it (clean_text on), standard library only.

Every step works on single code points - drop control characters, set CJK ideographs apart, decompose and drop marks,
lower-case, set punctuation apart - so that one table says what becomes of a character. The exception: NFD sorts
combining characters, which shows only where one of them is no mark (83 such characters, `movable`).
`tables.py` is pinned to Hugging Face's own tables: results do not depend on Python's Unicode version.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kerasbert.inputs import Tensor
from kerasbert.text import tables

WORD = re.compile("[^ ]+")
PLAIN = re.compile("[0-9A-Za-z]+|[!-~]")  # a word of ASCII without control characters: a sign is one by itself


def parse_ranges(text: str) -> list[int]:
    """`a-b c` -> [a, b + 1, c, c + 1]."""
    bounds = []
    for item in text.split():
        first, _, last = item.partition("-")
        bounds += int(first, 16), int(last or first, 16) + 1
    return bounds


def _groups(text: str) -> Iterator[tuple[str, int]]:
    """`t<a,b-c` -> (t, a), (t, b), ..., (t, c)."""
    for item in text.split():
        target, _, sources = item.partition("<")
        for source in sources.split(","):
            first, _, last = source.partition("-")
            for code in range(int(first, 16), int(last or first, 16) + 1):
                yield target, code


def _lower(text: str) -> dict[int, int]:
    """`a-b/s+d` -> {a: a + d, a + s: a + s + d, ...}."""
    lower = {}
    for first, last, step, distance in re.findall(r"(\w+)-(\w+)/(\d)([+-]\w+)", text):
        for code in range(int(first, 16), int(last, 16) + 1, int(step)):
            lower[code] = code + int(distance, 16)
    return lower


class Tables:
    """tables.py, each table parsed when first needed: ASCII text needs three small ones.

    A range table is a sorted list of bounds: a code point is inside where bisect_right is odd.
    """

    drop = functools.cached_property(lambda self: parse_ranges(tables.DROP))
    space = functools.cached_property(lambda self: parse_ranges(tables.SPACE))
    cjk = functools.cached_property(lambda self: parse_ranges(tables.CJK))
    punctuation = functools.cached_property(lambda self: parse_ranges(tables.PUNCTUATION))
    marks = functools.cached_property(lambda self: parse_ranges(tables.MARKS))
    letters = functools.cached_property(lambda self: parse_ranges(tables.LETTERS))
    numbers = functools.cached_property(lambda self: parse_ranges(tables.NUMBERS))
    blanks = functools.cached_property(lambda self: parse_ranges(tables.BLANKS))
    words = functools.cached_property(lambda self: parse_ranges(tables.WORDS))

    @functools.cached_property
    def classes(self) -> dict[int, int]:
        """Canonical combining class, where it is not 0."""
        return {code: int(number, 16) for number, code in _groups(tables.CLASSES)}

    @functools.cached_property
    def lower(self) -> dict[int, int]:
        """Lower-case form; without U+0130, the one character with two."""
        return _lower(tables.LOWER)

    @functools.cached_property
    def strip(self) -> dict[int, str]:
        """What NFD without marks leaves; Hangul syllables and the marks themselves are not listed."""
        return {code: "".join(chr(int(c, 16)) for c in text.split("+")) for text, code in _groups(tables.STRIP)}


TABLES = Tables()


def inside(code: int, bounds: list[int]) -> bool:
    """Whether a code point lies in a range table."""
    return bisect_right(bounds, code) % 2 == 1


HANGUL = (0xAC00, 0xD7A4)  # the syllables: the first and the one after the last


def hangul(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The letters of the n-th Hangul syllable, the third 0 where there are two (Unicode standard, section 3.12)."""
    last = index % 28
    return 0x1100 + index // 588, 0x1161 + index % 588 // 28, (0x11A7 + last) * (last > 0)


class Normalizer(dict):
    r"""Character -> what becomes of it: "" (dropped), " ", letters, or " x " for a word of its own. Filled on demand.

    Args:
        lowercase: bool, lower-case each character (no final sigma, as in Hugging Face's).
        strip_accents: bool, decompose (NFD) and drop marks.
        split_cjk: bool, every CJK ideograph is a word.

    >>> n = Normalizer(lowercase=True, strip_accents=True, split_cjk=True)
    >>> n["É"], n["!"], n["中"], n["\x00"]
    ('e', ' ! ', ' 中 ', '')
    """

    def __init__(self, lowercase: bool, strip_accents: bool, split_cjk: bool) -> None:
        self.lowercase, self.strip_accents, self.split_cjk = lowercase, strip_accents, split_cjk

    def __missing__(self, character: str) -> str:
        self[character] = result = self._normal(ord(character))
        return result

    def _normal(self, code: int) -> str:
        if inside(code, TABLES.drop):
            return ""
        if inside(code, TABLES.space):
            return " "
        text = chr(code)
        if code < 128:
            text = text.lower() if self.lowercase else text
            return f" {text} " if inside(code, TABLES.punctuation) else text
        if self.strip_accents:
            if inside(code, TABLES.marks):
                return ""
            syllable = HANGUL[0] <= code < HANGUL[1]
            text = "".join(chr(c) for c in hangul(code - HANGUL[0]) if c) if syllable else TABLES.strip.get(code, text)
        if self.lowercase:
            # U+0130 is the one character that lower-cases to two
            text = "i\u0307" if text == "\u0130" else "".join(chr(TABLES.lower.get(ord(c), ord(c))) for c in text)
        if self.split_cjk and inside(code, TABLES.cjk):
            return f" {text} "
        return "".join(f" {c} " if inside(ord(c), TABLES.punctuation) else c for c in text)

    @functools.cached_property
    def movable(self) -> frozenset[str]:
        """Characters that NFD may move and that are then still there; empty where accents are kept."""
        if not self.strip_accents:
            return frozenset()
        classes = TABLES.classes
        kept = {chr(code) for code in classes if not inside(code, TABLES.marks)}
        longer = {chr(c) for c, text in TABLES.strip.items() if any(ord(x) in classes for x in text)}
        return frozenset(kept | longer)

    def words(self, text: str) -> Iterator[tuple[str, Sequence[int]]]:
        """Normalised words, each with the position in `text` of the character that each of its characters came from."""
        if (plain := self._plain(text)) is not None:
            for word in PLAIN.finditer(plain):
                yield word[0], range(*word.span())
            return
        parts, sources = self._parts(text)
        for word in WORD.finditer("".join(parts)):
            yield word[0], sources[word.start() : word.end()]

    def split(self, text: str) -> list[str]:
        """The same words alone."""
        if (plain := self._plain(text)) is not None:
            return PLAIN.findall(plain)
        parts = self._sorted(text)[0] if self._moves(text) else map(self.__getitem__, text)
        return WORD.findall("".join(parts))

    def _plain(self, text: str) -> str | None:
        """The normalised text where it is ASCII without control characters: as long as the text."""
        if not (text.isascii() and text.isprintable()):
            return None
        return text.lower() if self.lowercase else text

    def form(self, text: str) -> tuple[str, list[int]]:
        """The text as BertNormalizer leaves it, with blanks around ideographs but not around punctuation, and sources."""
        parts, sources = self._parts(text)
        form, places, at = [], [], 0
        for part in parts:
            places.append(sources[at : at + len(part)])
            at += len(part)
            if " " in part and part != " " and not (self.split_cjk and inside(ord(part[1]), TABLES.cjk)):
                part = part.replace(" ", "")
                places[-1] = places[-1][: len(part)]
            form.append(part)
        return "".join(form), [place for some in places for place in some]

    def _parts(self, text: str) -> tuple[list[str], list[int]]:
        """What becomes of each character, and the position that each character of the result came from."""
        if self._moves(text):
            return self._sorted(text)
        parts = [self[character] for character in text]
        return parts, [i for i, part in enumerate(parts) for _ in part]

    def _moves(self, text: str) -> bool:
        """Whether NFD may sort characters of a text."""
        return self.strip_accents and not text.isascii() and not self.movable.isdisjoint(text)

    def _sorted(self, text: str) -> tuple[list[str], list[int]]:
        """NFD's sorting of combining characters, with Hugging Face's alignment: by position, not by character."""
        marks, classes = TABLES.marks, TABLES.classes
        taken = []  # positions of the characters that cleaning leaves
        items = []  # (run, class, normal form, whether it takes a character of the text)
        run = 0
        for i, character in enumerate(text):
            part = self[character]
            if not part and not inside(ord(character), marks):
                continue
            taken.append(i)
            whole = not part or part[0] == " "  # a mark to be dropped, a space or a word of its own: one item
            for first, c in enumerate([part] if whole else part):
                number = classes.get(ord(c) if len(c) == 1 else ord(character), 0)
                run += number == 0
                items.append((run, number, c, first == 0))
        items.sort(key=lambda item: item[:2])
        parts, sources, count = [], [], 0
        for _, _, part, takes in items:
            count += takes
            parts.append(part)
            sources += [taken[count - 1]] * len(part)
        return parts, sources
