"""Tensors in checkpoints of others that are no weights but what their code computes once: compared with what is computed here.

A dialect names them in `buffers`, pattern -> one of these functions: the shape in the file -> the numbers that belong there, or
None where no tensor of that shape does.
"""

from collections.abc import Callable

import numpy as np

Expected = Callable[[tuple[int, ...]], np.ndarray | None]
HIDDEN = -1000.0  # what their code adds to a score that is not to count; any such number leaves nothing of it


def counted(shape: tuple[int, ...]) -> np.ndarray:
    """Positions 0, 1, 2, ... on the last axis."""
    return np.broadcast_to(np.arange(shape[-1]) if shape else 0, shape)


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Segments, all of them the first."""
    return np.zeros(shape)


def causal(shape: tuple[int, ...]) -> np.ndarray | None:
    """Ones on and below the diagonal of the last two axes: what each token sees."""
    return np.broadcast_to(np.tri(shape[-2], shape[-1]), shape) if len(shape) > 1 else None


def sines(shape: tuple[int, ...]) -> np.ndarray | None:
    """Vaswani et al., 2017, section 3.5, all sines before all cosines [positions, width]."""
    if len(shape) != 2:
        return None
    width = shape[1]
    angles = np.arange(shape[0])[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : width // 2])], axis=1)


def frequencies(shape: tuple[int, ...]) -> np.ndarray | None:
    """What positions are multiplied with before the sine [width / 2]."""
    return 10000 ** -(np.arange(shape[0]) / shape[0]) if len(shape) == 1 else None


def hidden(shape: tuple[int, ...]) -> np.ndarray:
    """At most `HIDDEN`."""
    return np.full(shape, HIDDEN)


def agrees(values: np.ndarray, expected: Expected) -> bool:
    """Whether a tensor of theirs holds what is computed here, up to the rounding of its type."""
    wanted, values = expected(values.shape), np.asarray(values)
    if wanted is None or not np.isfinite(values.astype("float64")).all():
        return False
    if expected is hidden:
        return bool((values.astype("float64") <= HIDDEN).all())
    rough = values.dtype.kind == "f" and values.dtype.itemsize < 4
    return bool(np.allclose(values.astype("float64"), wanted, rtol=0, atol=1e-2 if rough else 1e-3))
