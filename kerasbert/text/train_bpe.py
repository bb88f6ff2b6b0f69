"""Learn BPE merges, of bytes or of the characters of words, most frequent pair first (Sennrich et al., 2016, algorithm 1)."""

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET, SPECIALS, BytePairEncoding, split_words
from kerasbert.text.normalize import Normalizer
from kerasbert.text.train import LETTERS, count_words, lines_of
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.word_bpe import SPECIALS as WORD_SPECIALS

Pair = tuple[str, str]
Word = TypeVar("Word", bound=Sequence[str])
LEAST = 2  # a rarer pair is not merged


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
    symbols = [list(word) for word in words]
    numbers = list(words.values())
    counts: dict[Pair, int] = defaultdict(int)
    places: dict[Pair, list[int]] = defaultdict(list)  # the words that hold a pair, or did
    for i, word in enumerate(symbols):
        for pair in itertools.pairwise(word):
            counts[pair] += numbers[i]
            places[pair].append(i)
    heap = [(-number, pair) for pair, number in counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[Pair, int]] = []
    while heap and len(merges) < count:
        number, pair = heapq.heappop(heap)
        present = counts[pair]
        if present != -number:
            if 0 < present < -number:  # rarer by now; one that is more frequent is in the heap again
                heapq.heappush(heap, (-present, pair))
            continue
        if present < LEAST:
            break
        merges.append((pair, present))
        formed: dict[Pair, int] = defaultdict(int)
        for i in places.pop(pair):
            for other in _merge(symbols[i], pair, numbers[i], counts):
                formed[other] += numbers[i]
                places[other].append(i)
        del counts[pair]
        for other, number in formed.items():
            counts[other] += number
            heapq.heappush(heap, (-counts[other], other))
    return merges


def _merge(word: list[str], pair: Pair, number: int, counts: dict[Pair, int]) -> list[Pair]:
    """Merge a pair wherever it stands in a word; its neighbours' counts lose `number`, and the pairs that form are returned."""
    left, right = pair
    formed = []
    at, last = 0, len(word) - 1
    while left in word[at:last]:
        at = word.index(left, at, last)
        if word[at + 1] == right:
            word[at : at + 2] = [left + right]
            last -= 1
            if at:
                counts[word[at - 1], left] -= number
                formed.append((word[at - 1], word[at]))
            if at < last:
                counts[right, word[at + 1]] -= number
                formed.append((word[at], word[at + 1]))
        at += 1
    return formed
