"""Metrics of labels and of numbers, in double precision: what scikit-learn and scipy give, and 0 where theirs are undefined.

Undefined: no row to divide by (the precision of a label that is never answered), or a constant (a correlation).
"""

from collections.abc import Callable

import numpy as np


def confusion(targets: np.ndarray, predicted: np.ndarray, labels: int) -> np.ndarray:
    """Rows by target and answer: [target, answer], float64 [labels, labels].

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    table = np.zeros((labels, labels))
    np.add.at(table, (targets, predicted), 1)
    return table


def between(low: float, high: float, otherwise: float) -> float:
    """The middle of two numbers with as few digits, six at least, as keep it between them in float32 too.

    Args:
        otherwise: what is returned where float32 has nothing between them.

    >>> between(1e-9, 2e-7, 0.0), between(0.1, 0.2, 0.0)
    (1.005e-07, 0.15)
    """
    for digits in range(6, 10):
        value = float(f"{(low + high) / 2:.{digits}g}")
        if low < float(np.float32(value)) < high:
            return value
    return otherwise


def precision_recall_f1(hits: np.ndarray, answered: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
    """Precision, recall and F1 of labels; 0 where undefined.

    Args:
        hits: [...] how often a label was answered rightly. answered: how often at all. wanted: how many rows have it.
    """
    return _share(hits, answered), _share(hits, wanted), _share(2 * hits, answered + wanted)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0)


def matthews(table: np.ndarray) -> float:
    """Matthews' correlation of a confusion table (Gorodkin, 2004, for more than two labels); 0 where undefined."""
    rows, columns, n = table.sum(1), table.sum(0), table.sum()
    spread = np.sqrt((n**2 - (rows**2).sum()) * (n**2 - (columns**2).sum()))
    return float((np.diag(table).sum() * n - (rows * columns).sum()) / spread) if spread else 0.0


def roc_auc(scores: np.ndarray, wanted: np.ndarray) -> float:
    """Area under the ROC curve: how often a row with the label scores above one without, ties by half.

    0 where no row, or every row, has the label.

    Args:
        scores: float [n]. wanted: bool [n].

    >>> roc_auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True]))
    0.875
    """
    positive = np.asarray(wanted, bool)
    yes, no = int(positive.sum()), int((~positive).sum())
    if not yes or not no:
        return 0.0
    return float((ranks(scores)[positive].sum() - yes * (yes - 1) / 2) / (yes * no))


def roc_auc_of(scores: np.ndarray, wanted: np.ndarray) -> Callable[[np.ndarray], float]:
    """`roc_auc` of samples of the same rows: how often each row is drawn, int [n] -> the area; for many samples.

    >>> area = roc_auc_of(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True]))
    >>> area(np.array([1, 1, 1, 1])), area(np.array([0, 0, 2, 1])), area(np.array([1, 0, 0, 0]))
    (0.875, 1.0, 0.0)
    """
    values, places = np.unique(scores, return_inverse=True)
    positive = np.asarray(wanted, bool)

    def area(drawn: np.ndarray) -> float:
        yes = np.bincount(places, drawn * positive, len(values))
        no = np.bincount(places, drawn * ~positive, len(values))
        pairs = yes.sum() * no.sum()
        return float((yes * (no.cumsum() - no / 2)).sum() / pairs) if pairs else 0.0

    return area


def ranks(x: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs.

    >>> ranks(np.array([3, 1, 1])).tolist()
    [2.0, 0.5, 0.5]
    """
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[inverse]


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation of two arrays [n]; 0 where one of them is constant."""
    x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
    if not len(x) or x.min() == x.max() or y.min() == y.max():  # the mean of equal numbers may differ from them
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt((x * x).sum()) * np.sqrt((y * y).sum())
    return float(np.clip((x * y).sum() / scale, -1, 1)) if scale else 0.0


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks."""
    return pearson(ranks(x), ranks(y))


def log_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    """Mean cross-entropy of labels, in nats.

    Args:
        logits: [n, L], up to a constant a row. targets: int [n].
    """
    return float(nats(logits, targets).mean())


def nats(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Cross-entropy of each row, [n]; as of `log_loss`."""
    shifted = logits.astype("float64") - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -logs[np.arange(len(targets)), targets]


def binary_log_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    """Mean binary cross-entropy of labels that are each there or not, in nats.

    Args:
        logits: [n, L]. targets: [n, L] of 0 and 1.
    """
    x = logits.astype("float64")
    return float(np.mean(np.maximum(x, 0) - x * targets + np.log1p(np.exp(-np.abs(x)))))
