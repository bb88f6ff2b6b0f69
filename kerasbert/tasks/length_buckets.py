"""The lengths that batches are padded to in training: each saves padding, and may be a graph to trace and compile."""

import math
from collections.abc import Sequence

import numpy as np

STEP = 4
# A graph of MiniLM takes about 3 s of a CPU to trace and compile, a token of an update 11 ps for every weight: both grow with
# the model.
GRAPH = 2.5e11  # tokens x weights
MOST = 16  # graphs: each holds memory


def chosen(
    longest: Sequence[int] | np.ndarray, *, rows: float, weights: int, most: int, graph: float = GRAPH
) -> tuple[int, ...]:
    """The lengths for which padding and compiling together take the least time, ascending.

    Args:
        longest: int [batches], tokens of the longest row of each batch of an epoch.
        rows: how many rows the whole training pads in the place of one of these batches: its rows times the epochs.
        weights: of the model.
        most: int, no length is greater; longer rows were truncated to it.
        graph: float, what a length costs, in tokens x weights; 0 where one graph takes all.

    >>> chosen([7, 8, 30, 31], rows=32.0, weights=2 * 10**7, most=128)
    (32,)
    >>> chosen([7, 8, 30, 31], rows=32e4, weights=2 * 10**7, most=128)
    (8, 32)
    """
    padded = np.minimum(-(-np.asarray(longest) // STEP) * STEP, most)
    lengths, counts = np.unique(padded, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)]) * rows * weights
    # cost and lengths of the batches up to each length, by how many there are
    best: list[dict[int, tuple[float, tuple[int, ...]]]] = [{0: (0.0, ())}]
    for j, length in enumerate(lengths.tolist(), 1):
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for i in range(j):
            group = length * (before[j] - before[i]) + graph
            for count, (cost, taken) in best[i].items():
                if count < MOST and cost + group < found.get(count + 1, (math.inf,))[0]:
                    found[count + 1] = cost + group, (*taken, length)
        best.append(found)
    return min(best[-1].values())[1]
