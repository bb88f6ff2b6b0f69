r"""MediaPipe's `regex` tokenizer in pure Python: words are what [^\w\']+ leaves, each a row of the vocabulary."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.text.base import Tokenizer
from kerasbert.text.split import WORD

PAD, START, UNKNOWN = "<PAD>", "<START>", "<UNKNOWN>"
SPECIALS = {"pad": PAD, "unk": UNKNOWN, "cls": START, "sep": START}
TEMPLATE = (f"{START} $A", f"{START} $A {START} $B")


class RegexWords(Tokenizer):
    r"""Whole words, as MediaPipe's TextClassifier reads them (measured with 1.2.2).

    A word is a run of ASCII letters, digits, _ and '; everything else parts words, letters with accents too. Nothing is
    lower-cased. A text begins with <START>; a word without a row is <UNKNOWN>.

    Args:
        vocabulary: words by id; holds <PAD>, <START> and <UNKNOWN>.
    Raises:
        InputError: a special token is missing, a word occurs twice or holds a blank.

    >>> tokenizer = RegexWords([PAD, START, UNKNOWN, "terribl", "film", "don't"])
    >>> tokenizer.pack("terriblé film, don't Film")[0]
    [1, 3, 4, 5, 2]
    """

    kind = "regex"

    def __init__(self, vocabulary: Iterable[str]):
        super().__init__(vocabulary, SPECIALS, TEMPLATE)
        blank = next((word for word in self.vocabulary if not word or word.split() != [word]), None)
        if blank is not None:
            raise InputError(f"the word {blank[:60]!r} is empty or holds a blank, expected words of [\\w'] alone")

    def settings(self) -> dict:
        """None but the vocabulary."""
        return {}

    def save(self, directory: str | os.PathLike) -> None:
        """Write `tokenizer.json` and `vocab.txt`, whose lines are MediaPipe's: `word id`."""
        from kerasbert.storage.files import write_atomic, write_json

        lines = "".join(f"{word} {number}\n" for number, word in enumerate(self.vocabulary))
        write_atomic(Path(directory) / "vocab.txt", lines)
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": self.settings()})

    def renumbered(self, ids: Iterable[int]) -> "RegexWords":
        """The tokenizer with these words alone, in this order."""
        return RegexWords([self.vocabulary[i] for i in ids])

    def extended(self, pieces: Sequence[str]) -> "RegexWords":
        """The tokenizer with further words behind its own, which no text gives unless they are words."""
        return RegexWords([*self.vocabulary, *pieces])

    def continues(self, token_id: int) -> bool:
        """No: every token is a word."""
        return False

    def spelling(self, token_id: int) -> bytes | None:
        """The word; None of padding and <START>."""
        return None if token_id in (self.pad_id, self.cls_id) else self.vocabulary[token_id].encode()

    def decode(self, ids: Iterable[int]) -> str:
        """The words, a blank between them."""
        return self.joined(ids, b" ").decode()

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text."""
        ids, unknown = self._ids, self.unk_id
        return [ids.get(word, unknown) for word in WORD.findall(text)]

    def tokenize_plain(self, text: str, first: bool) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text."""
        spans = [match.span() for match in WORD.finditer(text)]
        return self.encode_plain(text), [start for start, _ in spans], [end for _, end in spans]


def read_vocabulary(text: str, file: object) -> list[str]:
    """The words of a `vocab.txt`: `word id` a line, the ids 0, 1, ... in any order.

    Raises:
        InputError: a line of another form, an id that is missing or occurs twice; file and line.
    """
    words: dict[int, str] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        word, blank, spelled = line.rpartition(" ")
        if not blank or not (spelled.isascii() and spelled.isdecimal() and len(spelled) < 10) or int(spelled) in words:
            raise InputError(f"{file}, line {number}: {line[:60]!r} is not a word, a blank and an id of its own")
        words[int(spelled)] = word
    if set(words) != set(range(len(words))):
        raise InputError(f"{file}: {len(words)} ids up to {max(words)}, expected each from 0 on once")
    return [words[number] for number in range(len(words))]


def train_regex(text: Iterable[str], size: int, *, lowercase: bool = False) -> RegexWords:
    """The commonest words of a text, equal ones by the alphabet.

    Args:
        text: lines.
        size: int, words at most, the special ones among them.
        lowercase: bool; must be False: nothing lower-cases a text for MediaPipe.

    Raises:
        InputError: lowercase, a size too small, no words.
    """
    if lowercase:
        raise InputError("--lowercase with --kind regex, which reads a text as it is: leave it out")
    if size < 4:
        raise InputError(f"size is {size}, expected at least 4: <PAD>, <START>, <UNKNOWN> and words")
    counts = Counter[str]()
    for line in text:
        counts.update(WORD.findall(line))
    if not counts:
        raise InputError("the text holds no words. Give files with text")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return RegexWords([PAD, START, UNKNOWN, *(word for word, _ in ordered[: size - 3])])
