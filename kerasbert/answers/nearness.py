"""How near a file's answers are to its model's, in numbers: fidelity of the scores, decisions that are the same or tie. numpy.

A *score* is what an answer is decided by: log-probabilities, log-odds, or the number that is answered. A model that answers one
label to every text still has scores that differ from text to text.
"""

import numpy as np

LEAST = -10.0
"""Log of the least probability that counts (4.5e-5): below it a label is out of the question, however far."""
TIE = 0.2
"""Most of the scores' standard deviation that a tie may be wide: the rounding of a file that is worth anything is far less."""


def logs(probabilities: np.ndarray) -> np.ndarray:
    """Logs of probabilities, LEAST at least: float32."""
    return np.log(np.maximum(probabilities, np.exp(LEAST))).astype("float32")


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """log(p / (1 - p)), between LEAST and -LEAST."""
    values = np.clip(np.asarray(probabilities, "float64"), 1e-30, 1 - 2**-24)
    return np.clip(np.log(values) - np.log1p(-values), LEAST, -LEAST).astype("float32")


def log_softmax(logits: np.ndarray, axis: int = -1) -> np.ndarray:
    """Log-probabilities of logits, LEAST at least."""
    shifted = logits - logits.max(axis=axis, keepdims=True)
    return np.maximum(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)), LEAST)


def spread(scores: np.ndarray) -> float:
    """Standard deviation of scores [n, C] from text to text; of a single row from column to column."""
    return float(np.sqrt(np.square(_centred(scores)).mean())) if np.size(scores) else 0.0


def _centred(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, "float64")
    return scores - scores.mean(0 if len(scores) > 1 else 1, keepdims=True)


def fidelity(expected: np.ndarray, received: np.ndarray) -> float:
    """Share of the variance of a model's scores that a file keeps, R squared: 1 - variance of the errors / variance; at least 0.

    1 - 10^(-SQNR / 10), of the signal-to-quantization-noise ratio. Unlike a correlation it falls by a wrong scale too. What is
    the same for all texts is left to `offset`.

    Args:
        expected, received: [n, C], the same decisions in the same order.

    >>> e = np.array([[0.0], [2.0], [4.0]])
    >>> fidelity(e, e), fidelity(e, 2 * e), fidelity(e, e + 0.1), round(fidelity(e, 0.9 * e), 4)
    (1.0, 0.0, 1.0, 0.99)
    """
    expected, received = np.asarray(expected, "float64"), np.asarray(received, "float64")
    if not np.isfinite(received).all():
        return 0.0
    error, own = spread(received - expected), spread(expected)
    if error <= 1e-12:
        return 1.0
    return max(0.0, 1 - (error / own) ** 2) if own else 0.0


def offset(expected: np.ndarray, received: np.ndarray) -> float:
    """How far a file's scores are off on the mean of all texts, in standard deviations of the model's.

    >>> e = np.array([[0.0], [2.0]])
    >>> offset(e, e + 0.5), offset(e, e[::-1])
    (0.5, 0.0)
    """
    own = spread(expected)
    if not len(expected) or not own:
        return 0.0
    return float(np.sqrt(np.square((np.asarray(received, "float64") - expected).mean(0)).mean()) / own)


def same_best(expected: np.ndarray, received: np.ndarray, ties: bool = False) -> float:
    """Share of rows [n, C] with the same best column.

    Args:
        ties: bool, whether another one counts as the same where the model's two scores tie within the file's rounding.

    >>> e, r = np.array([[2.0, 0], [0.01, 0], [0, 2]]), np.array([[1.98, 0], [-0.01, 0], [0, 2.02]])
    >>> round(same_best(e, r), 4), same_best(e, r, ties=True)
    (0.6667, 1.0)
    """
    if not expected.size:
        return 1.0
    each, own, theirs = np.arange(len(expected)), expected.argmax(-1), received.argmax(-1)
    differ = own != theirs
    if ties and differ.any():
        second = np.argpartition(-expected, 1, axis=-1)[:, 1]
        errors = (received[each, own] - received[each, second]) - (expected[each, own] - expected[each, second])
        differ &= (expected[each, own] - expected[each, theirs]) > rounding(errors, expected)
    return float(1 - differ.mean())


def rounding(errors: np.ndarray, expected: np.ndarray) -> float:
    """How far apart two scores tie: twice the root mean square of the file's errors of such differences, at most TIE.

    Args:
        errors: [...]. expected: the model's scores, [n, C].
    """
    return min(2 * float(np.sqrt(np.square(errors, dtype="float64").mean())), TIE * spread(expected))
