"""Word vectors in memory: a table, and fastText's, whose words are also the sum of their character n-grams."""

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kerasbert.errors import InputError, nearest

LOOKED = 20_000  # words at most among which a mistyped one's nearest is looked for
ROWS = 65_536  # of a table, multiplied at once
OFFSET, PRIME, WORD32 = 2166136261, 16777619, 0xFFFFFFFF  # FNV-1a of 32 bits


class WordVectors:
    """Words and their vectors.

    Args:
        words: V words, each once, as a rule the most frequent first.
        table: float32 [V, D].
    Raises:
        InputError: no words, or another number of them than rows.

    >>> vectors = WordVectors(["cat", "dog", "sea"], np.array([[1, 0], [1, 1], [0, 2]], np.float32))
    >>> vectors.vector("dog").tolist(), vectors.nearest("cat", 1)
    ([1.0, 1.0], [('dog', 0.7071067690849304)])
    """

    def __init__(self, words: Iterable[str], table: np.ndarray) -> None:
        self.words = tuple(words)
        if not self.words or len(self.words) != len(table):
            raise InputError(
                f"{len(self.words)} words and a table of {len(table)} rows, expected one row for each word"
            )
        self.table = table
        self.width = table.shape[1]
        self.index = {word: row for row, word in enumerate(self.words)}
        if len(self.index) < len(self.words):
            raise InputError(f"{len(self.words) - len(self.index)} words occur more than once, expected each once")

    def __contains__(self, word: str) -> bool:
        return word in self.index

    def __len__(self) -> int:
        return len(self.words)

    def vector(self, word: str) -> np.ndarray:
        """The vector of a word, float32 [D].

        Raises:
            InputError: there is none; the line names the nearest word.
        """
        if word not in self.index:
            raise self.unknown(word)
        return self.table[self.index[word]]

    def unknown(self, word: str) -> InputError:
        """The error for a word without a vector."""
        best = word.lower() if word.lower() in self.index else nearest(word, self.words[:LOOKED])
        meant = "" if best is None else f". Nearest: {best!r}"
        return InputError(f"no vector of the word {word[:60]!r} among {len(self.words):,} words{meant}")

    def nearest(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words of the highest cosine with a word, the word itself left out.

        Args:
            word: str.
            count: int, how many words; all where there are fewer.

        Raises:
            InputError: the word has no vector, or `count` is below 1.
        """
        if count < 1:
            raise InputError(f"the number of words must be at least 1. Received: {count}")
        query = _unit(self.vector(word)[None])[0]
        parts = [_unit(self.table[first : first + ROWS]) @ query for first in range(0, len(self.words), ROWS)]
        scores = np.concatenate(parts)
        if word in self.index:
            scores[self.index[word]] = -np.inf
        count = min(count, len(self.words) - (word in self.index))
        best = np.argsort(-scores, kind="stable")[:count]
        return [(self.words[row], float(scores[row])) for row in best]


class FastTextVectors(WordVectors):
    """fastText's vectors (Bojanowski et al., 2017, section 3.2): of a word, the mean of its own and of its n-grams' rows.

    A word without a row of its own is the mean of its n-grams, which are hashed into buckets.

    Args:
        words: V words.
        own: float32 [V, D], the rows of the words alone.
        buckets: float32 [B, D], the rows of the n-grams.
        least, most: int, characters of an n-gram, the word's < and > included.
        output: float32 [V, D] or None, the output layer, kept for a file that is written again.
        settings: further numbers of the file's header by name, kept likewise.
        counts: how often each word occurs, kept likewise.
    """

    def __init__(
        self,
        words: Iterable[str],
        own: np.ndarray,
        buckets: np.ndarray,
        least: int,
        most: int,
        *,
        output: np.ndarray | None = None,
        settings: dict[str, float] | None = None,
        counts: Sequence[int] | None = None,
    ) -> None:
        self.own, self.buckets, self.least, self.most = own, buckets, least, most
        self.output, self.settings, self.counts = output, settings or {}, counts
        super().__init__(words, own)

    @functools.cached_property
    def composed(self) -> np.ndarray:
        """The vectors of all words, float32 [V, D]: computed when they are first asked for."""
        if not len(self.buckets):
            return self.own
        table = np.empty_like(self.own)
        for row, word in enumerate(self.words):
            found = self.ngrams(word)
            table[row] = (self.own[row] + self.buckets[found].sum(0)) / np.float32(len(found) + 1)
        return table

    @property
    def table(self) -> np.ndarray:
        """float32 [V, D]."""
        return self.composed

    @table.setter
    def table(self, table: np.ndarray) -> None:
        """The rows of the words alone are what it is made of."""

    def ngrams(self, word: str) -> list[int]:
        """The buckets of a word's n-grams."""
        return list(ngram_buckets(word, self.least, self.most, len(self.buckets)))

    def vector(self, word: str) -> np.ndarray:
        """The vector of any word, float32 [D]; zeros where an unseen word is too short to have an n-gram.

        Raises:
            InputError: an unseen word, and the file has no n-grams.
        """
        if word in self.index and "composed" in self.__dict__:
            return self.composed[self.index[word]]
        if word not in self.index and not len(self.buckets):
            raise self.unknown(word)
        found = self.ngrams(word) if len(self.buckets) else []
        total = self.buckets[found].sum(0, dtype=np.float32) if found else np.zeros(self.width, np.float32)
        if word in self.index:
            return (self.own[self.index[word]] + total) / np.float32(len(found) + 1)
        return total / np.float32(max(1, len(found)))


def ngram_buckets(word: str, least: int, most: int, buckets: int) -> Iterator[int]:
    """The buckets of the n-grams of <word>, as fastText's `Dictionary::computeSubwords` finds them.

    The hash is FNV-1a of 32 bits over the n-gram's UTF-8, with fastText's quirk: bytes are signed, so one above 127 flips
    the upper 24 bits too. Neither < nor > alone is an n-gram.

    >>> list(ngram_buckets("as", 3, 6, 2_000_000))
    [1429031, 419163, 1039177]
    """
    spelled = f"<{word}>".encode()
    starts = [place for place, byte in enumerate(spelled) if byte & 0xC0 != 0x80] + [len(spelled)]
    bytes32 = [byte | 0xFFFFFF00 if byte > 127 else byte for byte in spelled]
    characters = len(starts) - 1
    for first in range(characters):
        value = OFFSET
        for last in range(first, min(characters, first + most)):
            for byte in bytes32[starts[last] : starts[last + 1]]:
                value = ((value ^ byte) * PRIME) & WORD32
            size = last - first + 1
            if size >= least and not (size == 1 and (first == 0 or last == characters - 1)):
                yield value % buckets


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length one; zeros stay."""
    rows = np.asarray(rows, np.float32)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)
