"""Texts for a comparison, a calibration or a timing: of a file, one a line, or made of a vocabulary where nobody gave any."""

import os
import random
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError


def read(path: str | os.PathLike, pair: bool = False) -> list:
    """The texts of a file, see `split`; what is not UTF-8 becomes replacement characters.

    Raises:
        InputError: a file that cannot be read, a line that is not a pair.
    """
    try:
        content = Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Expected a file with one text a line") from error
    return split(content, pair, f"{path}: ")


def split(content: str, pair: bool = False, where: str = "") -> list:
    """The lines that are not empty; with `pair`, each as (text_a, text_b), split at its tab.

    Raises:
        InputError: a line that is not a pair; begins with `where`.
    """
    lines = [line for line in content.split("\n") if line.strip()]
    return [as_pair(line, f"{where}text {i + 1}") for i, line in enumerate(lines)] if pair else lines


def as_pair(line: str, what: str) -> tuple[str, str]:
    """text_a, tab, text_b -> both, and an empty line -> two empty texts; `what` is the line's name in an error."""
    row = line.split("\t") if line else ["", ""]
    if len(row) != 2:
        raise InputError(f"{what} has {len(row) - 1} tabs, expected 1: text_a, tab, text_b")
    return row[0], row[1]


def generated(tokenizer: Any, count: int, pair: bool = False, seed: int = 1, longest: int | None = None) -> list:
    """Texts (or pairs) of 1 to 40 random pieces of the vocabulary; the same ones every time.

    Args:
        longest: int, tokens that none has more of: random texts cannot tell how long real ones are.
    """
    draw = random.Random(seed)
    ordinary = set(range(tokenizer.size)).difference(tokenizer.special_ids)
    pieces = [tokenizer.decode([i]).strip() for i in sorted(ordinary)]
    words = [piece for piece in pieces if piece.isalpha()] or pieces or ["a"]

    def text() -> list[str]:
        return [draw.choice(words) for _ in range(draw.randint(1, 40))]

    made = [(text(), text()) if pair else (text(),) for _ in range(count)]
    for parts in made:
        while longest and any(parts) and len(tokenizer.pack(*map(" ".join, parts))[0]) > longest:
            max(parts, key=len).pop()
    return [tuple(map(" ".join, parts)) if pair else " ".join(parts[0]) for parts in made]
