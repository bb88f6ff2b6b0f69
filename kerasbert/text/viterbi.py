"""The best path through a text by the scores of its pieces (Kudo, 2018, section 3.1), in two ways of rounding.

A path is told as where the best piece begins that ends at each place: `begins[len(text)]` is its last piece's.
"""

import math
import struct
from collections.abc import Mapping
from typing import Any

FLOAT = struct.Struct("f")


def float32(value: float) -> float:
    """The nearest float32."""
    return FLOAT.unpack(FLOAT.pack(value))[0]


def best(
    text: str, scores: Mapping[str, float], longest: Mapping[str, int], unknown: float
) -> tuple[list[int], float, float]:
    """The best path in double precision.

    Args:
        text: str, normalised.
        scores: of the pieces. longest: first character -> characters of the longest piece.
        unknown: float, score of a character without a piece.

    Returns:
        begins; the path's score; the smallest distance by which a piece on it beat another way to its end.
    """
    length, known = len(text), scores.get
    totals = [0.0] + [-math.inf] * length
    begins, gaps = [0] * (length + 1), [math.inf] * (length + 1)
    for begin in range(length):
        here, first = totals[begin], text[begin]
        for end in range(begin + 1, min(length, begin + longest.get(first, 0)) + 1):
            score = known(text[begin:end])
            if score is not None:
                score += here
                other = totals[end]
                if score > other:
                    totals[end], begins[end], gaps[end] = score, begin, score - other
                elif other - score < gaps[end]:
                    gaps[end] = other - score
        if first not in scores:
            end, score = begin + 1, unknown + here
            other = totals[end]
            if score > other:
                totals[end], begins[end], gaps[end] = score, begin, score - other
            elif other - score < gaps[end]:
                gaps[end] = other - score
    return begins, totals[length], min((gaps[end] for _, end in places(begins)), default=math.inf)


def as_sentencepiece(text: str, scores: Mapping[str, float], longest: Mapping[str, int], unknown: float) -> list[int]:
    """The path that sentencepiece finds, which adds up in float32. Arguments as of `best`.

    Candidates are compared before they are rounded, kept ones are rounded: so does sentencepiece 0.1 (and with it
    tensorflow-text); 0.2 rounds first, which decides differently between some paths of equal score.

    Returns:
        begins.
    """
    length, pack, unpack = len(text), FLOAT.pack, FLOAT.unpack
    totals: list[Any] = [0.0] + [None] * length
    begins = [0] * (length + 1)
    for begin in range(length):
        here, first = totals[begin], text[begin]
        for end in range(begin + 1, min(length, begin + longest.get(first, 0)) + 1):
            score = scores.get(text[begin:end])
            if score is None:
                continue
            candidate = score + here
            if totals[end] is None or candidate > totals[end]:
                totals[end], begins[end] = unpack(pack(candidate))[0], begin
        if first not in scores:
            end, candidate = begin + 1, unknown + here
            if totals[end] is None or candidate > totals[end]:
                totals[end], begins[end] = unpack(pack(candidate))[0], begin
    return begins


def places(begins: list[int]) -> list[tuple[int, int]]:
    """(begin, end) of the pieces on a path, from its first to its last.

    >>> places([0, 0, 0, 2])
    [(0, 2), (2, 3)]
    """
    found, end = [], len(begins) - 1
    while end > 0:
        found.append((begins[end], end))
        end = begins[end]
    return found[::-1]
