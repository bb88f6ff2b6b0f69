"""Names of weights: `block_3/attention/query/kernel` relative to the encoder, `heads/mlm/bias` for what sits on it."""

from typing import Any

import numpy as np
from keras import ops


def names(model: Any) -> dict[str, Any]:
    """Weight name -> Keras variable of a built encoder or of a model with heads, in the order of its layers."""
    encoder = getattr(model, "encoder", None)
    if encoder is None:
        return {_after(variable.path, model.name): variable for variable in model.weights}
    found = names(encoder)
    for head in model.heads.values():
        found |= {"heads/" + _after(variable.path, "heads"): variable for variable in head.weights}
    return found


def _after(path: str, part: str) -> str:
    """What follows the first folder called `part`."""
    folders = path.split("/")
    return "/".join(folders[folders.index(part) + 1 :])


def values(model: Any) -> dict[str, np.ndarray]:
    """Weight name -> its value as float32 (`ops.convert_to_numpy` of a variable warns under numpy 2)."""
    return {name: ops.convert_to_tensor(variable).numpy().astype("float32") for name, variable in names(model).items()}
