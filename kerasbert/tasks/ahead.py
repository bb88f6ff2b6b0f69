"""Texts of rows, tokenized some thousands ahead by TensorFlow's tokenizer: of long data pure Python would take longer.

A kind asks a tokenizer for one text after another. Here its `rows` are tried first for many texts, up to what they ask for;
that is tokenized together, and then the rows are made as ever, over a tokenizer that knows the answers. The ids are the same.
"""

import contextlib
import copy
import dataclasses
import importlib.util
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.registry import TOKENIZERS
from kerasbert.text.base import Tokenizer, Tokens, to_text

BUILT = 1.5  # seconds until a tokenizer's graph is there
LEAST = 2**15  # characters of a call: fewer are tokenized one by one
BLOCK, CHARACTERS = 4096, 2**20  # texts that are tokenized together, or fewer long ones
ANSWERS = 8  # of a text that are read ahead: its rows are tried so many times

Make = Callable[[Tokenizer, int], object]
Key = tuple[bool, str]  # whether characters are asked for, and of which text


class Unknown(BaseException):
    """What is asked for is not known yet; no kind may take it for an error of the text."""


@dataclasses.dataclass
class Spent:
    """What a tokenizer took one by one, in this process: CPU-seconds, characters; and the most answers that a text wanted."""

    seconds: float = 0.0
    characters: int = 0
    answers: int = 1


_spent: weakref.WeakKeyDictionary[Tokenizer, Spent] = weakref.WeakKeyDictionary()
# of the tokenizer that was last read ahead with, which a graph keeps alive: by whether characters are asked for
_graphs: dict[Tokenizer, dict[bool, Callable]] = {}


@contextlib.contextmanager
def tokenizing(
    tokenizer: Tokenizer, texts: Sequence[object], make: Make
) -> Iterator[tuple[Tokenizer, Callable[[int], None]]]:
    """A tokenizer for `make`, and what is told, in their order, the number of each text whose rows are made.

    Args:
        make: tokenizer, number of a text -> its rows; it may be called more than once for a text.
    """
    sizes = [_size(each) for each in texts]
    if sum(sizes) < LEAST or not _has_graph(tokenizer):
        yield tokenizer, lambda number: None
        return
    ahead = Ahead(tokenizer, sizes, make)
    try:
        yield ahead.tokenizer, ahead.to
    finally:
        del ahead.tokenizer.encode, ahead.tokenizer.tokenize  # they are its own again


class Ahead:
    """Answers as a tokenizer does.

    Args:
        sizes: characters of each text. make: as of `tokenizing`.
    """

    def __init__(self, tokenizer: Tokenizer, sizes: Sequence[int], make: Make) -> None:
        self.of, self.make, self.spent = tokenizer, make, _spent.setdefault(tokenizer, Spent())
        self.left = np.append(np.cumsum(sizes[::-1])[::-1], 0)  # characters from each text on
        self.tokenizer: Any = copy.copy(tokenizer)
        self.tokenizer.encode, self.tokenizer.tokenize = self.encode, self.tokenize
        self.at = self.end = 0  # the text whose rows are made, and the first one that was not read ahead
        self.tried = 0  # how often the rows of those that were have been tried
        self.wanted: set[Key] = set()  # by this text
        self.known: dict[Key, tuple[np.ndarray, ...]] = {}
        self.asked: dict[Key, None] | None = None  # while rows are tried

    def to(self, number: int) -> None:
        """The rows of this text are made next."""
        self.at, self.wanted = number, set()

    def encode(self, text: str | bytes) -> list[int]:
        text = to_text(text)
        found = self._find((False, text))
        return self._plain(self.of.encode, text) if found is None else found[0].tolist()

    def tokenize(self, text: str | bytes) -> Tokens:
        text = to_text(text)
        found = self._find((True, text))
        if found is None:
            return self._plain(self.of.tokenize, text)
        ids, starts, ends = (part.tolist() for part in found)
        return Tokens(ids, [self.of.vocabulary[i] for i in ids], starts, ends)

    def _find(self, key: Key) -> tuple[np.ndarray, ...] | None:
        if self.asked is not None:
            if key not in self.known:
                self.asked[key] = None
                raise Unknown
            return self.known[key]
        self.wanted.add(key)
        self.spent.answers = max(self.spent.answers, min(len(self.wanted), ANSWERS))
        if key not in self.known and (self.at >= self.end or self.tried < self.spent.answers) and self._pays():
            self._read()
        return self.known.get(key)

    def _plain(self, answer: Callable, text: str) -> Any:
        begun = time.thread_time()
        found = answer(text)
        self.spent.seconds += time.thread_time() - begun
        self.spent.characters += len(text)
        return found

    def _pays(self) -> bool:
        """Whether the graph is there, or one by one takes longer than making it: it already took, or the rest will."""
        if self.of in _graphs:
            return True
        seconds, characters = self.spent.seconds, self.spent.characters
        return characters >= LEAST and seconds * (1 + self.left[self.at] / max(1, characters)) >= BUILT

    def _read(self) -> None:
        """Tokenize what the rows of the next texts ask for."""
        # texts that begin within CHARACTERS
        whole = int((self.left[self.at :] > self.left[self.at] - CHARACTERS).sum())
        self.end = min(len(self.left) - 1, self.at + min(BLOCK, whole))
        self.known, waiting = {}, range(self.at, self.end)
        self.tried = self.spent.answers
        for _ in range(self.tried):
            self.asked = {}
            try:
                waiting = [number for number in waiting if self._asks(number)]
            finally:
                asked, self.asked = self.asked, None
            for offsets in (False, True):
                if texts := [text for other, text in asked if other == offsets]:
                    self._tokenize(texts, offsets)

    def _asks(self, number: int) -> bool:
        """Whether the rows of a text want what is not known."""
        try:
            self.make(self.tokenizer, number)
        except Unknown:
            return True
        except InputError:
            pass  # it is told when the rows are made in their turn
        return False

    def _tokenize(self, texts: list[str], offsets: bool) -> None:
        from kerasbert.text.graph import of_lists

        if self.of not in _graphs:
            _graphs.clear()
        graphs = _graphs.setdefault(self.of, {})
        if offsets not in graphs:
            graphs[offsets] = of_lists(self.of, offsets)
        ids, counts, *places = graphs[offsets](texts)
        ends = np.cumsum(counts)
        for text, begin, end in zip(texts, (ends - counts).tolist(), ends.tolist()):
            self.known[offsets, text] = tuple(part[begin:end] for part in (ids, *places))


def _size(part: object) -> int:
    """Characters of a text or of its parts."""
    if isinstance(part, str | bytes):
        return len(part)
    return sum(map(_size, part)) if isinstance(part, list | tuple) else 0


def _has_graph(tokenizer: Tokenizer) -> bool:
    """Whether TensorFlow is there already, with a form of such a tokenizer that answers as it does."""
    kind = TOKENIZERS.get(tokenizer.kind)
    own = tokenizer.knowledge is None and not tokenizer.spelled and kind is not None and kind.graph is not None
    return own and "tensorflow" in sys.modules and importlib.util.find_spec("tensorflow_text") is not None
