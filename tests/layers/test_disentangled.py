"""Disentangled attention by hand, and beside the paper's equations (2) to (4) written as loops in float64."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from kerasbert.layers.backend import as_tpu, by_head
from kerasbert.layers.disentangled import TERMS, DisentangledAttention, Distances, rows_of_distances
from tests.support import close

SPAN = 3


def delta(i, j, k=SPAN):
    """Equation (3)."""
    if i - j <= -k:
        return 0
    return 2 * k - 1 if i - j >= k else i - j + k


def scored(layer, x, table):
    """Equation (4) with the scale of its last lines; P(i, j) in both terms, as in the released code."""
    n, d = layer.heads, layer.head_size

    def of(linear, states):
        y = states.astype("float64") @ linear.kernel.numpy()
        y = y if linear.bias is None else y + linear.bias.numpy()
        return y.reshape(*y.shape[:-1], n, d)

    query, key = of(layer.query, x), of(layer.key, x)
    shared = layer.shared
    of_key = of(layer.key if shared else layer.position_key, table) if "c2p" in layer.terms else None
    of_query = of(layer.query if shared else layer.position_query, table) if "p2c" in layer.terms else None
    rows, length = x.shape[:2]
    found = np.zeros((rows, n, length, length))
    for b, h, i, j in np.ndindex(*found.shape):
        found[b, h, i, j] = query[b, i, h] @ key[b, j, h]
        if of_key is not None:
            found[b, h, i, j] += query[b, i, h] @ of_key[delta(i, j), h]
        if of_query is not None:
            found[b, h, i, j] += key[b, j, h] @ of_query[delta(i, j), h]
    return found / np.sqrt(d * (1 + len(layer.terms)))


def made(heads=2, size=3, terms=TERMS, **kwargs):
    draw, layer = np.random.default_rng(0), DisentangledAttention(heads, size, terms=terms, **kwargs)
    layer.build((None, None, 5))
    for variable in layer.weights:
        variable.assign(draw.normal(size=variable.shape))
    return layer


DRAW = np.random.default_rng(1)
X, TABLE = DRAW.normal(size=(2, 7, 5)).astype("float32"), DRAW.normal(size=(2 * SPAN, 5)).astype("float32")


def told(length=7, span=SPAN, table=TABLE):
    return Distances(ops.convert_to_tensor(table), rows_of_distances(span), length)


def scores(layer, queries=None, length=7):
    x = X if queries is None else X[:, :1] if isinstance(queries, str) else np.take_along_axis(X, queries[..., None], 1)
    query, (key, _) = layer.split(layer.query(ops.convert_to_tensor(x))), layer.read(ops.convert_to_tensor(X), X)
    return np.asarray(layer.scores(query, key, scoring=told(length), queries=queries))


def test_by_hand():
    """One head of one number: q = k = x, the positions -1, 0 and 1 are worth 10, 20 and 30, farther ones as much."""
    layer = DisentangledAttention(1, 1, use_bias=False)
    layer.build((None, None, 1))
    for part in (layer.query, layer.key, layer.value, layer.output_projection):
        part.kernel.assign([[1.0]])
    layer.position_key.kernel.assign([[1.0]])
    layer.position_query.kernel.assign([[2.0]])
    x = ops.convert_to_tensor(np.array([[[1], [2], [4]]], "float32"))
    table = np.array([[0], [10], [20], [30]], "float32")  # of the distances -2 (and less), -1, 0, 1 (and more)
    key, _ = layer.read(x, x)
    found = layer.scores(layer.split(layer.query(x)), key, scoring=told(3, 2, table))
    # rows of q [1 2 4] + q [20 10 0] + 2 [1 2 4] [20 10 0], and so on
    expected = [[1 + 20 + 40, 2 + 10 + 40, 4 + 0 + 0], [2 + 60 + 60, 4 + 40 + 80, 8 + 20 + 80]]
    expected.append([4 + 120 + 60, 8 + 120 + 120, 16 + 80 + 160])
    np.testing.assert_allclose(found[0, 0] * np.sqrt(3), expected, rtol=1e-6)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("terms", [TERMS, ("c2p",), ("p2c",), ()])
@pytest.mark.parametrize("how", [{}, {"shared": True}, {"key_bias": False}], ids=["own", "shared", "no_key_bias"])
def test_the_papers_equations(heads, terms, how):
    layer = made(heads, terms=terms, **how)
    np.testing.assert_allclose(scores(layer), scored(layer, X, TABLE), atol=2e-5)


@pytest.mark.parametrize("queries", ["first", np.array([[6, 0, 3], [2, 2, 5]], "int32")], ids=["first", "some"])
@pytest.mark.parametrize("tpu", [False, True])
def test_single_queries_have_the_scores_of_their_places(queries, tpu):
    layer = made()
    whole = scored(layer, X, TABLE)
    picked = np.zeros((2, 1), int) if isinstance(queries, str) else queries
    expected = np.take_along_axis(whole, picked[:, None, :, None], 2)
    if tpu:
        with as_tpu():
            found = scores(layer, queries)
    else:
        found = scores(layer, queries)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_length_that_is_not_known_has_the_same_scores():
    layer = made()
    np.testing.assert_allclose(scores(layer, length=ops.convert_to_tensor(7)), scores(layer), atol=1e-6)


def test_nine_texts_of_one_head_share_a_matrix():
    """TensorFlow's product of [B, 1, Q, D] and [1, 1, D, R] is of other memory (`backend.by_head`)."""
    x, matrix = DRAW.normal(size=(9, 1, 7, 3)).astype("float32"), DRAW.normal(size=(1, 1, 3, 8)).astype("float32")
    np.testing.assert_allclose(by_head(ops.convert_to_tensor(x), ops.convert_to_tensor(matrix)), x @ matrix, atol=1e-5)


@pytest.mark.parametrize("width", [8, None])
def test_a_matrix_of_one_head_whose_width_a_graph_does_not_know(width):
    def signature(*shape):
        return tf.TensorSpec(shape, "float32")

    x, matrix = DRAW.normal(size=(2, 1, 7, 3)).astype("float32"), DRAW.normal(size=(1, 1, 3, 8)).astype("float32")
    graph = tf.function(by_head, input_signature=[signature(None, 1, None, 3), signature(1, 1, 3, width)])
    np.testing.assert_allclose(graph(x, matrix), x @ matrix, atol=1e-5)


def test_rows_of_the_table():
    assert rows_of_distances(3).tolist() == [0, 1, 2, 3, 4, 5, 5]
    assert [delta(d, 0) for d in range(-3, 4)] == rows_of_distances(3).tolist()
    # 8 of each sign up to 20: 0 to 4 are their own, then 4 + ceil(3 log(d / 4) / log(19 / 4))
    rows = rows_of_distances(8, 20)
    ahead = [0, 1, 2, 3, 4, *[5] * 2, *[6] * 5, *[7] * 9]
    assert (rows[20:] - 8).tolist() == ahead
    assert (8 - rows[:20][::-1]).tolist() == [*ahead[1:20], 8]


def test_dropout_is_of_the_table_and_alike_for_all_rows():
    layer = made(table_dropout=0.5)
    x = ops.concatenate([X[:1], X[:1]], axis=0)
    y, _ = layer(x, scoring=told(), training=True)
    plain, _ = layer(x, scoring=told())
    close(y[0], y[1])
    assert np.abs(np.asarray(y - plain)).max() > 1e-3
