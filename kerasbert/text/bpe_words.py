r"""The words within which byte-level BPE merges: the expressions that tokenizer.json files hold, by name. Standard library."""

import functools
import re
from typing import NamedTuple

from kerasbert.errors import unknown
from kerasbert.text.normalize import TABLES

BLANK_END = r"|\s+(?!\S)|\s+"


class Split(NamedTuple):
    """An expression for words.

    Attributes:
        expression: str, as tokenizer.json writes it.
        digits: int, most digits of a word; 0: any number of them, with a blank before them.
    """

    expression: str
    digits: int


def _tiktoken(digits: int, number: str) -> Split:
    """OpenAI's cl100k as Hugging Face's files write it."""
    return Split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + number
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        + BLANK_END,
        digits,
    )


SPLITS = {
    "gpt2": Split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+" + BLANK_END, 0),
    "llama3": _tiktoken(3, r"\p{N}{1,3}"),
    "qwen2": _tiktoken(1, r"\p{N}"),
}


def checked(name: object) -> str:
    """The name of a split.

    Raises:
        InputError: no such split.
    """
    if not isinstance(name, str) or name not in SPLITS:
        raise unknown("split", str(name)[:60], SPLITS, ", ".join(SPLITS))
    return name


def named(expression: object) -> str | None:
    """The split of an expression; None where none has it.

    >>> named(SPLITS["llama3"].expression), named(".*")
    ('llama3', None)
    """
    return next((name for name, split in SPLITS.items() if split.expression == expression), None)


def split_words(text: str, name: str = "gpt2") -> list[str]:
    """Words of a split's expression; joined they are the text.

    >>> split_words("It's 12345 o'clock"), split_words("IT'S 12345", "llama3")
    (['It', "'s", ' 12345', ' o', "'", 'clock'], ['IT', "'S", ' ', '123', '45'])
    """
    return patterns(text, name)[0].findall(text)


def patterns(text: str, name: str) -> tuple[re.Pattern, re.Pattern]:
    """The expressions for words and for blanks of a text."""
    return _expressions(name, 0x80 if text.isascii() else 0x110000)


@functools.cache
def _expressions(name: str, last: int) -> tuple[re.Pattern, re.Pattern]:
    """The expressions for text with code points below `last`; classes are those of the tables, not of Python's Unicode."""

    def members(bounds: list[int]) -> str:
        pairs = zip(bounds[::2], bounds[1::2])
        return "".join(f"\\U{first:08x}-\\U{min(end, last) - 1:08x}" for first, end in pairs if first < last)

    letter, number, blank = (members(bounds) for bounds in (TABLES.letters, TABLES.numbers, TABLES.blanks))
    digits = SPLITS[name].digits
    if digits == 0:
        words = f"'(?:[stmd]|re|ve|ll)| ?[{letter}]+| ?[{number}]+| ?[^{blank}{letter}{number}]+"
    else:
        words = (
            f"'(?:[sStTmMdD\u017f]|[rR][eE]|[vV][eE]|[lL][lL])|[^\\r\\n{letter}{number}]?[{letter}]+|[{number}]{{1,{digits}}}"
            f"| ?[^{blank}{letter}{number}]+[\\r\\n]*|[{blank}]*[\\r\\n]+"
        )
    return re.compile(f"{words}|[{blank}]+(?![^{blank}])|[{blank}]+"), re.compile(f"[{blank}]")
