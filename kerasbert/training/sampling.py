"""Which task an update is of, where several are learnt together. numpy alone."""

from collections.abc import Sequence

import numpy as np

from kerasbert.errors import unknown

SAMPLINGS = ("proportional", "square_root", "annealed", "uniform", "temperature")


def check(name: str | None) -> None:
    """Refuse a sampling that is none; None is the default."""
    if name is not None and name not in SAMPLINGS:
        raise unknown("sampling", name, SAMPLINGS, ", ".join(SAMPLINGS))


def task_order(
    rows: Sequence[int],
    batches: Sequence[int],
    steps: int,
    sampling: str,
    seed: int,
    limit: int | None = None,
    temperature: float = 1.0,
) -> np.ndarray:
    """Number of the task of each update: int [steps], a function of the arguments alone.

    An epoch has as many updates as all tasks have batches. "proportional" merges the batches of all tasks and shuffles them
    (Liu et al., 2019, algorithm 1), so that every row is read once an epoch. The others draw each update's task with
    p_i ~ N_i^alpha (Stickland and Murray, 2019, section 4.2): alpha is 0.5 for "square_root", 0 for "uniform", and goes
    from 1 in the first of E epochs to 0.2 in the last for "annealed", 1 - 0.8 (e - 1) / (E - 1). For "temperature" it is
    1 / temperature, and a task counts as `limit` rows at most: examples-proportional mixing at temperature 1 (Raffel et al.,
    2020, section 3.5.2).

    Args:
        rows: N_i, training rows of each task.
        batches: of an epoch of each task.
        sampling: one of SAMPLINGS.
        limit: int, the paper's K; None for none. temperature: float, the paper's T. Both are of "temperature" alone.

    >>> task_order([8, 2], [4, 1], 5, "proportional", 0).tolist()
    [0, 0, 1, 0, 0]
    """
    epoch = sum(batches)
    epochs = -(-steps // epoch)
    order = []
    for number in range(epochs):
        draw = np.random.default_rng([seed, number, len(rows)])
        if sampling == "proportional":
            order.append(draw.permutation(np.repeat(np.arange(len(rows)), batches)))
            continue
        if sampling == "temperature":
            odds = np.minimum(rows, np.inf if limit is None else limit) ** (1.0 / temperature)
        else:
            odds = np.asarray(rows, float) ** exponent(sampling, number, epochs)
        order.append(draw.choice(len(rows), size=epoch, p=odds / odds.sum()))
    return np.concatenate(order)[:steps]


def exponent(sampling: str, epoch: int, epochs: int) -> float:
    """alpha of an epoch, from 0.

    >>> [exponent("annealed", epoch, 3) for epoch in range(3)]
    [1.0, 0.6, 0.19999999999999996]
    """
    if sampling == "annealed":
        return 1.0 - 0.8 * epoch / max(1, epochs - 1)
    return {"square_root": 0.5, "uniform": 0.0}[sampling]


def earlier(order: np.ndarray) -> np.ndarray:
    """How many updates of its own task came before each update.

    >>> earlier(np.array([0, 1, 0, 0, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    found = np.zeros(len(order), int)
    for task in np.unique(order):
        mine = order == task
        found[mine] = np.arange(mine.sum())
    return found
