"""The nearest of all stored vectors, in blocks of them, so that no more than a block is ever in memory as float32."""

from collections.abc import Iterator

import numpy as np

from kerasbert.retrieval import forms

BLOCK = 32768  # vectors at once
CONVERTED = 4096  # of those that are made float32 for a few queries: they stay in the processor's cache
FEW = 8  # queries; more want larger products


class NotFinite(ValueError):
    """A stored vector, or a query's, has a number that is not finite."""


def blocks(vectors: np.ndarray, dtype: str, width: int, size: int = 0) -> Iterator[tuple[int, np.ndarray]]:
    """Number of the first -> float32 [at most size, width]; size: 0 for BLOCK."""
    size = size or BLOCK
    for start in range(0, len(vectors), size):
        yield start, forms.read(np.asarray(vectors[start : start + size]), dtype, width)


def nearest(vectors: np.ndarray, dtype: str, queries: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The stored vectors of the largest cosines with each query, largest first; equal ones in their order.

    (Equal vectors may differ by a product's rounding, by where they stand in a block.)

    Args:
        vectors: [n, columns], stored as `dtype`, of length 1 (`forms`). queries: float32 [q, H], of length 1.

    Returns:
        cosines float32 [q, k] and numbers int64 [q, k], k = min(top, n).

    Raises:
        NotFinite: a number is none, which would be neither near nor far.
    """
    scores, numbers = np.zeros((len(queries), 0), "float32"), np.zeros((len(queries), 0), "int64")
    size = min(BLOCK, CONVERTED) if dtype != "float32" and len(queries) <= FEW else BLOCK
    for start, block in blocks(vectors, dtype, queries.shape[1], size):
        found = queries @ block.T
        if not np.isfinite(found).all():
            raise NotFinite(f"cosines with vectors {start:,} to {start + len(block) - 1:,} are not finite")
        kept, places = _largest(found, top)
        joined = np.concatenate([scores, kept], axis=1), np.concatenate([numbers, places + start], axis=1)
        scores, order = _largest(joined[0], top)  # what came first stands first, so that equal scores keep their order
        numbers = np.take_along_axis(joined[1], order, axis=1)
    return scores, numbers


def _largest(scores: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest of each row and their columns, equal ones in their order: [q, n] -> [q, min(top, n)] twice."""
    top = min(top, scores.shape[1])
    if top < scores.shape[1]:
        least = -np.partition(-scores, top - 1, axis=1)[:, top - 1 : top]
        columns = np.empty((len(scores), top), "int64")
        for row, (values, bar) in enumerate(zip(scores, least)):
            above, equal = np.flatnonzero(values > bar), np.flatnonzero(values == bar)
            columns[row] = np.concatenate([above, equal[: top - len(above)]])
    else:
        columns = np.tile(np.arange(top), (len(scores), 1))
    values = np.take_along_axis(scores, columns, axis=1)
    # of equal scores the one with the smaller column
    order = np.lexsort((columns, -values), axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(columns, order, axis=1)
