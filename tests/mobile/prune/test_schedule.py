"""Schedules of pruning, by hand and against tfmot's own."""

import json

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.prune.masks import masks
from kerasbert.mobile.prune.schedule import Schedule, make_schedule
from tests.support import python


def test_the_polynomial_by_hand():
    plan = Schedule(0.8, begin=10, end=30, frequency=5)
    assert plan.at(10) == 0.0
    assert plan.at(20) == pytest.approx(0.8 * (1 - 0.125))
    assert plan.at(30) == plan.at(99) == 0.8
    assert [step for step in range(40) if plan.due(step)] == [10, 15, 20, 25, 30]


def test_the_last_time_is_the_end_itself():
    plan = Schedule(0.8, begin=0, end=7, frequency=3)
    due = [step for step in range(10) if plan.due(step)]
    assert due == [0, 3, 6, 7]
    found, step = [], -1
    while (step := plan.next(step)) is not None:
        found.append(step)
    assert found == due
    assert plan.next(1) == 3


def test_defaults():
    assert make_schedule("polynomial", 0.5, 300, None, None, None) == Schedule(0.5, 0, 200, 10)
    assert make_schedule("constant", 0.5, 300, 20, None, None) == Schedule(0.5, 20, 20, 1, power=0)
    assert make_schedule("polynomial", 0.5, 1, None, None, None).at(0) == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, None, None), "begin of pruning must be from 0 to 9, of 10 updates. Received: 10"),
        ((-1, None, None), "begin of pruning must be from 0 to 9"),
        ((5, 3, None), "end of pruning must be from 5 to 9, of 10 updates. Received: 3"),
        ((0, 10, None), "end of pruning must be from 0 to 9"),
        ((0, 5, 0), "frequency of pruning must be a whole number of at least 1. Received: 0"),
        ((0.5, 5, 1), "begin of pruning"),
    ],
)
def test_bad_times(arguments, message):
    with pytest.raises(InputError, match=message):
        make_schedule("polynomial", 0.5, 10, *arguments)


THEIRS = """
import json
import tensorflow as tf
from tensorflow_model_optimization.python.core.sparsity.keras import pruning_schedule as theirs
made = {
    "polynomial": theirs.PolynomialDecay(0.0, 0.8, 10, 40, frequency=5),
    "constant": theirs.ConstantSparsity(0.8, 10, 40, frequency=5),
}
found = {}
for name, plan in made.items():
    rows = [plan(tf.constant(step)) for step in range(60)]
    found[name] = [[bool(due), float(sparsity)] for due, sparsity in rows]
import numpy as np
from tensorflow_model_optimization.python.core.sparsity.keras import pruning_impl, pruning_utils
weights = tf.constant(np.random.default_rng(0).normal(size=(16, 6)).astype("float32"))
two = pruning_utils.generate_m_by_n_mask(pruning_utils.weights_rearrange(tf.abs(weights)), (2, 4))
found["2:4"] = pruning_utils.m_by_n_sparsity_mask_prepare(two, weights.shape).numpy().tolist()
half = theirs.ConstantSparsity(0.5, 0)
for name, block in (("none", (1, 1)), ("4x1", (4, 1))):
    pruner = pruning_impl.Pruning(lambda: tf.constant(0), [], half, block, "AVG")
    found[name] = pruner._maybe_update_block_mask(weights)[1].numpy().tolist()
print(json.dumps(found))
"""


@pytest.mark.peers
def test_they_are_those_of_tfmot_and_so_are_the_masks():
    pytest.importorskip("tensorflow_model_optimization")
    found = json.loads(python("-W", "ignore", "-c", THEIRS).stdout.splitlines()[-1])
    for name, power in (("polynomial", 3), ("constant", 0)):
        plan = Schedule(0.8, begin=10, end=40, frequency=5, power=power)
        assert [due for due, _ in found[name]] == [plan.due(step) for step in range(60)]
        assert [sparsity for _, sparsity in found[name]] == pytest.approx([plan.at(s) for s in range(60)], abs=1e-6)
    weights = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")
    for structure in ("none", "4x1", "2:4"):
        ours = masks({"w": weights}, 0.5, structure, "layer", {"w": np.ones(weights.shape, bool)})["w"]
        np.testing.assert_array_equal(ours, found[structure])
