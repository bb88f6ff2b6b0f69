"""A text as it is written, and how probable a text is."""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kerasbert.answers.generation import Generation, text_of
from kerasbert.inputs import Row

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


UNFINISHED = "\ufffd"  # what the beginning of a character is decoded to


class Guard(Protocol):
    """What each token is computed in."""

    def __call__(self) -> AbstractContextManager[object]: ...


class Stream(Iterator[str]):
    """Pieces of a text as its tokens come, whole characters each; joined they are the text of `answer`.

    Attributes:
        answer: Generation, what `Runner.generate` gives, when the text has ended; None before.
    """

    def __init__(self, steps: Iterator[tuple[list[int], float]], row: Row, guard: Guard) -> None:
        self.answer: Generation | None = None
        self._steps, self._row, self._guard = steps, row, guard
        self._ids: list[int] = []
        self._score, self._told = 0.0, 0  # told: characters

    def __next__(self) -> str:
        while self.answer is None:
            with self._guard():
                written = next(self._steps, None)
            self._ids, self._score = written or (self._ids, self._score)
            # a text of fewer tokens is where that of more begins, but for a character of which bytes are to come
            text = text_of(self._row.about.tokenizer, self._ids)
            if written is None:
                self.answer = Generation(text, self._score, self._row.truncated)
            else:
                text = text.removesuffix(UNFINISHED)
            piece, self._told = text[self._told :], max(self._told, len(text))
            if piece:
                return piece
        raise StopIteration


@dataclasses.dataclass(frozen=True)
class Score:
    """How probable a text is, by a decoder alone.

    Attributes:
        tokens: pieces of the vocabulary after the first, from which the others follow and which has no probability itself.
        log_probabilities: natural logarithm of the probability of each of them, given those before.
        truncated: bool, whether the text has more tokens than the file takes.
    """

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    truncated: bool = False

    @property
    def score(self) -> float:
        """The log-probability of the text: their sum."""
        return math.fsum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """exp of minus their mean."""
        return math.exp(-self.score / len(self.log_probabilities))


def scored(tokenizer: "Tokenizer", ids: list[int], logits: Iterator[np.ndarray], truncated: bool) -> Score:
    """The Score of ids, of which `logits` [V] stand in front of each but the first."""
    found = []
    for each, token in zip(logits, ids[1:]):
        shifted = each.astype("float64") - each.max()
        found.append(float(shifted[token] - np.log(np.exp(shifted).sum())))
    return Score(tuple(tokenizer.vocabulary[i] for i in ids[1:]), tuple(found), truncated)
