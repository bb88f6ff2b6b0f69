"""Updates of a program by one micro-batch and by several."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasbert.layers.naming import values
from kerasbert.testing import battery
from kerasbert.training.optimizers import adamw
from kerasbert.training.step import StepCore


def makes_the_same_updates(made: Callable[[], tuple[Any, Any]], counts: Sequence[int] = (1, 2), steps: int = 1) -> None:
    """`made` gives the same program and subject at each call: the weights are equal to 1e-6 for every count."""
    found = {}
    for accumulate in counts:
        program, subject = made()
        core = StepCore(
            program, adamw(learning_rate=1e-2, steps=10), tf.distribute.get_strategy(), accumulate=accumulate, seed=5
        )
        data = iter(subject.records().dataset(8, seed=0, prepare=program.prepare))
        with battery.eagerly():
            for _ in range(steps):
                core.step(next(data))
        found[accumulate] = values(program.model)
    first, *others = counts
    for name, value in found[first].items():
        for other in others:
            np.testing.assert_allclose(found[other][name], value, rtol=0, atol=1e-6, err_msg=name)
