"""How often words stand near each other: GloVe's X (Pennington et al., 2014, section 4.2), in bounded memory."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from kerasbert.errors import InputError
from kerasbert.storage import scratch

TOKENS = 2**18  # of text, counted at once
PAIRS = 2**25  # different pairs in memory, 16 bytes each; more go to a temporary file


@dataclasses.dataclass(frozen=True)
class Counts:
    """The words of a text, and their counts.

    Args:
        words: V words, the most frequent first, equal ones by the alphabet.
        counts: how often each occurs.
        tokens: int, of the text, those without a row too.
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]
    tokens: int


def count(sentences: Iterable[list[str]], least: int = 1, most: int | None = None) -> Counts:
    """The words of a text that occur `least` times at least, and of these the `most` commonest.

    Raises:
        InputError: there are none.
    """
    found: Counter[str] = Counter()
    for sentence in sentences:
        found.update(sentence)
    kept = sorted((item for item in found.items() if item[1] >= least), key=lambda item: (-item[1], item[0]))[:most]
    if not kept:
        raise InputError(
            f"no word of the text occurs {least} times, expected some: give more text, or a lower --min-count"
        )
    words, counts = zip(*kept)
    return Counts(words, counts, found.total())


def cooccurrences(
    sentences: Callable[[], Iterable[list[str]]], words: Iterable[str], window: int, memory: int = PAIRS
) -> tuple[np.ndarray, np.ndarray]:
    """X of all pairs that occur: a pair at a distance of d words adds 1 / d to both of its orders.

    Words without a row take a place, as in the authors' program; nothing reaches from one sentence into the next.

    Args:
        sentences: gives the sentences, each a list of words.
        words: V of them, whose numbers are their places.
        window: int, largest distance.
        memory: int, pairs that are kept in memory before they are written to a temporary file.

    Returns:
        pairs int64 [N, 2] (word, context) in ascending order, X float64 [N].
    """
    index = {word: row for row, word in enumerate(words)}
    size = len(index)
    with scratch.folder() as folder:
        runs: list[Path] = []
        keys, values = np.zeros(0, np.int64), np.zeros(0)
        for ids, sentence in _chunks(sentences(), index):
            keys, values = _merged(
                [keys, *_pairs(ids, sentence, window, size, 0)], [values, *_pairs(ids, sentence, window, size, 1)]
            )
            if len(keys) > memory:
                runs.append(Path(folder) / f"{len(runs)}.npy")
                np.save(runs[-1], _table(keys, values))
                keys, values = np.zeros(0, np.int64), np.zeros(0)
        if runs:
            keys, values = _together(runs, keys, values, memory)
    if not len(keys):
        raise InputError("no two words of the vocabulary stand in one line, expected text with several words a line")
    return np.stack([keys // size, keys % size], 1), values


def _chunks(sentences: Iterable[list[str]], index: dict[str, int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some sentences at once: numbers of the words (-1 without a row), and of their sentences."""
    ids: list[int] = []
    rows: list[int] = []
    for number, sentence in enumerate(sentences):
        ids += [index.get(word, -1) for word in sentence]
        rows += [number] * len(sentence)
        if len(ids) >= TOKENS:
            yield np.array(ids), np.array(rows)
            ids, rows = [], []
    if ids:
        yield np.array(ids), np.array(rows)


def _pairs(ids: np.ndarray, rows: np.ndarray, window: int, size: int, which: int) -> Iterator[np.ndarray]:
    """The keys (0) or values (1) of both orders of all pairs of a chunk, distance by distance."""
    for distance in range(1, min(window, len(ids) - 1) + 1):
        near, far = ids[:-distance], ids[distance:]
        kept = (rows[:-distance] == rows[distance:]) & (near >= 0) & (far >= 0)
        near, far = near[kept], far[kept]
        yield (
            np.concatenate([near * size + far, far * size + near])
            if which == 0
            else np.full(2 * len(near), 1 / distance)
        )


def _merged(keys: list[np.ndarray], values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Each key once, ascending, and the sum of its values."""
    every, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    return every, np.bincount(inverse, np.concatenate(values), len(every))


def _table(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Keys and values side by side, as they stand in a file."""
    table = np.empty(len(keys), [("key", np.int64), ("value", np.float64)])
    table["key"], table["value"] = keys, values
    return table


def _together(runs: list[Path], keys: np.ndarray, values: np.ndarray, memory: int) -> tuple[np.ndarray, np.ndarray]:
    """Runs on disk and what is in memory, a range of keys after the other."""
    parts = [np.load(run, mmap_mode="r") for run in runs]
    parts.append(_table(keys, values))
    step = max(1, memory // len(parts))
    bounds = np.unique(np.concatenate([part["key"][::step] for part in parts]))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for low, high in zip(bounds, [*bounds[1:], np.iinfo(np.int64).max]):
        ranges = [part[slice(*np.searchsorted(part["key"], (low, high)))] for part in parts]
        found.append(_merged([part["key"] for part in ranges], [part["value"] for part in ranges]))
    return np.concatenate([part for part, _ in found]), np.concatenate([part for _, part in found])
