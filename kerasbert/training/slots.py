"""An optimizer's variables in a checkpoint, in which moments of some rows of a table (`read_rows`) stand with their ids."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import keras
import numpy as np

from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.layers.naming import copied

if TYPE_CHECKING:
    from kerasbert.training.read_rows import ReadRows

IDS = "token_ids/"  # before a tensor's name: which rows it has, float32 [r]


def variables(optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """Tensor of `optimizer.safetensors` -> variable, but for the number of updates."""
    numbered = enumerate(optimizer.variables)
    return {f"{i:05d}": each for i, each in numbered if each is not optimizer.iterations}


def values(optimizer: keras.optimizers.Optimizer) -> dict[str, np.ndarray]:
    """Tensor -> a copy of its value: the next update changes the variables' own memory."""
    held = variables(optimizer)
    ids = {IDS + name: rows.ids.astype("float32") for name, rows in _rows(optimizer, held).items()}
    return {name: copied(each) for name, each in held.items()} | ids


def assign(optimizer: keras.optimizers.Optimizer, tensors: Safetensors) -> None:
    """Give the variables the values of a checkpoint, which may have been written where other rows were held.

    Raises:
        ValueError: another shape, or moments of rows that this run does not read.
    """
    held, written = variables(optimizer), set(tensors.names())
    rows = _rows(optimizer, held)
    for name, variable in held.items():
        value, own = tensors.read(name), rows.get(name)
        ids = tensors.read(IDS + name).astype("int64") if IDS + name in written else None
        if own is None:
            variable.assign(value if ids is None else _spread(value, ids, variable.shape[0]))
        elif ids is not None and np.array_equal(ids, own.ids):
            variable.assign(value)
        else:
            whole = value if ids is None else _spread(value, ids, len(own.places))
            if whole[own.places < 0].any():
                raise ValueError("moments of rows that this run does not read")
            variable.assign(whole[own.ids])


def _spread(value: np.ndarray, ids: np.ndarray, size: int) -> np.ndarray:
    """Rows [r, E] as those of a table [V, E] that is 0 elsewhere."""
    whole = np.zeros((size, *value.shape[1:]), value.dtype)
    whole[ids] = value
    return whole


def _rows(optimizer: keras.optimizers.Optimizer, held: Mapping[str, keras.Variable]) -> "dict[str, ReadRows]":
    """Of the tensors that are of some rows alone, those."""
    moments = getattr(optimizer, "moments", {})
    return {name: moments[id(each)] for name, each in held.items() if id(each) in moments}
