"""Decoding under a conditional random field, in numpy: the best path, marginals, likelihood (see `layers.crf`).

A *table* is float64 [L + 2, L]: the transitions (from, to), then the scores of the first and of the last label. All is
worked out in float64, and the graph does the same operations in the same order (`tasks.tags_graph`).
"""

from collections.abc import Callable

import numpy as np


def best_path(emissions: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The labels with the highest score (Viterbi): [W, L] -> int [W].

    Of equal paths the one whose last label comes first in the order of the labels, then the one before it.
    """
    transitions, start, after = table[:-2], table[-2], table[-1]
    states, labels = _along(emissions, transitions, start, np.max), np.zeros(len(emissions), int)
    for t in range(len(states) - 1, -1, -1):
        labels[t] = (states[t] + after).argmax()
        after = transitions[:, labels[t]]
    return labels


def marginals(emissions: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The probability of each label at each word, over all paths (forward-backward): [W, L] -> float64 [W, L]."""
    ahead = _along(emissions, table[:-2], table[-2], _log_sum)
    back = _along(emissions[::-1], table[:-2].T, table[-1], _log_sum)[::-1]
    scores = ahead + back - emissions
    return np.exp(scores - _log_sum(scores, 1)[:, None])


def nats(emissions: np.ndarray, labels: np.ndarray, table: np.ndarray) -> float:
    """The negative log-likelihood of labels, int [W]; 0 of none."""
    if not len(labels):
        return 0.0
    pairs = table[labels[:-1], labels[1:]].sum() + table[-2, labels[0]] + table[-1, labels[-1]]
    states = _along(emissions, table[:-2], table[-2], _log_sum)
    return float(_log_sum(states[-1] + table[-1], 0) - emissions[np.arange(len(labels)), labels].sum() - pairs)


def _along(emissions: np.ndarray, transitions: np.ndarray, start: np.ndarray, total: Callable) -> np.ndarray:
    """The total of all paths up to each word that end in each label: [W, L] -> [W, L]."""
    states = np.array(emissions, "float64")
    for t in range(len(states)):
        states[t] += total(states[t - 1][:, None] + transitions, 0) if t else start
    return states


def _log_sum(scores: np.ndarray, axis: int) -> np.ndarray:
    highest = scores.max(axis=axis, keepdims=True)
    return np.log(np.exp(scores - highest).sum(axis=axis)) + np.squeeze(highest, axis)
