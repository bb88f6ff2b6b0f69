"""Which weights go: masks by magnitude (Han et al., 2015, section 3), True = kept. Numpy alone.

Kernels are [in, out]. A block of `4x1` is four inputs in a row of one output, as tfmot's `block_size=(4, 1)`; `2:4` keeps the
two largest of each four inputs in a row of one output (Mishra et al., 2021, section 3), as tfmot's `sparsity_m_by_n=(2, 4)`.
Of equal magnitudes the first goes, in the order of names, rows and columns.
"""

from collections.abc import Mapping

import numpy as np

from kerasbert.errors import InputError, unknown

STRUCTURES = {"none": 1, "4x1": 4, "2:4": 4}  # how many inputs belong together
SCOPES = ("layer", "global")
SCHEDULES = ("polynomial", "constant")

Arrays = Mapping[str, np.ndarray]


def settled(
    sparsity: float | None,
    structure: str = "none",
    scope: str = "layer",
    schedule: str | None = None,
    *later: int | None,
) -> tuple[float, str]:
    """The share and the schedule that hold; `later` are end and frequency. Raises: InputError: see `sparsity.Magnitude`."""
    names = ("structure", structure, STRUCTURES), ("scope", scope, SCOPES)
    for what, value, known in (*names, ("schedule of pruning", schedule or "polynomial", SCHEDULES)):
        if value not in known:
            raise unknown(what, value, known, ", ".join(known))
    if structure == "2:4":
        if sparsity not in (None, 0.5) or scope != "layer" or schedule == "polynomial":
            raise InputError("2:4 takes half of every four weights at once: leave out sparsity, scope and schedule")
        sparsity, schedule = 0.5, "constant"
    if schedule == "constant" and any(value is not None for value in later):
        of = "2:4" if structure == "2:4" else "the constant schedule"
        raise InputError(f"end and frequency do not go with {of}: masks are made once, before update `begin`")
    if sparsity is None or type(sparsity) not in (int, float) or not 0 <= sparsity < 1:
        raise InputError(f"sparsity must be in [0, 1), such as 0.5. Received: {sparsity!r}")
    return float(sparsity), schedule or "polynomial"


def fits(shape: tuple[int, ...], structure: str) -> bool:
    """Whether a kernel's inputs divide into the structure's groups."""
    return shape[0] % STRUCTURES[structure] == 0


def masks(weights: Arrays, sparsity: float, structure: str, scope: str, old: Arrays) -> dict[str, np.ndarray]:
    """Name -> bool [in, out].

    Args:
        weights: name -> float [in, out].
        sparsity: float, the share that goes, to the nearest whole number of weights (or blocks); "2:4" takes half
            whatever it says.
        structure: a key of STRUCTURES.
        scope: "layer" takes the share of each kernel, "global" of all of them together.
        old: name -> bool, the masks so far: what is gone stays gone as long as the sparsity does not fall.
    """
    # what is gone ranks below a kept weight of zero
    ranked = {name: np.where(old[name], np.abs(weights[name]), -1).astype("float32") for name in sorted(weights)}
    if structure == "2:4":
        return {name: two_of_four(value) for name, value in ranked.items()}
    size = STRUCTURES[structure]
    blocks = {name: _blocks(value, size) for name, value in ranked.items()}
    if scope == "layer":
        kept = {name: largest(value, sparsity) for name, value in blocks.items()}
    else:
        flat = largest(np.concatenate([value.reshape(-1) for value in blocks.values()]), sparsity)
        ends = np.cumsum([value.size for value in blocks.values()])[:-1]
        parts = zip(blocks.items(), np.split(flat, ends), strict=True)
        kept = {name: part.reshape(value.shape) for (name, value), part in parts}
    return {name: np.repeat(value, size, axis=0) for name, value in kept.items()}


def largest(values: np.ndarray, sparsity: float) -> np.ndarray:
    """True for all but the smallest round(sparsity * n) values.

    >>> largest(np.array([3.0, 1.0, 1.0, 2.0]), 0.25)
    array([ True, False,  True,  True])
    """
    flat = values.reshape(-1)
    count = round(sparsity * flat.size)
    kept = np.ones(flat.size, bool)
    if count:
        threshold = np.partition(flat, count - 1)[count - 1]
        kept[flat < threshold] = False
        ties = np.flatnonzero(flat == threshold)
        kept[ties[: count - (flat.size - int(kept.sum()))]] = False
    return kept.reshape(values.shape)


def two_of_four(values: np.ndarray) -> np.ndarray:
    """True for the two largest of each four rows in a row, column by column.

    >>> two_of_four(np.array([[4.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])).astype(int).T
    array([[1, 0, 0, 1],
           [0, 0, 1, 1]])
    """
    groups = values.reshape(-1, 4, values.shape[1])
    ranks = np.argsort(np.argsort(groups, axis=1, kind="stable"), axis=1, kind="stable")
    return (ranks >= 2).reshape(values.shape)


def _blocks(values: np.ndarray, size: int) -> np.ndarray:
    """[in, out] -> means over `size` rows, [in / size, out] (tfmot's average pooling)."""
    return values.reshape(-1, size, values.shape[1]).mean(axis=1)
