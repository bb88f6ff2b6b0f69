"""Texts made of a vocabulary, for a comparison or a timing where nobody gave any."""

import random
from typing import Any


def generated(tokenizer: Any, count: int, pair: bool = False, seed: int = 1) -> list:
    """Texts (or pairs) of 1 to 40 random pieces of the vocabulary; the same ones every time."""
    draw = random.Random(seed)
    ordinary = set(range(tokenizer.size)).difference(tokenizer.special_ids)
    pieces = [tokenizer.decode([i]).strip() for i in sorted(ordinary)]
    words = [piece for piece in pieces if piece.isalpha()] or pieces or ["a"]

    def text() -> str:
        return " ".join(draw.choice(words) for _ in range(draw.randint(1, 40)))

    return [(text(), text()) if pair else text() for _ in range(count)]
