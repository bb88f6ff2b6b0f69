"""Learn BPE merges, of bytes or of the characters of words, most frequent pair first (Sennrich et al., 2016, algorithm 1)."""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET, SPECIALS, BytePairEncoding, split_words
from kerasbert.text.normalize import Normalizer
from kerasbert.text.train import LETTERS, count_words, lines_of
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.word_bpe import SPECIALS as WORD_SPECIALS

Pair = tuple[str, str]
Word = TypeVar("Word", bound=Sequence[str])
LEAST = 2  # a rarer pair is not merged
NONE = -1  # no symbol
BITS = 32  # of a symbol's number
RIGHT = (1 << BITS) - 1
FIRST = np.ones(1, bool)


def train_bpe(
    text: Iterable[str | bytes], size: int, *, add_prefix_space: bool = False, lowercase: bool = False
) -> BytePairEncoding:
    """A byte-level tokenizer of at most `size` pieces, in RoBERTa's order: specials, bytes, merges, <mask>.

    Args:
        text: lines as strings or UTF-8; `kerasbert.data.read_lines` reads files.
        size: int, the largest vocabulary.
        add_prefix_space: bool, as of `BytePairEncoding`.
        lowercase: bool, of no effect: every byte is kept. The other kinds have it.
    Raises:
        InputError: bytes that are not UTF-8, no words in the text, a size too small for the bytes.
    """
    least = len(SPECIALS) + len(ALPHABET)
    if size < least:
        raise InputError(f"size is {size}, expected at least {least}: the 256 bytes and the special tokens")
    counts = Counter[str]()
    for line in lines_of(text):
        line = line.rstrip("\r\n")
        prefix = " " if add_prefix_space and line[:1] not in ("", " ") else ""
        counts.update(split_words(prefix + line))
    if not counts:
        raise InputError("the text holds no words. Give files with text")
    words = {"".join(ALPHABET[byte] for byte in word.encode("utf-8", "replace")): n for word, n in counts.items()}
    merges = learn_merges(words, size - least)
    specials = [SPECIALS[part] for part in ("cls", "pad", "sep", "unk")]
    pieces = dict.fromkeys([*specials, *ALPHABET, *("".join(pair) for pair, _ in merges), SPECIALS["mask"]])
    return BytePairEncoding(pieces, [pair for pair, _ in merges], add_prefix_space=add_prefix_space)


def train_word_bpe(text: Iterable[str | bytes], size: int, *, lowercase: bool = True) -> WordPairEncoding:
    """A tokenizer of at most `size` pieces within words: specials, characters, those that end words, merges.

    Args:
        text: lines as strings or UTF-8; `kerasbert.data.read_lines` reads files.
        size: int, the largest vocabulary.
        lowercase: bool, drop case and accents.
    Raises:
        InputError: bytes that are not UTF-8, no words in the text, a size too small for the text's characters.
    """
    words = count_words(text, Normalizer(lowercase, lowercase, True))
    if not words:
        raise InputError("the text holds no words. Give files with text")
    letters = Counter[str]()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    kept = sorted(sorted(letters, key=lambda letter: (-letters[letter], letter))[:LETTERS])
    least = len(WORD_SPECIALS) + 2 * len(kept)
    if size < least:
        raise InputError(
            f"size is {size}, expected at least {least}: each of the text's {len(kept)} characters twice, at the end of a word "
            "and before, and the special tokens"
        )
    known = set(kept)
    symbols = {(*word[:-1], word[-1] + END): count for word, count in words.items() if known.issuperset(word)}
    merges = [pair for pair, _ in learn_merges(symbols, size - least)]
    made = ("".join(pair) for pair in merges)
    pieces = dict.fromkeys([*WORD_SPECIALS.values(), *kept, *(letter + END for letter in kept), *made])
    return WordPairEncoding(pieces, merges, lowercase=lowercase)


def learn_merges(words: Mapping[Word, int], count: int) -> list[tuple[Pair, int]]:
    """The first `count` merges with how often each pair occurred.

    Of pairs that are equally frequent the smaller comes first: by left symbol, then by right one, in code point order.
    A pair that occurs once is not merged. A word is a string, or a tuple of symbols.

    >>> learn_merges({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 3)
    [(('e', 's'), 9), (('es', 't'), 9), (('l', 'o'), 7)]
    """
    table = _Table(words)
    names, index, counts = table.names, table.index, table.counts

    def entry(pair: int) -> tuple[int, str, str]:
        return -counts[pair], names[pair >> BITS], names[pair & RIGHT]

    heap = [entry(pair) for pair, number in counts.items() if number >= LEAST]
    heapq.heapify(heap)
    merges: list[tuple[Pair, int]] = []
    while heap and len(merges) < count:
        number, left, right = heapq.heappop(heap)
        pair = index[left] << BITS | index[right]
        present = counts.get(pair, 0)
        if present == -number:
            merges.append(((left, right), present))
            for other in table.merge(pair):
                if counts[other] >= LEAST:
                    heapq.heappush(heap, entry(other))
        elif LEAST <= present < -number:  # rarer by now; one that is more frequent is in the heap again
            heapq.heappush(heap, entry(pair))
    return merges


class _Table:
    """Words as one row of numbered symbols, each linked with its neighbours.

    A pair is an int, left << BITS | right; its places are where its left symbols stand, or stood once. `counts` is true.
    """

    def __init__(self, words: Mapping[Word, int]) -> None:
        letters = list(itertools.chain.from_iterable(words))
        self.names = sorted(set(letters))
        self.index = {name: number for number, name in enumerate(self.names)}
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        at = np.arange(len(letters)) + np.repeat(np.arange(1, len(words) + 1), lengths)
        self.symbols = np.full(len(letters) + len(words) + 1, NONE, np.int32)  # NONE before, between and behind words
        self.symbols[at] = np.fromiter(map(self.index.__getitem__, letters), np.int32, len(letters))
        self.numbers = np.zeros(len(self.symbols), np.int64)
        self.numbers[at] = np.repeat(np.fromiter(words.values(), np.int64, len(words)), lengths)
        self.left = np.arange(-1, len(self.symbols) - 1, dtype=np.int32)
        self.right = self.left + np.int32(2)
        self.counts: dict[int, int] = {}
        self.places: dict[int, list[np.ndarray]] = {}
        self._add(np.flatnonzero((self.symbols[:-1] >= 0) & (self.symbols[1:] >= 0)).astype(np.int32))

    def merge(self, pair: int) -> list[int]:
        """Merge a pair wherever it stands, from left to right in a word; the pairs that form."""
        symbols, left, right = self.symbols, self.left, self.right
        first = self._standing(pair)
        name = self.names[pair >> BITS] + self.names[pair & RIGHT]
        if (merged := self.index.setdefault(name, len(self.names))) == len(self.names):
            self.names.append(name)
        second = right[first]
        before, after = left[first], right[second]
        broken = np.concatenate([before[symbols[before] >= 0], second[symbols[after] >= 0]])
        for other, number in zip(*self._pairs(broken)[:2]):
            self.counts[other] -= number
        del self.counts[pair]
        symbols[first], symbols[second] = merged, NONE
        right[first], left[after] = after, first
        formed = np.concatenate([left[first], first])
        return self._add(formed[(symbols[formed] >= 0) & (symbols[right[formed]] >= 0)])

    def _standing(self, pair: int) -> np.ndarray:
        """Where a pair stands and may be merged: of those that overlap ("aaa") every second."""
        one, other = pair >> BITS, pair & RIGHT
        places = np.concatenate(self.places.pop(pair))
        places = places[(self.symbols[places] == one) & (self.symbols[self.right[places]] == other)]
        if one != other:
            return places
        places.sort()
        begins = np.ones(len(places), bool)
        begins[1:] = self.right[places[:-1]] != places[1:]
        at = np.arange(len(places))
        return places[(at - np.maximum.accumulate(np.where(begins, at, 0))) % 2 == 0]

    def _add(self, places: np.ndarray) -> list[int]:
        pairs, numbers, places, bounds = self._pairs(places)
        for pair, number, begin, end in zip(pairs, numbers, bounds, bounds[1:]):
            self.counts[pair] = self.counts.get(pair, 0) + number
            self.places.setdefault(pair, []).append(places[begin:end])
        return pairs

    def _pairs(self, places: np.ndarray) -> tuple[list[int], list[int], np.ndarray, list[int]]:
        """The pairs at some places, each of which may be given twice, and how often they occur; each pair's places together.

        Returns:
            P pairs; P numbers; places, without those given twice; P + 1 bounds between the pairs' places.
        """
        if not len(places):
            return [], [], places, []
        places = np.sort(places)
        places = places[np.concatenate([FIRST, places[1:] != places[:-1]])]
        pairs = self.symbols[places].astype(np.int64) << BITS | self.symbols[self.right[places]]
        order = np.argsort(pairs, kind="stable")
        pairs, places = pairs[order], places[order]
        begins = np.flatnonzero(np.concatenate([FIRST, pairs[1:] != pairs[:-1]]))
        numbers = np.add.reduceat(self.numbers[places], begins)
        return pairs[begins].tolist(), numbers.tolist(), places, [*begins.tolist(), len(places)]
