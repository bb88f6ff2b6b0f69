"""Names of weights: `block_3/attention/query/kernel` relative to the encoder, `heads/mlm/bias` for what sits on it."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

import keras
import numpy as np
from keras import ops

from kerasbert.inputs import Tensor

Built = TypeVar("Built", bound=keras.Model)


def names(model: keras.layers.Layer) -> dict[str, Tensor]:
    """Weight name -> Keras variable of a built encoder or of a model with heads, in the order of its layers."""
    body = getattr(model, "body", None)
    if body is None:
        return {_after(variable.path, model.name): variable for variable in model.weights}
    variables = names(body)
    for name, head in model.heads.items():
        if isinstance(head, Mapping):  # weights that stand for themselves
            variables |= {f"heads/{name}/{weight}": variable for weight, variable in head.items()}
            continue
        variables |= {"heads/" + _after(variable.path, "heads"): variable for variable in head.weights}
    return variables


def _after(path: str, folder: str) -> str:
    """What follows the first folder of that name."""
    folders = path.split("/")
    if folder not in folders:  # of a layer that a user's functional model holds: nothing stands above it
        return path
    return "/".join(folders[folders.index(folder) + 1 :])


def values(model: keras.layers.Layer, but: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Weight name, of all but these -> a copy of its value, float32 (`ops.convert_to_numpy` of one warns under numpy 2)."""
    found = {name: variable for name, variable in names(model).items() if name not in but}
    return {name: copied(variable).astype("float32", copy=False) for name, variable in found.items()}


def copied(variable: keras.Variable) -> np.ndarray:
    """A variable's value as an array of its own (`Tensor.numpy` copies): later updates leave it alone."""
    return np.asarray(ops.convert_to_tensor(variable).numpy())


def sharing(build: Callable[[], Built], base: keras.Model, own: Collection[str]) -> Built:
    """A model whose weights are those of `base` in memory, the very same, but for the names in `own` and what it has not.

    Keras has no public way to build a model around variables that are there: `_value` is what a variable holds, None
    until it is given memory; tests/training/test_adapted.py fails if that moves.
    """
    with unallocated():
        model = build()
    lent = names(base)
    for name, variable in names(model).items():
        if name in own or name not in lent:
            variable._deferred_initialize()
        else:
            variable._value, variable._initializer = lent[name]._value, None
    return model


@contextlib.contextmanager
def unallocated() -> Iterator[None]:
    """Models built within it have names and shapes and no memory.

    Keras notes such variables down and gives them memory when any later scope ends, for instance in a user's `fit`;
    the note is taken back here. The list has no public name: tests/models fails if it moves.
    """
    from keras.src.backend.common import global_state

    waiting = list(global_state.get_global_attribute("uninitialized_variables") or [])
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute("uninitialized_variables", waiting)
