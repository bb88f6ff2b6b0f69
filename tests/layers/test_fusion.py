"""A fused function is the plain one: values and gradients, dropout included."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers import attention, backend, feedforward, norms, random
from kerasbert.layers.backend import fused, fusion
from kerasbert.objectives import program

RNG = np.random.default_rng(7)
KEYS = random.key(3, "test", np.arange(6))


def array(*shape):
    return tf.constant(RNG.normal(size=shape), tf.float32)


CASES = {
    "add_and_norm": (norms.add_and_norm, [array(6, 5, 12), array(6, 5, 12), array(12), array(12), KEYS], [0, 1, 2, 3]),
    "norm": (norms.norm, [array(6, 5, 12), array(12), array(12), None], [0, 1, 2]),
    "attention_weights": (attention.attention_weights, [array(6, 3, 5, 5), array(6, 1, 1, 5), KEYS], [0]),
    "learned bias": (attention.attention_weights, [array(6, 3, 5, 5), array(6, 1, 5, 5), KEYS], [0, 1]),
    "without bias": (attention.attention_weights, [array(6, 3, 5, 5), None, KEYS], [0]),
    "activate": (feedforward.activate, [array(6, 5, 12), array(12)], [0, 1]),
    "activate without bias": (feedforward.activate, [array(6, 5, 12), None], [0]),
    "label_sums": (program.label_sums, [array(6, 5, 9), tf.constant(RNG.integers(0, 9, (6, 5))), array(6, 5)], [0]),
}
STATIC = {
    "add_and_norm": {"epsilon": 1e-6, "rate": 0.3},
    "norm": {"epsilon": 1e-6, "rate": 0.3},
    "attention_weights": {"rate": 0.2},
    "learned bias": {"rate": 0.2},
    "without bias": {"rate": 0.2},
    "activate": {"activation": "gelu"},
    "activate without bias": {"activation": "relu"},
    "label_sums": {},
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_plain_function(name):
    function, arrays, differentiated = CASES[name]
    watched = [arrays[i] for i in differentiated]
    results = []
    for on in (False, True):
        with fusion(on), tf.GradientTape() as tape:
            tape.watch(watched)
            values = tf.nest.flatten(function(*arrays, **STATIC[name]))
            loss = tf.add_n([tf.reduce_sum(tf.sin(value)) for value in values])
        results.append([*values, *tape.gradient(loss, watched)])
    for plain, fast in zip(*results, strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)


def test_a_function_is_compiled_only_where_the_step_core_says_so():
    types = []

    @fused
    def twice(x):
        types.append(type(x).__name__)
        return x * 2

    twice(tf.constant(1.0))
    with fusion(True):
        assert float(twice(tf.constant(3.0))) == 6.0
    assert types == ["EagerTensor", "SymbolicTensor"]


def test_what_is_constant_has_a_gradient_only_where_a_tape_asks_for_it(monkeypatch):
    """A learned bias got none, silently; a mask's is not computed."""
    differentiated = []
    compiled = backend._compiled

    def watched(fn, kinds, static):
        differentiated.append(kinds)
        return compiled(fn, kinds, static)

    monkeypatch.setattr(backend, "_compiled", watched)
    function, (scores, bias, keys), _ = CASES["attention_weights"]

    @tf.function(autograph=False)
    def gradients(scores, bias, learned):
        sources = [scores, bias] if learned else [scores]
        with fusion(True), tf.GradientTape() as tape:
            tape.watch(sources)
            loss = tf.reduce_sum(function(scores, bias, keys, rate=0.2) ** 2)
        return tape.gradient(loss, sources)

    assert all(np.abs(gradient).max() > 0 for learned in (False, True) for gradient in gradients(scores, bias, learned))
    assert differentiated == [(True, False, False), (True, True, False)]


def test_older_plugins_find_the_older_names():
    assert (backend.island, backend.islands) == (fused, fusion)
