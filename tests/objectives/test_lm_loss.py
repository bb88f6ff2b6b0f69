"""The loss in pieces is that of the logits of all, gradients too, and keeps none of them."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers.backend import fusion
from kerasbert.layers.heads import tied_logits
from kerasbert.objectives import lm_loss
from kerasbert.objectives.base import label_sums
from kerasbert.objectives.lm_loss import biased_sums, cluster_sums, lm_hits, lm_sums, token_sums
from kerasbert.tpu_check.lower import lower

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


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("piece", [2**26, 2**10])  # of 300 places one piece, and five
def test_sums_and_gradients_with_a_bias(monkeypatch, piece, fused):
    monkeypatch.setattr(lm_loss, "PIECE", piece)
    (x, table, labels, weights), bias = case(), tf.constant(np.linspace(-1, 1, V), "float32")
    ones = tf.ones((3, 100, 1))
    with tf.GradientTape() as tape, fusion(fused):
        tape.watch([x, bias])
        nats, right = biased_sums(x, table, bias, labels, weights)
        loss = nats / 7
    found = nats, right, *tape.gradient(loss, [x, table, bias])
    # the bias as one more column of the table
    wide = tf.Variable(tf.concat([table, bias[:, None]], axis=1))
    nats, right, of_x, of_wide = differentiate(whole, tf.concat([x, ones], 2), wide, labels, weights)
    expected = nats, right, of_x[..., :-1], of_wide[:, :-1], of_wide[:, -1]
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


def clusters(dtype: str = "float32"):
    """Of 50 tokens 20, 10 and 20, the tails' vectors half and a quarter as wide."""
    rng = np.random.default_rng(1)
    shapes = ((22, 8), (10, 4), (20, 2))
    x = [tf.constant(rng.normal(size=(3, 100, width)), dtype) for _, width in shapes]
    return x, [tf.Variable(rng.normal(size=shape), dtype="float32") for shape in shapes]


def all_tokens(x, tables):
    """Log probabilities [..., 50], by the formula."""
    head, *tails = (tf.nn.log_softmax(tied_logits(y, table)) for y, table in zip(x, tables, strict=True))
    return tf.concat([head[..., :20], head[..., 20:21] + tails[0], head[..., 21:] + tails[1]], axis=-1)


def of_clusters(function, x, tables):
    """Nats, right answers, and gradients by all x and tables."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        nats, right = function(x, tables)
        loss = nats / 7
    found = [nats, right, *tape.gradient(loss, [*x, *tables])]
    return [np.asarray(tf.cast(tf.convert_to_tensor(a), "float32")) for a in found]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("piece", [2**26, 128 * 20])  # one piece, and several of head and tails
def test_the_sums_of_clusters_are_those_of_all_tokens(piece, fused):
    x, tables = clusters()
    _, _, labels, weights = case()

    def whole_sum(x, tables):
        values = all_tokens(x, tables)
        nats = -tf.reduce_sum(tf.gather(values, labels, batch_dims=2) * weights)
        best, cluster = tf.nn.log_softmax(tied_logits(x[0], tables[0])), np.digitize(labels, [20, 30])
        hit = tf.argmax(best, axis=-1).numpy() == np.where(cluster == 0, labels, 19 + cluster)
        for i, begin in ((1, 20), (2, 30)):
            tail = tf.argmax(tied_logits(x[i], tables[i]), axis=-1).numpy() + begin == labels.numpy()
            hit &= (cluster != i) | tail
        return nats, float((hit * weights.numpy()).sum())

    expected = of_clusters(whole_sum, x, tables)
    with fusion(fused):
        found = of_clusters(lambda x, tables: cluster_sums(list(zip(x, tables)), labels, weights, piece), x, tables)
    assert found[1] > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-5)


def test_pieces_without_a_token_of_the_tail_are_not_computed():
    """Their x is no number; the pieces before them hold what counts."""
    x, table, labels, _ = case()
    x, labels = tf.reshape(x, [300, H]), tf.reshape(labels, [-1])
    weights = tf.cast(tf.range(300) < 100, "float32")
    poisoned = tf.where(tf.range(300)[:, None] < 128, x, np.nan)
    nats, hits = lm_hits(poisoned, table, labels, weights, piece=128 * V, count=tf.constant(100))
    expected, right = lm_sums(x, table, labels, weights)
    np.testing.assert_allclose(nats, expected, rtol=1e-6)
    assert float(tf.reduce_sum(hits[:100])) == float(right)
    assert not np.any(hits[128:])


@pytest.mark.slow
def test_clusters_are_safe_on_a_tpu():
    _, tables = clusters()

    def step(batch):
        with tf.GradientTape() as tape:
            tape.watch(batch["x"])
            nats, _ = cluster_sums(
                [(batch["x"][..., : t.shape[1]], t) for t in tables], batch["labels"], batch["weights"], 128 * 20
            )
        return tape.gradient(nats, [batch["x"], *tables])

    signature = {
        "x": tf.TensorSpec((3, 100, 8)),
        "labels": tf.TensorSpec((3, 100), tf.int32),
        "weights": tf.TensorSpec((3, 100)),
    }
    assert lower(step, signature)[2] == []


def test_clusters_are_not_smoothed():
    class Body:
        def output_clusters(self, x):
            return list(zip(*clusters()))

    _, _, labels, weights = case()
    with pytest.raises(
        InputError, match=r"^smoothing 0.1 needs the probabilities of all tokens, which an adaptive softmax saves"
    ):
        token_sums(Body(), None, labels, weights, smoothing=0.1)
