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
    if not pair:
        return lines
    rows = [tuple(line.split("\t")) for line in lines]
    wrong = next((i for i, row in enumerate(rows) if len(row) != 2), None)
    if wrong is not None:
        raise InputError(f"{where}text {wrong + 1} has {len(rows[wrong]) - 1} tabs, expected 1: text_a, tab, text_b")
    return rows


def generated(tokenizer: Any, count: int, pair: bool = False, seed: int = 1) -> list:
    """Texts (or pairs) of 1 to 40 random pieces of the vocabulary; the same ones every time."""
    draw = random.Random(seed)
    ordinary = set(range(tokenizer.size)).difference(tokenizer.special_ids)
    pieces = [tokenizer.decode([i]).strip() for i in sorted(ordinary)]
    words = [piece for piece in pieces if piece.isalpha()] or pieces or ["a"]

    def text() -> str:
        return " ".join(draw.choice(words) for _ in range(draw.randint(1, 40)))

    return [(text(), text()) if pair else text() for _ in range(count)]
