"""Product quantization of embedding tables: a row is a few bytes, each of which names one of 256 pieces of rows.

The columns are cut into groups; k-means finds 256 centroids for each group, and a row becomes the numbers of its nearest
ones (Jégou et al., 2011, "Product quantization for nearest neighbor search", section II). A vocabulary is half of a small
encoder, and int8 takes one byte a number; here three or four numbers share a byte.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kerasbert.text.base import Tokenizer

CENTROIDS = 256  # a byte
ROUNDS = 20  # of k-means
SAMPLE = 2**15  # rows that k-means sees
POWER = 0.75  # of a piece's count: common pieces come first, and rare ones are not forgotten


@dataclasses.dataclass(frozen=True)
class Coded:
    """A table in codes.

    Args:
        codes: uint8 [V, G].
        book: int8 [G * 256, D], the centroids of all groups, those of narrower groups with zeros behind.
        scale: float, of the book.
        columns: int32 [H], where the numbers of a row stand in its G * D ones.
    """

    codes: np.ndarray
    book: np.ndarray
    scale: float
    columns: np.ndarray

    def rows(self) -> np.ndarray:
        """What the file computes with: float32 [V, H]."""
        groups = self.codes.shape[1]
        places = self.codes.astype(np.int64) + CENTROIDS * np.arange(groups)
        return (self.book[places].reshape(len(self.codes), -1)[:, self.columns] * np.float32(self.scale)).astype(
            "float32"
        )


def size(rows: int, width: int, codes: int) -> int:
    """Bytes of a table [rows, width] in `codes` codes a row."""
    return rows * codes + codes * CENTROIDS * -(-width // codes)


def coded(x: np.ndarray, codes: int, weights: np.ndarray | None = None, seed: int = 0) -> Coded:
    """A table in codes.

    Args:
        x: float32 [V, H].
        codes: int G, 1 to H; the columns are cut as evenly as can be.
        weights: float [V], how much the error of a row matters.
        seed: int, of the first centroids.
    """
    weights = np.ones(len(x)) if weights is None else np.asarray(weights, "float64")
    draw = np.random.default_rng(seed)
    seen = np.arange(len(x)) if len(x) <= SAMPLE else np.sort(draw.choice(len(x), SAMPLE, replace=False))
    parts = np.array_split(np.arange(x.shape[1]), codes)
    widest = len(parts[0])
    book, found = np.zeros((codes, CENTROIDS, widest), "float32"), np.zeros((len(x), codes), "uint8")
    for group, part in enumerate(parts):
        centroids = _k_means(np.ascontiguousarray(x[seen][:, part], "float32"), weights[seen], draw)
        book[group, : len(centroids), : len(part)] = centroids
    scale = float(np.abs(book).max() / 127) or 1.0
    whole = np.clip(np.rint(book / scale), -127, 127).astype("int8")
    for group, part in enumerate(parts):  # the nearest of those that the file holds
        found[:, group] = _nearest(x[:, part], whole[group, :, : len(part)] * np.float32(scale))
    columns = np.concatenate([group * widest + np.arange(len(part)) for group, part in enumerate(parts)])
    return Coded(found, whole.reshape(-1, widest), scale, columns.astype("int32"))


def frequencies(tokenizer: Tokenizer, texts: Sequence) -> np.ndarray:
    """Weights of a vocabulary's pieces: (count in the texts + 1) ** POWER, float [V]."""
    counts = np.zeros(tokenizer.size)
    for text in texts:
        parts = text if isinstance(text, tuple) else (text,)
        np.add.at(counts, np.asarray(tokenizer.pack(*parts)[0]), 1)
    return (counts + 1) ** POWER


def _k_means(x: np.ndarray, weights: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Centroids [up to 256, D] of the rows of x [V, D] (Lloyd's algorithm); all different rows, if there are no more."""
    different = np.unique(x, axis=0)
    if len(different) <= CENTROIDS:
        return different
    centroids = different[draw.choice(len(different), CENTROIDS, replace=False)].copy()
    for _ in range(ROUNDS):
        nearest = _nearest(x, centroids)
        total = np.bincount(nearest, weights, CENTROIDS)
        for column in range(x.shape[1]):
            sums = np.bincount(nearest, weights * x[:, column], CENTROIDS)
            np.divide(sums, total, out=centroids[:, column], where=total > 0, casting="same_kind")
        empty = np.flatnonzero(total == 0)
        if len(empty):  # to where the error is largest
            error = weights * ((x - centroids[nearest]) ** 2).sum(1)
            centroids[empty] = x[np.argsort(error, kind="stable")[-len(empty) :]]
    return centroids


def _nearest(x: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Number of the nearest centroid of each row, the first of equal ones."""
    square = (centroids**2).sum(1) / 2
    parts = np.array_split(x, max(1, len(x) // 8192))
    return np.concatenate([(square - part @ centroids.T).argmin(1) for part in parts])
