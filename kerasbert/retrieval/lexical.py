"""The texts that share words with a query, by BM25 (Robertson and Zaragoza, 2009) of bm25s, and their fusion with the nearest."""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError

WORDS = "words"
"""Folder of bm25s within an index."""
RANK = 60
"""Constant of the reciprocal rank fusion (Cormack et al., 2009)."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W_]+")


def library() -> Any:
    """bm25s, or None; without JAX, which it imports where it finds it: seconds, and a process that is not to be forked then."""
    unknown = object()
    jax = sys.modules.get("jax", unknown)
    sys.modules["jax"] = None  # pyright: ignore[reportArgumentType]  # an import of it is an ImportError
    try:
        import bm25s  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    finally:
        if jax is unknown:
            del sys.modules["jax"]
        else:
            sys.modules["jax"] = jax  # pyright: ignore[reportArgumentType]
    return bm25s


def words(text: str) -> list[str]:
    """Words without case; Chinese and Japanese characters one by one.

    >>> words("The ship's LOG, 1851: 白鯨")
    ['the', 'ship', 's', 'log', '1851', '白', '鯨']
    """
    return _WORD.findall(text.casefold())


def build(texts: Iterable[str], folder: Path) -> None:
    """Write the index of words."""
    found = library().BM25(backend="numpy")
    once: dict[str, str] = {}  # a word of many texts is one object
    found.index([[once.setdefault(word, word) for word in words(text)] for text in texts], show_progress=False)
    found.save(str(folder / WORDS), show_progress=False)


def opened(folder: Path) -> Any:
    """The index of words.

    Raises:
        InputError: bm25s is not installed.
    """
    found = library()
    if found is None:
        raise InputError(f"{folder} has an index of words: pip install 'kerasbert[search]', which brings bm25s")
    return found.BM25.load(str(folder / WORDS), mmap=True, show_progress=False)


def nearest(found: Any, queries: Sequence[str], top: int) -> list[list[tuple[int, float]]]:
    """Numbers and scores of the texts that share words with each query, best first: at most `top`."""
    hits: list[list[tuple[int, float]]] = []
    for query in queries:
        asked = words(query)
        if not asked:
            hits.append([])
            continue
        numbers, scores = found.retrieve([asked], k=top, show_progress=False, backend_selection="numpy")
        hits.append([(int(number), float(score)) for number, score in zip(numbers[0], scores[0]) if score > 0])
    return hits


def fused(rankings: Sequence[Sequence[int]], top: int) -> list[tuple[int, float]]:
    """Reciprocal rank fusion of rankings: numbers and scores, best first; equal ones by their number.

    >>> [(number, round(score, 4)) for number, score in fused([[4, 7], [7, 9]], 2)]
    [(7, 0.0325), (4, 0.0164)]
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK + rank)
    order = sorted(scores, key=lambda number: (-scores[number], number))
    return [(number, scores[number]) for number in order[:top]]


def most(count: int, top: int) -> int:
    """How many texts of each ranking are fused."""
    return min(max(top, 100), count)
