"""Relative attention by hand, and beside the formula written as loops in float64."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from kerasbert.layers import relative
from kerasbert.layers.backend import as_tpu
from kerasbert.layers.relative import Relative, RelativeAttention
from kerasbert.layers.visibility import HIDDEN

SQUARE = np.arange(4.0).reshape(2, 2)  # [[0, 1], [2, 3]]
X = np.array([[[1, 0], [0, 1], [1, 1]]], "float32")
# queries, keys and values of the tokens: 0, 2, 2 in the first head and 1, 3, 4 in the second
# of the distances 3, 2, 1, 0, -1, -2; distance 3 is never read
APART = np.array([[9, 9], [2, 5], [1, 4], [0, 0], [1, 3], [2, 7]], "float32")
# (q + 1) k + q r: rows of 1 [0 2 2] + 0, 3 [0 2 2] + 2 [1 0 1], 3 [0 2 2] + 2 [2 1 0]
FIRST = [[0, 2, 2], [2, 6, 8], [4, 8, 6]]
# q k + (q + 1) r: rows of 1 [1 3 4] + 2 [0 3 7], 3 [1 3 4] + 4 [4 0 3], 4 [1 3 4] + 5 [5 4 0]
SECOND = [[1, 9, 18], [19, 9, 24], [29, 32, 16]]


@pytest.fixture
def layer():
    made = RelativeAttention(heads=2, head_size=1, use_bias=False)
    made.build((None, None, 2))
    for part in (made.query, made.key, made.value, made.output_projection):
        part.kernel.assign(SQUARE)
    made.position.kernel.assign(np.eye(2))
    made.content_bias.assign([[1], [0]])
    made.position_bias.assign([[0], [1]])
    return made


def scores(layer, positions, queries=None):
    x = X if queries is None else X[:, :1] if isinstance(queries, str) else X[:, queries[0]]
    key = layer.split(layer.key(ops.convert_to_tensor(X)))
    return np.asarray(layer.scores(layer.split(layer.query(x)), key, scoring=positions, queries=queries))


def test_both_sides(layer):
    np.testing.assert_array_equal(scores(layer, Relative(APART, 3)), [[FIRST, SECOND]])


def test_what_is_behind_alone(layer):
    """With distances down to 0 the scores of what is ahead mean nothing."""
    found = scores(layer, Relative(APART[:4], 3))
    behind = np.tri(3) == 1
    np.testing.assert_array_equal(found[0, 0][behind], np.array(FIRST)[behind])
    np.testing.assert_array_equal(found[0, 1][behind], np.array(SECOND)[behind])


@pytest.mark.parametrize("queries", ["first", np.array([[2, 0]], "int32"), np.array([[1, 1, 2]], "int32")])
def test_single_queries_have_the_scores_of_their_places(layer, queries):
    picked = [0] if isinstance(queries, str) else queries[0]
    expected = np.array([FIRST, SECOND])[None][:, :, picked]
    np.testing.assert_array_equal(scores(layer, Relative(APART, 3), queries), expected)


def test_further_queries_stand_behind_those_in_order(layer):
    """Queries of a second stream: the same tokens at the places 2 and 0."""
    x, key = np.concatenate([X, X[:, [2, 0]]], axis=1), layer.split(layer.key(ops.convert_to_tensor(X)))
    positions = Relative(APART, 3, places=np.array([[2, 0]], "int32"))
    found = np.asarray(layer.scores(layer.split(layer.query(x)), key, scoring=positions))
    whole = np.array([FIRST, SECOND])[None]
    np.testing.assert_array_equal(found, np.concatenate([whole, whole[:, :, [2, 0]]], axis=2))


def test_memory_stands_in_front(layer):
    """The last two tokens with the first as memory: their rows of the scores."""
    key = layer.split(layer.key(ops.convert_to_tensor(X)))
    for queries, x, rows in ((None, X[:, 1:], [1, 2]), ("first", X[:, 1:2], [1]), ([[1]], X[:, 2:], [2])):
        query = layer.split(layer.query(x))
        positions = Relative(APART[:5] if queries is None else APART, 3, memory=1)  # two queries: down to -1
        found = layer.scores(query, key, scoring=positions, queries=queries)
        np.testing.assert_array_equal(found, np.array([FIRST, SECOND])[None][:, :, rows])


def test_rows_written_backward(layer):
    positions = Relative(np.stack([APART, -APART]), 3, backward=np.array([False, True]))
    key = layer.split(layer.key(np.repeat(X, 2, axis=0)))
    found = np.asarray(layer.scores(layer.split(layer.query(np.repeat(X, 2, axis=0))), key, scoring=positions))
    np.testing.assert_array_equal(found[0], [FIRST, SECOND])
    np.testing.assert_array_equal(found[1, 0], [[0, 2, 2], [-2, 6, 4], [-4, 4, 6]])  # 3 [0 2 2] - 2 r


def test_the_whole_layer_with_a_hidden_key(layer):
    bias = np.array([0, HIDDEN, 0], "float32").reshape(1, 1, 1, 3)
    y, probabilities = layer(X, bias=bias, scoring=Relative(APART, 3))
    # exp of the difference of the two scores left: 2 - 0, 8 - 2, 6 - 4; 18 - 1, 24 - 19, 16 - 29
    share = 1 / (1 + np.exp(-np.array([[2.0, 6, 2], [17, 5, -13]])))
    np.testing.assert_allclose(probabilities[0, :, :, 2], share, rtol=1e-5)
    np.testing.assert_allclose(probabilities[0, :, :, 1], 0, atol=1e-15)
    first, second = 2 * share[0], 1 + 3 * share[1]  # values 0 and 2, 1 and 4
    np.testing.assert_allclose(y[0], np.stack([2 * second, first + 3 * second], axis=-1), rtol=1e-5)


def by_loops(layer, x, source, memory):
    """The scores of all rows of x as section 3.3 has them, in float64."""
    weights = {name: getattr(layer, name).kernel.numpy().astype("float64") for name in ("query", "key", "position")}
    u, v = (getattr(layer, name).numpy().astype("float64") for name in ("content_bias", "position_bias"))
    heads, size, width = layer.heads, layer.head_size, x.shape[-1]
    frequencies = 1 / 10000 ** (np.arange(0, width, 2) / width)
    found = np.zeros((len(x), heads, x.shape[1], source.shape[1]))
    for b, n, i, j in np.ndindex(*found.shape):
        mine = slice(n * size, (n + 1) * size)
        q, k = x[b, i] @ weights["query"][:, mine], source[b, j] @ weights["key"][:, mine]
        apart = (memory + i - j) * frequencies
        r = np.concatenate([np.sin(apart), np.cos(apart)]) @ weights["position"][:, mine]
        found[b, n, i, j] = ((q + u[n]) @ k + (q + v[n]) @ r) / np.sqrt(size)
    return found


@pytest.mark.parametrize(("memory", "last"), [(0, -4), (3, -4), (3, 0)])
def test_scores_are_the_formula(memory, last):
    generator = np.random.default_rng(0)
    layer = RelativeAttention(heads=3, head_size=4, use_bias=False, initializer=0.5)
    layer.build((None, None, 6))
    source = generator.normal(size=(2, memory + 5, 6))
    x, keys = source[:, memory:], memory + 5
    vectors = relative.sinusoids(relative.distances(keys, last), 6)
    assert vectors.shape == (keys - last + 1, 6)
    key = layer.split(layer.key(source.astype("float32")))
    found = np.asarray(
        layer.scores(layer.split(layer.query(x.astype("float32"))), key, scoring=Relative(vectors, keys, memory))
    )
    expected = by_loops(layer, x, source, memory)
    seen = np.ones(expected.shape, bool) if last else np.broadcast_to(np.tri(5, keys, memory) == 1, expected.shape)
    np.testing.assert_allclose(found[seen], expected[seen], atol=1e-5)


@pytest.mark.parametrize("use_bias", [False, True])
def test_weights_are_those_of_the_docstring(use_bias):
    """H*N*D of five maps, of which `use_bias` is of four, and u and v; the output has H numbers."""
    made = RelativeAttention(heads=2, head_size=3, use_bias=use_bias)
    made.build((None, None, 4))
    names = ["query", "key", "value", "output", "position"]
    shapes = {f"{name}/kernel": (6, 4) if name == "output" else (4, 6) for name in names}
    shapes |= {f"{name}/bias": (4,) if name == "output" else (6,) for name in names[:4] if use_bias}
    shapes |= {"content_bias": (2, 3), "position_bias": (2, 3)}
    found = {weight.path.split("/", 1)[1]: tuple(weight.shape) for weight in made.trainable_weights}
    assert found == shapes


def test_shared_biases_are_not_made_again():
    one = RelativeAttention(heads=2, head_size=3, use_bias=False)
    one.build((None, None, 4))
    other = RelativeAttention(heads=2, head_size=3, use_bias=False)
    other.content_bias, other.position_bias = one.content_bias, one.position_bias
    other.build((None, None, 4))
    assert other.content_bias is one.content_bias
    assert [tuple(weight.shape) for weight in one.weights].count((2, 3)) == 2


def test_distances_and_their_bound():
    assert relative.distances(3, -2).numpy().tolist() == [3, 2, 1, 0, -1, -2]
    assert relative.distances(4, 0).numpy().tolist() == [4, 3, 2, 1, 0]
    assert relative.distances(4, -3, clamp=2).numpy().tolist() == [2, 2, 2, 1, 0, -1, -2, -2]


@pytest.mark.parametrize(("width", "keys"), [(11, 7), (8, 7), (20, 10)])
def test_shifts_by_powers_of_two_are_the_gather(width, keys):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, width)).astype("float32")
    begin = np.random.default_rng(1).integers(0, width - keys + 1, (2, 4)).astype("int32")
    begin[0, :2] = 0, width - keys
    expected = np.stack([[x[b, :, p, begin[b, p] : begin[b, p] + keys] for p in range(4)] for b in range(2)]).transpose(
        0, 2, 1, 3
    )
    np.testing.assert_array_equal(relative.aligned(x, begin, keys), expected)
    with as_tpu():
        np.testing.assert_array_equal(relative.aligned(x, begin, keys), expected)


def test_lengths_may_be_unknown_where_a_graph_is_made():
    """As in a SavedModel, for all rows and for one."""
    signature = [
        tf.TensorSpec((None, 2, None, None)),
        tf.TensorSpec((None, None), tf.int32),
        tf.TensorSpec((), tf.int32),
    ]
    x = np.arange(2 * 2 * 3 * 6, dtype="float32").reshape(2, 2, 3, 6)
    begin = np.array([[3, 2, 1]], "int32")
    np.testing.assert_array_equal(
        tf.function(relative.aligned, input_signature=signature)(x, np.repeat(begin, 2, axis=0), 3),
        tf.function(lambda x, _, keys: relative.in_order(x, keys), input_signature=signature)(x, begin, 3),
    )
