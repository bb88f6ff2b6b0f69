"""Learn BPE merges, of bytes or of the characters of words, most frequent pair first (Sennrich et al., 2016, algorithm 1)."""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET, SPECIALS, BytePairEncoding, split_words
from kerasbert.text.normalize import Normalizer
from kerasbert.text.train import LETTERS, count_words, lines_of
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.word_bpe import SPECIALS as WORD_SPECIALS

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


def learn_merges(words: Mapping[Any, int], count: int) -> list[tuple[tuple[str, str], int]]:
    """The first `count` merges with how often each pair occurred.

    Of pairs that are equally frequent the smaller comes first: by left symbol, then by right one, in code point order.
    A pair that occurs once is not merged. A word is a string, or a tuple of symbols.

    >>> learn_merges({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 3)
    [(('e', 's'), 9), (('es', 't'), 9), (('l', 'o'), 7)]
    """
    symbols = [list(word) for word in words]
    numbers = list(words.values())
    counts = Counter[tuple[str, str]]()
    places: dict[tuple[str, str], set[int]] = {}
    for i, word in enumerate(symbols):
        for pair in itertools.pairwise(word):
            counts[pair] += numbers[i]
            places.setdefault(pair, set()).add(i)
    heap = [(-number, pair) for pair, number in counts.items()]
    heapq.heapify(heap)
    merges = []
    while heap and len(merges) < count:
        number, pair = heapq.heappop(heap)
        if -number != counts[pair]:
            continue  # has changed; its present count is in the heap too
        if -number < LEAST:
            break
        merges.append((pair, -number))
        changed = set()
        for i in places.pop(pair):
            changed |= _merge(symbols, i, pair, numbers[i], counts, places)
        counts.pop(pair, None)
        changed.discard(pair)
        for other in sorted(changed):
            if counts[other] > 0:
                heapq.heappush(heap, (-counts[other], other))
    return merges


def _merge(
    symbols: list[list[str]], i: int, pair: tuple[str, str], number: int, counts: Counter, places: dict
) -> set[tuple[str, str]]:
    """Merge a pair in a word; the pairs whose counts change."""
    old, new, at = symbols[i], [], 0
    while at < len(old):
        if at + 1 < len(old) and (old[at], old[at + 1]) == pair:
            new.append(old[at] + old[at + 1])
            at += 2
        else:
            new.append(old[at])
            at += 1
    symbols[i] = new
    before, after = list(itertools.pairwise(old)), list(itertools.pairwise(new))
    for other in before:
        counts[other] -= number
    for other in after:
        counts[other] += number
        places.setdefault(other, set()).add(i)
    return {*before, *after}
