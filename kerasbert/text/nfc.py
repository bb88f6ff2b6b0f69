"""NFC (Unicode Standard Annex 15) as Hugging Face's normaliser computes it, whatever Python's Unicode. Standard library only.

Its tables are Unicode 9's: what later versions added is left alone. Characters of before keep their forms in every version.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator

from kerasbert.text.normalize import TABLES

RANGES = (
    (0xC0, 0x3100),
    (0xAC00, 0xD7A4),
    (0xF900, 0xFB50),
    (0x11000, 0x11800),
    (0x1D100, 0x1D200),
    (0x2F800, 0x2FA1E),
)
# compositions of after Unicode 9
LATER = {0x11938, 0x113C5, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113C7, 0x113C8, *range(0x1611E, 0x16129)}
STABLE = 0x300  # below nothing changes
Parts = tuple[int, ...]


@functools.cache
def decompositions() -> dict[int, Parts]:
    """Code point -> what it is made of, where that is another text (NFD of one character)."""
    found = {}
    for code in itertools.chain.from_iterable(itertools.starmap(range, RANGES)):
        text = unicodedata.normalize("NFD", chr(code))
        if text != chr(code) and code not in LATER:
            found[code] = tuple(map(ord, text))
    return found


@functools.cache
def compositions() -> dict[tuple[int, int], int]:
    """Two code points -> the one that stands for both."""
    found = {}
    for code, parts in decompositions().items():
        if unicodedata.normalize("NFC", chr(code)) != chr(code):
            continue  # a singleton, or excluded
        first = unicodedata.normalize("NFC", "".join(map(chr, parts[:-1])))
        found[ord(first), parts[-1]] = code
    return found


@functools.cache
def joining() -> frozenset[int]:
    """Code points that may change with what is before them: marks, and what a composition takes in."""
    return frozenset([*TABLES.classes, *(second for _, second in compositions())])


@functools.cache
def _clusters() -> re.Pattern:
    """A character and what joins it."""
    joins = "".join(map(re.escape, map(chr, sorted(joining()))))
    return re.compile(f"(?s).[{joins}]*")


def composed(text: str) -> str:
    r"""A text in NFC.

    >>> composed("e\u0301\u0323"), composed("\u1100\u1161\u11a8")
    ('ẹ́', '각')
    """
    return text if unicodedata.is_normalized("NFC", text) else "".join(new for _, new in _pieces(text))


def placed(text: str) -> tuple[str, list[int], list[int]]:
    """A text in NFC, and where each of its characters begins and ends in it: those that change together, as one place."""
    form, starts, ends, at = [], [], [], 0
    for old, new in _pieces(text):
        form.append(new)
        end = at + len(old)
        if old == new:
            starts += range(at, end)
            ends += range(at + 1, end + 1)
        else:
            starts += [at] * len(new)
            ends += [end] * len(new)
        at = end
    return "".join(form), starts, ends


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """(part of a text, the same in NFC)."""
    for cluster in _clusters().findall(text):
        plain = len(cluster) == 1 and ord(cluster) < STABLE
        yield cluster, cluster if plain else "".join(map(chr, _compose(_ordered([*map(ord, cluster)]))))


def _ordered(codes: list[int]) -> list[int]:
    """Decomposed, runs of marks by their classes."""
    apart, classes = decompositions(), TABLES.classes
    parts = [part for code in codes for part in apart.get(code, (code,))]
    run = itertools.accumulate(classes.get(part, 0) == 0 for part in parts)
    order = sorted(zip(run, parts), key=lambda item: (item[0], classes.get(item[1], 0)))
    return [part for _, part in order]


def _compose(codes: list[int]) -> list[int]:
    """Each mark with the last character before its run, unless one of its class or above stands between."""
    pairs, classes = compositions(), TABLES.classes
    out: list[int] = []
    starter, last = -1, -1  # where the character stands; the class of what is behind it
    for code in codes:
        number = classes.get(code, 0)
        new = pairs.get((out[starter], code)) if starter >= 0 and last < number else None
        if new is not None:
            out[starter] = new
            continue
        if number == 0:
            starter, last = len(out), -1
        else:
            last = number
        out.append(code)
    return out
