"""Texts that hold nothing to read, and values that are no text: one rule everywhere. Standard library only."""

import unicodedata
from collections.abc import Sequence
from typing import Any

RE2 = r"[\p{Z}\p{Cc}\p{Cf}]*"
"""The regular expression of a graph that matches the same texts whole."""


def blank(text: Any) -> bool:
    r"""Whether a text, or all parts of an input, hold nothing to read: white space, control and format characters alone.

    The one rule for them: a command answers no such text (an empty line, in json null, and a line on stderr that counts them);
    `kb.predict`, a SavedModel and the phone's Runner answer it alike, from the special tokens alone, of a tokenizer without
    them from one padding token. A kind that needs a text (fill-mask its mask, a generation its source) refuses it.

    >>> [blank(text) for text in ("", " \n", "\u200b", ("", "\t"), ("", "x"), "\u0301", "\ue000")]
    [True, True, True, True, False, False, False]
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if not isinstance(text, str):
        return all(map(blank, text))
    return all(unicodedata.category(each) in ("Zs", "Zl", "Zp", "Cc", "Cf") for each in text)


def one_line(text: str) -> str:
    r"""A text or an answer as one line of a command's output, whatever line breaks it holds.

    >>> one_line("first\r\nsecond\n")
    'first second'
    """
    return " ".join(text.splitlines())


def nothing_to_read(numbers: Sequence[int], count: int) -> str:
    """What a command says of blank texts.

    Args:
        numbers: of them, from 1. count: of all texts.
    """
    told = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} of {count} texts hold nothing to read and have no answer: {told}"


def absent(value: object) -> bool:
    """Whether a value is one that is not there: None, NaN, pandas' NA and NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )
