"""How well vectors fall into groups that somebody named: k-means, and the V-measure of its clusters beside the labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.data.sources import check_files
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.tasks.base import Task
from kerasbert.tasks.task import find_labels, read_rows

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.rows import Rows

STARTS, ROUNDS = 10, 300  # of k-means: beginnings, of which the best is kept, and the most rounds of each


def read(path: str | Path, text: str = "text", label: str = "label") -> "Rows":
    """The texts and labels of a table.

    Args:
        text, label: names of its columns.

    Raises:
        InputError: no such file or column, a row without a label, one label only; with file and line.
    """
    check_files(path)
    source = Path(path)
    return read_rows(find_labels(Task("clusters", text=text, label=label), source), source)


def evaluate(model: "keras.Model", rows: "Rows", **settings: Any) -> Json:
    """As many clusters of the texts' vectors as there are labels, beside the labels.

    Args:
        model: of a task or an encoder. rows: as `read` gives them. settings: of `kb.encode`.

    Returns:
        {"examples", "clusters": how many, "metrics": as of `judge`}.
    """
    from kerasbert.tasks.predict import encode

    metrics = judge(encode(model, rows.texts, **settings), rows.targets)
    return {"examples": len(rows.texts), "clusters": len(np.unique(rows.targets)), "metrics": metrics}


def judge(vectors: np.ndarray, labels: Sequence[object] | np.ndarray, seed: int = 0) -> dict[str, float]:
    """As many clusters of vectors as there are labels, beside the labels: homogeneity, completeness, v_measure.

    Args:
        vectors: float [n, H], such as `kb.encode` gives. labels: of each, strings or numbers.
        seed: int, of the clusters' beginnings.

    Raises:
        InputError: other numbers of vectors and labels, vectors that are not finite, fewer than two labels.
    """
    vectors = np.asarray(vectors, "float64")
    if vectors.ndim != 2 or len(vectors) != len(labels):
        raise InputError(f"vectors have the shape {vectors.shape} beside {len(labels)} labels, expected (n, H) and n")
    if not np.isfinite(vectors).all():
        raise InputError("vectors hold numbers that are not finite, expected finite ones: they cannot be clustered")
    count = len({str(label) for label in labels})
    if count < 2:
        raise InputError(f"labels name {count} group(s), expected at least two: others tell nothing of vectors")
    return v_measure([str(label) for label in labels], k_means(vectors, count, seed).tolist())


def v_measure(labels: Sequence[object] | np.ndarray, clusters: Sequence[object] | np.ndarray) -> dict[str, float]:
    """The V-measure of clusters, with beta 1 (Rosenberg and Hirschberg, 2007, section 2).

    Homogeneity is 1 where each cluster holds one label, completeness where each label is in one cluster; V is their harmonic
    mean.

    >>> v_measure(["a", "a", "b", "b"], [0, 0, 1, 2])
    {'homogeneity': 1.0, 'completeness': 0.6666666666666667, 'v_measure': 0.8}
    """
    numbers = [np.unique(np.asarray(each), return_inverse=True)[1] for each in (labels, clusters)]
    table = np.zeros([int(each.max(initial=0)) + 1 for each in numbers])
    np.add.at(table, (numbers[0], numbers[1]), 1.0)
    joint, of_labels, of_clusters = (_entropy(each) for each in (table, table.sum(1), table.sum(0)))
    homogeneity = 1 - (joint - of_clusters) / of_labels if of_labels else 1.0
    completeness = 1 - (joint - of_labels) / of_clusters if of_clusters else 1.0
    both = homogeneity + completeness
    found = {"homogeneity": homogeneity, "completeness": completeness}
    found["v_measure"] = 2 * homogeneity * completeness / both if both > 0 else 0.0
    return {name: float(value) for name, value in found.items()}


def _entropy(counts: np.ndarray) -> float:
    """Of a table of counts, nats."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def k_means(vectors: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """The cluster of each vector, int [n]: Lloyd's rounds from k-means++ beginnings (Arthur and Vassilvitskii, 2007)."""
    generator = np.random.default_rng(seed)
    tried = [_rounds(vectors, _beginning(vectors, count, generator)) for _ in range(STARTS)]
    return min(tried, key=lambda each: each[0])[1]


def _beginning(vectors: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Centres [k, H]: vectors drawn by the square of how far they are from those drawn before."""
    centres = [vectors[generator.integers(len(vectors))]]
    far = np.full(len(vectors), np.inf)
    for _ in range(count - 1):
        far = np.minimum(far, _distances(vectors, centres[-1][None])[:, 0])
        share = far / far.sum() if far.sum() > 0 else None  # all vectors are centres
        centres.append(vectors[generator.choice(len(vectors), p=share)])
    return np.array(centres)


def _rounds(vectors: np.ndarray, centres: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of squared distances to the nearest centres, and which these are; a cluster without a vector keeps its centre."""
    nearest = np.full(len(vectors), -1)
    for _ in range(ROUNDS):
        distances = _distances(vectors, centres)
        before, nearest = nearest, distances.argmin(axis=1)
        if (before == nearest).all():
            break
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        counts = np.bincount(nearest, minlength=len(centres))[:, None]
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    return float(distances.min(axis=1).sum()), nearest


def _distances(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distances [n, k]."""
    products = vectors @ centres.T
    return np.maximum((vectors**2).sum(1)[:, None] - 2 * products + (centres**2).sum(1)[None], 0.0)
