"""SavedModels in bfloat16: half the bytes, and products that newer processors compute faster; how far they are from float32."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import initial
from kerasbert.layers.naming import names, values
from kerasbert.tasks.adapted_models import rebuilt

LARGEST = 0.05  # of the largest value: a difference that rounding to 8 bits does not explain


def in_bfloat16(model: Any) -> Any:
    """The model with weights and products in bfloat16; softmax and norms are computed in float32.

    Raises:
        InputError: a network that cannot be made in bfloat16, or whose weights are not its family's alone.
    """
    encoder = getattr(model, "encoder", model)
    held = values(encoder)
    kept = InputError(f"precision bfloat16: {type(encoder).__name__} is computed in float32 alone. Leave it out")
    read = {name: lambda value=value: value for name, value in held.items()}
    try:
        with initial.unset():
            made = rebuilt(model, encoder.spec, "bfloat16", read)
    except tf.errors.InvalidArgumentError as error:  # orthogonal matrices, which LSTMs begin with
        raise kept from error
    other = getattr(made, "encoder", made)
    if type(other) is not type(encoder) or names(other).keys() != held.keys():
        raise kept
    return made


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
