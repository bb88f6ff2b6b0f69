"""What tokenizers share whose tokens are whole words, each a row of the vocabulary. Standard library only."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from kerasbert.errors import InputError
from kerasbert.text.base import Tokenizer


class WholeWords(Tokenizer):
    """A tokenizer of words, whose only setting is its vocabulary.

    Args:
        vocabulary: words by id.
    Raises:
        InputError: a special token is missing, a word occurs twice or holds a blank.
    """

    about: tuple[dict[str, str], tuple[str, str]]  # special tokens by their part, templates
    lines = "words"  # what a vocabulary must hold, for the error

    def __init__(self, vocabulary: Iterable[str]) -> None:
        super().__init__(vocabulary, *self.about)
        blank = next((word for word in self.vocabulary if not word or word.split() != [word]), None)
        if blank is not None:
            raise InputError(f"the word {blank[:60]!r} is empty or holds a blank, expected {self.lines}")

    def settings(self) -> dict:
        """None but the vocabulary."""
        return {}

    def line(self, number: int, word: str) -> str:
        """A word in `vocab.txt`."""
        return word

    def save(self, directory: str | os.PathLike) -> None:
        """Write `tokenizer.json` and `vocab.txt`, a `line` for each word."""
        from kerasbert.storage.files import write_atomic, write_json

        lines = "".join(f"{self.line(number, word)}\n" for number, word in enumerate(self.vocabulary))
        write_atomic(Path(directory) / "vocab.txt", lines)
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": self.settings()})

    def renumbered(self, ids: Iterable[int]) -> Self:
        """The tokenizer with these words alone, in this order."""
        return type(self)([self.vocabulary[i] for i in ids])

    def extended(self, pieces: Sequence[str]) -> Self:
        """The tokenizer with further words behind its own, which no text gives unless its rule makes words of them."""
        return type(self)([*self.vocabulary, *pieces])

    def continues(self, token_id: int) -> bool:
        """No: every token is a word."""
        return False

    def spelling(self, token_id: int) -> bytes | None:
        """The word; None of padding and of a text's begin and end."""
        left_out = token_id in (self.pad_id, self.cls_id, self.sep_id)
        return None if left_out else self.vocabulary[token_id].encode()

    def decode(self, ids: Iterable[int]) -> str:
        """The words, a blank between them."""
        return self.joined(ids, b" ").decode()


def commonest(words: Iterable[str], specials: Sequence[str], size: int) -> list[str]:
    """Special tokens and the commonest of some words, equally common ones by the alphabet: at most `size`.

    Raises:
        InputError: no words.
    """
    counts = Counter(words)
    if not counts:
        raise InputError("the text holds no words. Give files with text")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [*specials, *(word for word, _ in ordered if word not in specials)][:size]
