"""Schemes of labels for words, IOB1 to IOBES, and the spans that they make. numpy only.

Ramshaw and Marcus, 1995 (IOB1); Tjong Kim Sang and Veenstra, 1999 (IOB2, IOE1, IOE2).
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

OUTSIDE = "O"  # of no entity; also what a word gets that no token stands for
TAG = re.compile(r"([BIESLUM])(?:-(.+))?")
SAME = {"L": "E", "U": "S", "M": "I"}  # BILOU and BMES are IOBES by other letters
SCHEMES = {  # letters before which a span of their type must be going on; letters behind which it must go on
    "IOBES": ("IE", "BI"),  # BILOU, BMES
    "IOBE": ("IE", ""),  # a word by itself is B
    "IOB2": ("I", ""),  # BIO: every span begins with B
    "IOB1": ("B", ""),  # of the files of CoNLL-2003: B alone where another span of its type ends
    "IOE2": ("", "I"),  # every span ends with E
    "IOE1": ("", "E"),  # E alone where another span of its type begins
    "IO": ("", ""),
    "": ("IE", ""),  # not known
}
MISTAKES = 0.05  # of the labels of spans, that files may have


def has_spans(labels: Iterable[str]) -> bool:
    """Whether labels are of BIO or IOBES (BILOU, BMES) and not names by themselves, such as parts of speech.

    >>> has_spans(["O", "B-PER", "I-PER"]), has_spans(["DET", "NOUN"]), has_spans(["B", "I", "O"])
    (True, False, True)
    """
    others = [label for label in labels if label != OUTSIDE]
    return bool(others) and all(TAG.fullmatch(label) for label in others)


def entities_of(labels: Iterable[str]) -> list[tuple[str, int, int]]:
    """Type, first and last word of each span, by the rules of conlleval (Tjong Kim Sang and Buchholz, 2000).

    They mend what is not legal: a span begins where its type changes or something inside follows nothing.

    >>> entities_of(["I-PER", "I-PER", "O", "B-LOC", "I-ORG"])
    [('PER', 0, 1), ('LOC', 3, 3), ('ORG', 4, 4)]
    """
    spans, begun, before, kind = [], 0, OUTSIDE, ""
    for place, label in enumerate([*labels, OUTSIDE]):
        now, new = split_tag(label)
        if ends_span(before, now, kind == new):
            spans.append((kind, begun, place - 1))
        if begins_span(before, now, kind == new):
            begun = place
        before, kind = now, new
    return spans


def ends_span(before: str, now: str, same: bool) -> bool:
    """Whether a span ends between two labels; `same`: they are of one type."""
    return before != OUTSIDE and (before in "ES" or now in "BSO" or not same)


def begins_span(before: str, now: str, same: bool) -> bool:
    """Whether a span begins with the second of two labels."""
    return now != OUTSIDE and (now in "BS" or before in "ESO" or not same)


def illegal(labels: Sequence[str], scheme: str = "") -> np.ndarray:
    """bool [L + 2, L], as a table of `answers.crf`: pairs of neighbours that break a scheme, then first and last labels.

    Args:
        scheme: a name of SCHEMES; "" for what every scheme with a B allows, that nothing inside continues what is not there.
    """
    tags = [split_tag(label) for label in (*labels, OUTSIDE)]
    before, after = SCHEMES[scheme]
    there = has_spans(labels)  # names by themselves, such as INTJ, have no scheme

    def broken(one: tuple[str, str], two: tuple[str, str]) -> bool:
        same = one[1] == two[1] and OUTSIDE not in (one[0], two[0])
        return (two[0] in before and not (same and one[0] in "BI")) or (
            one[0] in after and not (same and two[0] in "IE")
        )

    table = np.array([[there and broken(one, two) for two in tags] for one in tags])
    return np.concatenate([table[:, :-1], table[:-1, -1][None]])


def mended(labels: Sequence[str], scheme: str = "") -> int:
    """How many places of a sequence break a scheme, so that the rules of conlleval mend them.

    >>> mended(["I-PER", "O", "B-LOC", "I-LOC", "I-ORG"]), mended(["I-PER", "O", "B-LOC"], "IOB1")
    (2, 1)
    """
    names = sorted(set(labels))
    numbers = [names.index(label) for label in labels]
    wrong = illegal(names, scheme)
    inner = wrong[numbers[:-1], numbers[1:]].sum()
    return int(inner + wrong[-2, numbers[0]] + wrong[-1, numbers[-1]]) if labels else 0


def scheme_of(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme that sequences of labels are in; "" where they are not of spans.

    The first of those that have these letters which at most a twentieth of the labels break (files have mistakes), else IO.

    >>> scheme_of([["I-PER", "O", "I-LOC", "B-LOC"]]), scheme_of([["B-PER", "I-PER", "O"]]), scheme_of([["B-X", "E-X", "S-X"]])
    ('IOB1', 'IOB2', 'IOBES')
    """
    sequences = [tuple(labels) for labels in sequences]
    names = sorted({label for labels in sequences for label in labels})
    if not has_spans(names):
        return ""
    number, count = {name: i for i, name in enumerate(names)}, len(names)
    pairs = np.zeros((count + 2, count))
    for labels in filter(None, sequences):
        numbers = [number[label] for label in labels]
        np.add.at(pairs, ([count, *numbers[:-1]], numbers), 1)
        pairs[-1, numbers[-1]] += 1
    inside = [name != OUTSIDE for name in names]
    spans = pairs[:-1, inside].sum()  # every label stands behind another, or first
    for scheme in _candidates({split_tag(name)[0] for name in names}):
        if (pairs * illegal(names, scheme)).sum() <= MISTAKES * spans:
            return scheme
    return "IO"


def _candidates(letters: set[str]) -> tuple[str, ...]:
    """The schemes that have such letters, the strictest first."""
    if "S" in letters or {"B", "E"} <= letters:
        return "IOBES", "IOBE"
    return ("IOB2", "IOB1") if "B" in letters else ("IOE2", "IOE1") if "E" in letters else ("IO",)


def split_tag(label: str) -> tuple[str, str]:
    """B, I, E, S or O, and the type."""
    tag, kind = label[:1], label[1:].removeprefix("-")
    return SAME.get(tag, tag), kind or "_"
