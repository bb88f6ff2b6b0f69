"""The lengths that batches are padded to in training: each saves padding, and may be a graph to trace and compile."""

import math
from collections.abc import Sequence

import numpy as np

STEP = 4
# A graph of MiniLM takes about 3 s of a CPU to trace and compile, a token of an update 11 ps for every weight: both grow with
# the model. Where one graph takes all lengths, the products of a new one are compiled, .05 s.
GRAPH, OPEN = 2.5e11, 4e9  # tokens x weights
MOST = 16  # graphs: each holds memory
MOST_OPEN = 32
# What two readings take, of one with as many tokens: 16 pairs of STS-B (MiniLM) took 6% more in bfloat16, 32 in float32 1%
APART = 1.05


def parted(
    longest: np.ndarray, *, rows: float, weights: int, most: int, graph: float = GRAPH
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lengths of batches of k rows a text, such as a question and a paragraph, and those of the first rows by themselves.

    The latter are empty where all rows of a batch are best padded to one length: a network that reads the first rows apart from
    the others is traced twice, and each pair of lengths may be a graph.

    Args:
        longest: int [batches, k], tokens of the longest of the first rows, of the second ones, ... of each batch.
        rows: of one of the k. weights, most, graph: as of `chosen`.

    >>> parted(np.array([[8, 100], [12, 120]]), rows=32e4, weights=2 * 10**7, most=128)
    ((100, 120), (8, 12))
    >>> parted(np.array([[8, 100], [12, 120]]), rows=32.0, weights=2 * 10**7, most=128)
    ((120,), ())
    """
    inputs = longest.shape[1]

    def cost(longest: np.ndarray, lengths: tuple[int, ...], each: int) -> float:
        padded = np.array(lengths)[np.searchsorted(lengths, np.minimum(longest, most))]
        return float(padded.sum()) * each * rows * weights

    def choose(longest: np.ndarray, each: int, graph: float) -> tuple[int, ...]:
        return chosen(longest, rows=each * rows, weights=weights, most=most, graph=graph)

    whole = choose(every := longest.max(axis=1), inputs, graph)
    if inputs == 1:
        return whole, ()
    others = choose(rest := longest[:, 1:].max(axis=1), inputs - 1, graph)
    first = choose(longest[:, 0], 1, graph * len(others))
    graphs, traced = (len(first) * len(others), len(whole)) if graph else (1, 1)
    apart = APART * (cost(longest[:, 0], first, 1) + cost(rest, others, inputs - 1))
    apart += 2 * graphs * (graph or GRAPH)
    return (others, first) if apart < cost(every, whole, inputs) + traced * (graph or GRAPH) else (whole, ())


def halved(longest: np.ndarray, step: int) -> tuple[int, ...]:
    """The length of first rows where compiling costs most: one, where they or the others are half as long as the rest; else none.

    Args:
        longest: as of `parted`. step: int, lengths are multiples of it.

    >>> halved(np.array([[8, 100], [12, 120]]), 16), halved(np.array([[8, 10], [12, 12]]), 16)
    ((16,), ())
    """
    if longest.shape[1] == 1:
        return ()
    first, rest = (-(-int(each.max()) // step) * step for each in (longest[:, 0], longest[:, 1:]))
    return (first,) if 2 * min(first, rest) <= max(first, rest) else ()


def chosen(
    longest: Sequence[int] | np.ndarray, *, rows: float, weights: int, most: int, graph: float = GRAPH
) -> tuple[int, ...]:
    """The lengths for which padding and compiling together take the least time, ascending.

    Args:
        longest: int [batches], tokens of the longest row of each batch of an epoch.
        rows: how many rows the whole training pads in the place of one of these batches: its rows times the epochs.
        weights: of the model.
        most: int, no length is greater; longer rows were truncated to it.
        graph: float, what a graph costs, in tokens x weights; 0 where one takes all lengths: any is taken then, not only
            multiples of STEP (of texts above 128 tokens those of 2, 3, ...).

    >>> chosen([7, 8, 30, 31], rows=32.0, weights=2 * 10**7, most=128)
    (32,)
    >>> chosen([7, 8, 30, 31], rows=32e4, weights=2 * 10**7, most=128)
    (8, 32)
    """
    step, count_most = (STEP, MOST) if graph else (-(-most // 128), MOST_OPEN)
    padded = np.minimum(-(-np.asarray(longest) // step) * step, most)
    lengths, counts = np.unique(padded, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)]) * rows * weights
    # cost and lengths of the batches up to each length, by how many there are
    best: list[dict[int, tuple[float, tuple[int, ...]]]] = [{0: (0.0, ())}]
    for j, length in enumerate(lengths.tolist(), 1):
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for i in range(j):
            group = length * (before[j] - before[i]) + (graph or OPEN)
            for count, (cost, taken) in best[i].items():
                if count < count_most and cost + group < found.get(count + 1, (math.inf,))[0]:
                    found[count + 1] = cost + group, (*taken, length)
        best.append(found)
    return min(best[-1].values())[1]
