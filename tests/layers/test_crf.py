"""The likelihood of label sequences against all sequences written out, its gradient, skipped tokens, XLA."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.answers import crf
from kerasbert.layers.crf import CRF, nats


def drawn(rows=4, length=5, labels=3, seed=0):
    """Emissions, table, labels, and weights of which the first row has none and the second all."""
    draw = np.random.default_rng(seed)
    weights = (draw.random((rows, length)) < 0.6).astype("float32")
    weights[0], weights[1:2] = 0, 1
    emissions, table = draw.normal(0, 2, (rows, length, labels)), draw.normal(0, 2, (labels + 2, labels))
    return emissions, table, draw.integers(0, labels, (rows, length)), weights


def score(emissions, labels, table):
    """Of a sequence, term by term."""
    pairs = sum(table[one, two] for one, two in itertools.pairwise(labels))
    return table[-2, labels[0]] + sum(e[y] for e, y in zip(emissions, labels)) + pairs + table[-1, labels[-1]]


def enumerated(emissions, labels, table):
    """Nats of labels by all sequences of as many, float64."""
    scores = [score(emissions, y, table) for y in itertools.product(range(table.shape[1]), repeat=len(labels))]
    return float(np.log(np.sum(np.exp(np.array(scores) - max(scores)))) + max(scores)) - score(emissions, labels, table)


def called(emissions, table, labels, weights):
    floats = (tf.constant(each, "float32") for each in (emissions, table[:-2], table[-2], table[-1]))
    return nats(*floats, tf.constant(labels, "int32"), tf.constant(weights))


def test_by_hand():
    layer = CRF(2)
    layer.build()
    for weight, value in zip(layer.weights, ([[0, 1], [2, 0]], [3, 0], [0, 4])):
        weight.assign(np.array(value, "float32"))
    assert [weight.path.split("/")[-1] for weight in layer.weights] == ["transitions", "start", "end"]
    emissions = np.array([[[1, 0], [9, 9], [0, 2]]], "float32")
    # scores of 00, 01, 10, 11 over the first and the third token
    scores = np.array([3 + 1 + 0 + 0 + 0, 3 + 1 + 1 + 2 + 4, 0 + 2 + 0 + 0, 0 + 0 + 2 + 4])
    expected = np.log(np.exp(scores).sum()) - 11
    assert float(layer(emissions, np.array([[0, 1, 1]]), np.array([[1, 0, 1]]))[0]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_equals_all_sequences_and_skips_what_weighs_nothing(seed):
    emissions, table, labels, weights = drawn(seed=seed)
    found = called(emissions, table, labels, weights).numpy()
    assert found[0] == 0.0
    for row in range(1, 4):
        at = np.flatnonzero(weights[row])
        wanted = enumerated(emissions[row, at], labels[row, at], table)
        assert found[row] == pytest.approx(wanted, abs=2e-5)
        assert crf.nats(emissions[row, at], labels[row, at], table) == pytest.approx(wanted, abs=1e-12)
    labels[weights == 0], emissions[weights == 0] = 0, 1e4
    np.testing.assert_array_equal(called(emissions, table, labels, weights), found)


def test_the_gradient_is_marginals_less_what_is_right_and_the_same_compiled():
    emissions, table, labels, weights = drawn(6, 9, 4)
    arrays = [tf.constant(each, "float32") for each in (emissions, table[:-2], table[-2], table[-1])]

    def gradients(*arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            loss = tf.reduce_sum(nats(*arrays, tf.constant(labels, "int32"), tf.constant(weights)))
        return loss, tape.gradient(loss, arrays)

    loss, (of_emissions, *of_table) = tf.function(gradients, autograph=False)(*arrays)
    for row in range(6):
        at = np.flatnonzero(weights[row])
        wanted = np.zeros((9, 4))
        if len(at):
            wanted[at] = crf.marginals(emissions[row, at], table) - np.eye(4)[labels[row, at]]
        np.testing.assert_allclose(of_emissions[row], wanted, atol=1e-5)
    whole = np.concatenate([of_table[0], [of_table[1]], [of_table[2]]])
    for place in np.ndindex(table.shape):  # finite differences in float64
        sums = []
        for change in (1e-5, -1e-5):
            moved = table.copy()
            moved[place] += change
            rows = [(row, np.flatnonzero(weights[row])) for row in range(6)]
            sums.append(sum(crf.nats(emissions[row, at], labels[row, at], moved) for row, at in rows))
        assert whole[place] == pytest.approx((sums[0] - sums[1]) / 2e-5, abs=1e-4)
    compiled, (first, *_) = tf.function(gradients, autograph=False, jit_compile=True)(*arrays)
    assert float(compiled) == pytest.approx(float(loss), rel=1e-6)
    np.testing.assert_allclose(first, of_emissions, atol=1e-5)


def test_a_long_row_keeps_its_precision():
    """4,000 tokens of large scores: a sum of all paths less the right one would lose a nat in float32."""
    emissions, table, *_ = drawn(1, 4000, 3)
    best = crf.best_path(emissions[0] * 20, table)
    weights = np.ones((1, 4000), "float32")
    wanted = crf.nats(np.float32(emissions[0] * 20).astype(float), best, np.float32(table).astype(float))
    found = float(tf.function(lambda: called(emissions * 20, table, best[None], weights), autograph=False)()[0])
    assert found == pytest.approx(wanted, rel=1e-4)


def test_it_learns_faster_than_the_encoder_and_does_not_decay():
    from kerasbert.training.optimizers import AdamW

    layer = CRF(2, name="crf")
    with keras.name_scope("heads"):
        layer.build()
    layer.transitions.assign(np.eye(2))
    optimizer = AdamW(1e-3, weight_decay=0.5)
    optimizer.apply([tf.constant([[0.0, 0], [0, 3]])], [layer.transitions])
    np.testing.assert_allclose(layer.transitions, [[1, 0], [0, 0.9]], atol=1e-4)  # a step of 100 times the rate
