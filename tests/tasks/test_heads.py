"""New heads of tasks: the deviation that their kernels start with, whatever a family's `initializer` is a factor of."""

import dataclasses

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from tests.models.test_umt5 import TINY

WIDE = TINY | {"hidden": 64, "blocks.layers": 1, "feedforward.width": 8, "embeddings.vocabulary": 12}
NAMED = ("glue/sst2", "ner", "squad")
T5S = [name for name, family in registry.families().items() if name.removesuffix("-encoder") in ("t5", "mt5", "umt5")]


@pytest.mark.parametrize("family", T5S)
def test_t5s_heads_start_by_their_width(family):
    # modeling_t5.py, _init_weights: d_model^-0.5, of T5ClassificationHead and of qa_outputs
    encoder = kb.build(f"{family}/small", **WIDE)
    for name in NAMED:
        task = find_task(name)
        labels = {} if name == "squad" else {str(i): str(i) for i in range(40)}
        options = [task.options, {"lstm": 3}] if name == "ner" and family.endswith("encoder") else [task.options]
        for each in options:
            keras.utils.set_random_seed(0)
            model = TaskModel(encoder, dataclasses.replace(task, labels=labels, options=each))
            model.build()
            kernels = {
                w.path: w
                for head in model.heads.values()
                for w in head.weights
                if w.path.endswith("kernel") and "lstm_" not in w.path
            }
            deviations = {path: float(np.std(kernel)) for path, kernel in kernels.items()}
            assert deviations == {path: pytest.approx(64**-0.5, rel=0.25) for path in deviations}
            assert len(deviations) == 1 + (name == "glue/sst2" and family in ("t5", "mt5", "umt5"))


def test_no_familys_heads_start_large_or_faint():
    # vectors of size 1 in each number give a head numbers of about this: the tanh of a hidden layer is flat beyond 2
    found = {
        f"{name}/{size}": specs.head_deviation(spec) * spec.hidden**0.5
        for name, family in registry.families().items()
        for size in family.sizes
        for spec in [registry.find(f"{name}/{size}")[1]]
    }
    assert {name: gain for name, gain in found.items() if not 0.15 < gain < 1.5} == {}
