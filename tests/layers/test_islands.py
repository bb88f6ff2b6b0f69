"""A compiled island is the plain function: values and gradients, dropout included."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers import attention, feedforward, norms, random
from kerasbert.layers.backend import island, islands
from kerasbert.objectives import program

RNG = np.random.default_rng(7)
KEYS = random.key(3, "test", np.arange(6))


def array(*shape):
    return tf.constant(RNG.normal(size=shape), tf.float32)


CASES = {
    "add_and_norm": (norms.add_and_norm, [array(6, 5, 12), array(6, 5, 12), array(12), array(12), KEYS], [0, 1, 2, 3]),
    "norm": (norms.norm, [array(6, 5, 12), array(12), array(12), None], [0, 1, 2]),
    "look": (attention.look, [array(6, 3, 5, 5), array(6, 1, 1, 5), KEYS], [0]),
    "look without bias": (attention.look, [array(6, 3, 5, 5), None, KEYS], [0]),
    "activate": (feedforward.activate, [array(6, 5, 12), array(12)], [0, 1]),
    "label_sums": (program.label_sums, [array(6, 5, 9), tf.constant(RNG.integers(0, 9, (6, 5))), array(6, 5)], [0]),
}
STATIC = {
    "add_and_norm": {"epsilon": 1e-6, "rate": 0.3},
    "norm": {"epsilon": 1e-6, "rate": 0.3},
    "look": {"rate": 0.2},
    "look without bias": {"rate": 0.2},
    "activate": {"activation": "gelu"},
    "label_sums": {},
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_plain_function(name):
    function, arrays, differentiated = CASES[name]
    watched = [arrays[i] for i in differentiated]
    found = []
    for on in (False, True):
        with islands(on), tf.GradientTape() as tape:
            tape.watch(watched)
            values = tf.nest.flatten(function(*arrays, **STATIC[name]))
            loss = tf.add_n([tf.reduce_sum(tf.sin(value)) for value in values])
        found.append([*values, *tape.gradient(loss, watched)])
    for plain, fast in zip(*found, strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)


def test_an_island_is_compiled_only_where_the_step_core_says_so():
    seen = []

    @island
    def twice(x):
        seen.append(type(x).__name__)
        return x * 2

    twice(tf.constant(1.0))
    with islands(True):
        assert float(twice(tf.constant(3.0))) == 6.0
    assert seen == ["EagerTensor", "SymbolicTensor"]


def test_what_is_constant_gets_no_gradient():
    function, (scores, bias, keys), _ = CASES["look"]
    with islands(True), tf.GradientTape() as tape:
        tape.watch([scores, bias])
        loss = tf.reduce_sum(function(scores, bias, keys, rate=0.2) ** 2)
    one, other = tape.gradient(loss, [scores, bias])
    assert one is not None
    assert other is None
