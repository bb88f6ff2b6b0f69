"""A fused function is the plain one: values and gradients, dropout included."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers import attention, backend_fused, feedforward, heads, norms, random
from kerasbert.layers.backend import fused, fusion
from kerasbert.objectives import base

RNG = np.random.default_rng(7)
KEYS = random.key(3, "test", np.arange(6))


def array(*shape):
    return tf.constant(RNG.normal(size=shape), tf.float32)


CASES = {
    "add_and_norm": (norms.add_and_norm, [array(6, 5, 12), array(6, 5, 12), array(12), array(12), KEYS], [0, 1, 2, 3]),
    "norm": (norms.norm, [array(6, 5, 12), array(12), array(12), None], [0, 1, 2]),
    "rms_norm": (norms.rms_norm, [array(6, 5, 12), array(12), KEYS], [0, 1]),
    "attention_weights": (attention.attention_weights, [array(6, 3, 5, 5), array(6, 1, 1, 5), KEYS], [0]),
    "learned bias": (attention.attention_weights, [array(6, 3, 5, 5), array(6, 1, 5, 5), KEYS], [0, 1]),
    "without bias": (attention.attention_weights, [array(6, 3, 5, 5), None, KEYS], [0]),
    "activate": (feedforward.activate, [array(6, 5, 12), array(12)], [0, 1]),
    "activate without bias": (feedforward.activate, [array(6, 5, 12), None], [0]),
    "without dropout": (attention.attention_weights, [array(6, 3, 5, 37), array(6, 1, 5, 37), None], [0, 1]),
    "label_sums": (base.label_sums, [array(6, 5, 9), tf.constant(RNG.integers(0, 9, (6, 5))), array(6, 5)], [0]),
    "learned weights": (
        base.label_sums,
        [array(7, 277), tf.constant(RNG.integers(0, 277, 7), tf.int32), array(7)],
        [0, 2],
    ),
    "with_bias": (heads.with_bias, [array(6, 5, 37), array(37)], [0, 1]),
}
STATIC = {
    "add_and_norm": {"epsilon": 1e-6, "rate": 0.3},
    "norm": {"epsilon": 1e-6, "rate": 0.3},
    "rms_norm": {"epsilon": 1e-6, "rate": 0.3},
    "attention_weights": {"rate": 0.2},
    "learned bias": {"rate": 0.2},
    "without bias": {"rate": 0.2},
    "without dropout": {"rate": 0.2},
    "activate": {"activation": "gelu"},
    "activate without bias": {"activation": "relu"},
    "label_sums": {},
    "learned weights": {},
    "with_bias": {},
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


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 33, 257, 4000])
def test_sums_and_maxima_in_slices(size):
    x = RNG.normal(size=(2, 3, size)).astype("float32") - 5
    rows, largest, columns = tf.function(
        lambda x: (backend_fused.row_sums(x), backend_fused.row_max(x), backend_fused.column_sums(tf.transpose(x))),
        jit_compile=True,
    )(x)
    np.testing.assert_allclose(rows, x.astype("float64").sum(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(largest, x.max(-1, keepdims=True))
    np.testing.assert_allclose(columns, x.astype("float64").sum((1, 2)), rtol=1e-6)


def test_reductions_of_an_unknown_number_of_rows():
    x = RNG.normal(size=(2, 3, 21)).astype("float32")

    @tf.function(input_signature=[tf.TensorSpec([None, 3, None])])
    def reduced(x):
        return backend_fused.row_sums(x), backend_fused.row_max(x), backend_fused.column_sums(x)

    expected = x.sum(-1, keepdims=True), x.max(-1, keepdims=True), x.sum((0, 1))
    for one, other in zip(reduced(x), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_gradient_by_hand_of_another_shape_is_no_gradient():
    x, y, ones = array(6, 5, 12), array(1, 5, 12), tf.ones(12)  # y is spread over the rows
    with fusion(True), tf.GradientTape() as tape:
        tape.watch(y)
        loss = tf.reduce_sum(norms.add_and_norm(x, y, ones, ones, None, epsilon=1e-6, rate=0.0))
    with pytest.raises(ValueError, match=r"\(6, 5, 12\) and \(1, 5, 12\) are incompatible"):
        tape.gradient(loss, y)


def test_nothing_is_kept_twice():
    """What a gradient by hand needs and is an argument or a result is no output of the compiled function."""
    with fusion(True):
        function = tf.function(
            lambda scores: attention.attention_weights(scores, None, None, rate=0.1),
            input_signature=[tf.TensorSpec([2, 3, 5, 5])],
        )
    with fusion(True), tf.GradientTape():
        graph = function.get_concrete_function().graph
    calls = [node for node in graph.get_operations() if node.type in ("StatefulPartitionedCall", "PartitionedCall")]
    assert [len(call.outputs) for call in calls] == [1]


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


def test_small_calls_are_not_compiled():
    types = []

    @fused
    def sums(x, y):
        types.append(type(x).__name__)
        return x + y

    with fusion(True, least=12):
        for rows in (2, 3):
            sums(tf.ones((rows, 4)), tf.ones(4))
    assert types == ["EagerTensor", "SymbolicTensor"]
    with fusion(True):  # by default everything is
        sums(tf.ones(1), tf.ones(1))
    assert types[2:] == ["SymbolicTensor"]


def test_what_is_constant_has_a_gradient_only_where_a_tape_asks_for_it(monkeypatch):
    """A learned bias got none, silently; a mask's is not computed."""
    differentiated = []
    compiled = backend_fused._compiled

    def watched(fn, kinds, static, by_hand):
        differentiated.append(kinds)
        return compiled(fn, kinds, static, by_hand)

    monkeypatch.setattr(backend_fused, "_compiled", watched)
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
