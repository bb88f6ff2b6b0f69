"""How far the answers of a SavedModel in bfloat16 are from float32's."""

from collections.abc import Sequence

import numpy as np

from kerasbert.errors import InputError

LARGEST = 0.05  # of the largest value: a difference that rounding to 8 bits does not explain


def agreement(expected: Sequence[np.ndarray], received: Sequence[np.ndarray], labels: bool) -> str:
    """How far answers in bfloat16 are from float32.

    Args:
        labels: whether they are probabilities of labels, of which one is the answer.

    Raises:
        InputError: further than rounding explains.
    """
    wanted, found = np.stack(expected), np.stack(received)
    largest, size = float(np.abs(wanted - found).max(initial=0.0)), float(np.abs(wanted).max(initial=0.0))
    if not largest <= LARGEST * size:
        raise InputError(
            f"in bfloat16 the model answers otherwise (largest difference {largest:.2g} of {size:.2g}): nothing was written. "
            "Leave precision bfloat16 out"
        )
    same = int((wanted.argmax(-1) == found.argmax(-1)).sum())
    told = f", {same} of {len(wanted)} labels are equal" if labels else ""
    return f"bfloat16 against float32, of {len(wanted)} answers: largest difference {largest:.2g} of {size:.2g}{told}"
