"""What the battery asks of weights: their names, and what they begin with."""

import keras
import numpy as np

from kerasbert.layers.encoder import SpecModel
from kerasbert.layers.naming import names
from kerasbert.objectives.base import Objective


def check_names(program: Objective) -> None:
    """Every weight has one name and is there once, the heads' too."""
    for model in (program.model.encoder, program.model):
        found = names(model)
        assert len(found) == len(model.weights) == len({id(weight) for weight in model.weights})
        assert {id(weight) for weight in found.values()} == {id(weight) for weight in model.weights}


def check_start(fresh: SpecModel, program: Objective) -> None:
    """No two weights begin with the same random numbers, which a Keras initializer gives again at every call.

    Args:
        fresh: a network, not built yet. program: its family's objective, whose heads nobody assigned to.
    """
    keras.utils.set_random_seed(2)  # another than that of the heads
    fresh.build()
    heads = {name: weight for name, weight in names(program.model).items() if name.startswith("heads/")}
    begun: dict[tuple, list[str]] = {}
    for name, weight in (names(fresh) | heads).items():
        first = tuple(np.asarray(weight).ravel()[:4].tolist())
        if len(set(first)) == 4:  # else constants
            begun.setdefault(first, []).append(name)
    shared = [each for each in begun.values() if len(each) > 1]
    assert not shared, f"{shared} begin with the same numbers: give each weight an initializer of its own"
