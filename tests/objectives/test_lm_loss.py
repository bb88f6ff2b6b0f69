"""The loss in pieces is that of the logits of all, gradients too, and keeps none of them."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers.backend import fusion
from kerasbert.layers.heads import tied_logits
from kerasbert.objectives.base import label_sums
from kerasbert.objectives.lm_loss import lm_sums

V, H = 50, 8


def case(rows: int = 3, length: int = 100, dtype: str = "float32"):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(rows, length, H)), dtype)
    table = tf.Variable(rng.normal(size=(V, H)), dtype="float32")
    labels = tf.constant(rng.integers(0, V, (rows, length)), "int32")
    weights = tf.constant(rng.integers(0, 2, (rows, length)), "float32")
    return x, table, labels, weights


def whole(x, table, labels, weights, smoothing=0.0):
    logits = tied_logits(x, table)
    nats, right = label_sums(logits, labels, weights)
    even = -tf.reduce_sum(tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1) * weights)
    return (1 - smoothing) * nats + smoothing * even, right


def differentiate(function, x, table, *targets):
    with tf.GradientTape() as tape:
        tape.watch(x)
        nats, right = function(x, table, *targets)
        loss = nats / 7
    return [np.asarray(tf.cast(a, "float32")) for a in (nats, right, *tape.gradient(loss, [x, table]))]


def test_by_hand():
    """Table of arange, two places of which the second does not count: logits 0, 1, 2 -> log(1 + e + e^2) - 1."""
    table, x = tf.constant([[0.0], [1.0], [2.0]]), tf.constant([[1.0], [5.0]])
    nats, right = lm_sums(x, table, tf.constant([1, 0]), tf.constant([1.0, 0.0]))
    assert float(nats) == pytest.approx(np.log(1 + np.e + np.e**2) - 1, abs=1e-6)
    assert float(right) == 0.0


@pytest.mark.parametrize("piece", [2**26, 128 * V])  # of 300 places one piece, and three of which the last is filled up
@pytest.mark.parametrize(("fused", "smoothing"), [(False, 0.0), (True, 0.0), (True, 0.1)])
def test_sums_and_gradients_are_those_of_all_logits(piece, fused, smoothing):
    given = case()
    with fusion(fused):
        found = differentiate(lambda *a: lm_sums(*a, piece=piece, smoothing=smoothing), *given)
    expected = differentiate(lambda *a: whole(*a, smoothing=smoothing), *given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-5)


def test_in_a_graph_whose_batch_is_not_known_and_whose_tape_is_outside():
    x, table, labels, weights = case()
    function = tf.function(lambda *a: lm_sums(*a, piece=128 * V), autograph=False)
    signature = [tf.TensorSpec([None, None, H]), tf.TensorSpec([V, H]), tf.TensorSpec([None, None], tf.int32)]
    known = function.get_concrete_function(*signature, tf.TensorSpec([None, None]))
    found = differentiate(lambda x, table, *a: known(x, tf.convert_to_tensor(table), *a), x, table, labels, weights)
    for one, other in zip(found, differentiate(whole, x, table, labels, weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-5)


def test_in_half_precision():
    given = case(dtype="bfloat16")
    found = differentiate(lambda *a: lm_sums(*a, piece=128 * V), *given)
    for one, other in zip(found, differentiate(whole, *given), strict=True):
        assert np.abs(one - other).max() < 0.02 * np.abs(other).max()


def test_nothing_is_differentiated_where_no_tape_asks():
    x, table, labels, weights = case()
    graph = tf.function(lambda: lm_sums(x, table, labels, weights)).get_concrete_function().graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds.count("MatMul") == 1
