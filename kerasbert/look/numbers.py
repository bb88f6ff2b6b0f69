"""The numbers of the pictures, in numpy alone."""

import numpy as np

PATTERNS = ("previous", "next", "separator", "same word")  # of a head: Clark et al., 2019, section 3


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines between vectors [n, H] -> [n, n].

    >>> cosines(np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit @ unit.T


def cosines_to(vector: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Cosines of a vector [H] and vectors [n, H] -> [n]."""
    lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(vector)
    return vectors @ vector / np.maximum(lengths, 1e-12)


def mean_cosine(vectors: np.ndarray) -> float:
    """The mean cosine between two different vectors of [n, H], those of length 0 left out.

    >>> mean_cosine(np.array([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    -0.3333333333333333
    """
    vectors = vectors.astype("float64")
    lengths = np.linalg.norm(vectors, axis=-1)
    unit = vectors[lengths > 0] / lengths[lengths > 0, None]
    total, count = unit.sum(0), len(unit)
    return float((total @ total - count) / (count * (count - 1)))


def whitened(vectors: np.ndarray) -> np.ndarray:
    """Vectors [n, H] without their mean, in coordinates of variance 1 that do not go together; what has none is left out."""
    centred = vectors.astype("float64") - vectors.mean(0, dtype="float64")
    variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > 1e-10 * variances.max()
    return centred @ axes[:, kept] / np.sqrt(variances[kept])


def plane(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """The first two principal components of vectors [n, H] -> [n, 2], and their share of the variance.

    The sign of a component is that which makes its largest number positive.
    """
    centred = vectors - vectors.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    points = u[:, :2] * s[:2]
    points = points * np.where(np.take_along_axis(points, np.abs(points).argmax(0)[None], 0) < 0, -1, 1)
    total = float((s**2).sum())
    return points, float((s[:2] ** 2).sum()) / total if total else 0.0


def steps(hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each block moves a token (Lan et al., 2020, figure 2).

    Args:
        hidden: [L + 1, S, H].

    Returns:
        L2 distance [L, S] between input and output of each block, and their angle [L, S] in degrees.
    """
    before, after = hidden[:-1], hidden[1:]
    norms = np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1)
    cosine = (before * after).sum(-1) / np.maximum(norms, 1e-12)
    return np.linalg.norm(after - before, axis=-1), np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def patterns(attention: np.ndarray, separators: np.ndarray) -> np.ndarray:
    """The share of a head's weight that goes to each of PATTERNS, a mean over the tokens that have such a place.

    Args:
        attention: [layers, heads, S, S]; rows read. separators: bool [S].

    Returns:
        [4, layers, heads]: the token before, the one behind, a separator, the token itself.
    """
    size = attention.shape[-1]
    along = [
        attention[..., np.arange(size - abs(k)) - min(k, 0), np.arange(size - abs(k)) + max(k, 0)] for k in (-1, 1, 0)
    ]
    separated = attention[..., separators].sum(-1)
    return np.stack([along[0].mean(-1), along[1].mean(-1), separated.mean(-1), along[2].mean(-1)])


def entropy(attention: np.ndarray) -> np.ndarray:
    """Mean entropy of a head's rows in nats: [layers, heads, S, S] -> [layers, heads]; ln S is even attention."""
    return -(attention * np.log(np.maximum(attention, 1e-30))).sum(-1).mean(-1)
