"""Windows and global tokens: by hand, the banded form against the mask form, what is not seen."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from kerasbert.layers import random, window
from kerasbert.layers.backend import as_tpu, fusion
from kerasbert.layers.window import Pattern, WindowAttention
from tests.support import close


def made(width=4, heads=2, size=3, hidden=8, seed=0, **more):
    """A built layer with weights far from zero."""
    keras.utils.set_random_seed(seed)
    layer = WindowAttention(heads, size, window=width, name="attention", **more)
    layer.build((None, None, hidden))
    generator = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return layer


def states(rows=2, length=23, hidden=8, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, length, hidden)).astype("float32")


def test_who_sees_whom_in_a_window():
    rows = ops.convert_to_tensor([[0, 1, 2, 3, 4]])
    near = window.window(rows, 5, 4).numpy()[0].astype(int).tolist()
    assert near == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    dilated = window.window(rows, 5, 2, 2).numpy()[0].astype(int).tolist()
    assert dilated == [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]


@pytest.mark.parametrize("dense", [True, False])
def test_by_hand(dense):
    """One head of one number; every map is 1 but the queries, which are 0: an output is the mean of what is seen."""
    layer = WindowAttention(1, 1, window=2, use_bias=False)
    layer.build((None, None, 1))
    for weight in layer.weights:
        weight.assign([[1.0]])
    layer.query.kernel.assign([[0.0]])
    layer.query_global.kernel.assign([[0.0]])
    layer.value_global.kernel.assign([[10.0]])
    layer.in_full = lambda *_: dense
    x = np.array([[[1.0], [2.0], [3.0], [4.0], [5.0], [9.0]]], "float32")
    real = ops.convert_to_tensor([[True] * 5 + [False]])
    y = layer(x, scoring=Pattern(6, real=real, most=1))[0].numpy().ravel()
    # the first sees 1 to 5 by its own values; 2 sees 1, 2, 3; 3 sees 1 (global), 2, 3, 4; 5 sees 1, 4, 5; padding nothing
    np.testing.assert_allclose(y, [30.0, 2.0, 2.5, 3.25, 10 / 3, 0.0], rtol=1e-6)


MASK = np.arange(23) < np.array([23, 14])[:, None]
PIECES = np.where(MASK, 1 + np.arange(23) // 6, 0)
CASES = {
    "all": {},
    "padding": {"real": MASK},
    "global": {"most": 1},
    "more": {"most": 5, "real": MASK},
    "marked": {"most": 3, "real": MASK, "marked": np.arange(23) < np.array([2, 0])[:, None]},
    "pieces": {"most": 2, "real": MASK, "pieces": PIECES},
    "causal": {"most": 2, "causal": True, "real": MASK},
}


FUSED = [("more", True), pytest.param("marked", True, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("case", "fused"), [*itertools.product(CASES, [False]), *FUSED])
def test_the_banded_form_is_the_mask_form_gradients_too(case, fused):
    told = {name: ops.convert_to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in CASES[case].items()}
    layer, x = made(6), tf.convert_to_tensor(states())
    found = []
    for dense in (True, False):
        layer.in_full = lambda *_, dense=dense: dense
        with fusion(fused), tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, scoring=Pattern(23, **told))[0]
            loss = tf.reduce_sum(tf.sin(y))
        variables = [x, *(weight.value for weight in layer.weights)]
        found.append([y, *tape.gradient(loss, variables, unconnected_gradients="zero")])
    for one, other in zip(*found):
        close(other, one, share=1e-5)


@pytest.mark.parametrize("length", [2, 5, 6, 7, 13])
def test_any_length_is_padded_within(length):
    layer, x = made(4), states(length=length)
    layer.in_full = lambda pattern, queries: pattern.dense
    every = [layer(x, scoring=Pattern(length, most=min(2, length), dense=dense))[0] for dense in (True, False)]
    close(every[1], every[0])


def test_a_length_that_is_not_known_yet():
    layer = made(4)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def run(x):
        return layer(x, scoring=Pattern(ops.shape(x)[1], most=3))[0]

    for length in (2, 9, 23):
        expected = layer(states(length=length), scoring=Pattern(length, most=min(3, length), dense=True))[0]
        close(run(states(length=length)), expected)


@pytest.mark.parametrize("case", ["padding", "more", "marked", "pieces", "causal"])
def test_single_queries_are_as_among_all(case):
    told = {name: ops.convert_to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in CASES[case].items()}
    layer, x = made(4), states()
    whole = layer(x, scoring=Pattern(23, **told))[0].numpy()
    first = layer(x[:, :1], source=x, scoring=Pattern(23, **told), queries="first")[0]
    close(first, whole[:, :1])
    places = np.array([[0, 3, 22], [1, 13, 20]], "int32")
    rows = np.take_along_axis(x, places[..., None], axis=1)
    expected = np.take_along_axis(whole, places[..., None], axis=1)
    for dense in (True, False):
        layer.in_full = lambda *_, dense=dense: dense
        found = layer(rows, source=x, scoring=Pattern(23, **told), queries=ops.convert_to_tensor(places))[0]
        close(found, expected)
    with as_tpu():
        found = layer(rows, source=x, scoring=Pattern(23, **told), queries=ops.convert_to_tensor(places))[0]
    close(found, expected)


@pytest.mark.parametrize("dense", [True, False])
def test_what_is_out_of_sight_changes_nothing(dense):
    layer, x = made(4), states(rows=1)
    layer.in_full = lambda *_: dense
    told = Pattern(23, most=2, real=ops.convert_to_tensor(np.arange(23)[None] < 20))

    def changed(place):
        other = x.copy()
        other[:, place] += 1
        one, two = (layer(each, scoring=told)[0].numpy()[0] for each in (x, other))
        return np.flatnonzero(np.abs(one - two).max(axis=1) > 1e-7).tolist()

    assert changed(10) == [0, 1, 8, 9, 10, 11, 12]  # the global ones, and its window
    assert changed(1) == list(range(20))  # a global one: everybody real
    assert changed(21) == []  # padding: nobody


@pytest.mark.parametrize("dense", [True, False])
def test_rows_that_see_nothing_give_zeros(dense):
    layer = made(4, use_bias=False)
    layer.in_full = lambda *_: dense
    real = ops.convert_to_tensor(np.array([[True] * 23, [False] * 23]))
    y = layer(states(), scoring=Pattern(23, most=2, real=real))[0].numpy()
    assert np.abs(y[0]).min() > 0
    np.testing.assert_array_equal(y[1], 0.0)


def test_a_matrix_is_and_ed_with_the_window():
    layer, x = made(4, use_bias=False), states(rows=1, length=7)
    matrix = np.ones((1, 7, 7), bool)
    matrix[0, 5] = False
    y = layer(x, scoring=Pattern(7, matrix=ops.convert_to_tensor(matrix)))[0].numpy()
    whole = layer(x, scoring=Pattern(7, dense=True))[0].numpy()
    np.testing.assert_array_equal(y[0, 5], 0.0)
    close(np.delete(y, 5, 1), np.delete(whole, 5, 1))


def test_a_global_token_within_the_window_is_seen_once():
    layer, x = made(4), states(rows=1, length=12)
    layer.in_full = lambda pattern, queries: pattern.dense
    weights = layer(x, scoring=Pattern(12, most=2, dense=True))[1].numpy()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    banded = layer(x, scoring=Pattern(12, most=2))[1].numpy()  # [B, n, N, c, 3c + G]
    assert np.abs(banded[0, 1, :, :, 0]).max() < 1e-20  # token 0 by its place in the window: hidden
    np.testing.assert_allclose(banded[0, 1, :, 0, -2:], weights[0, :, 2, :2], atol=1e-6)


def test_few_global_queries_are_as_many():
    layer, x = made(4, heads=2, size=4, hidden=8), states()
    told = Pattern(23, most=1, real=ops.convert_to_tensor(MASK))
    folded = layer(x, scoring=told)[0].numpy()
    assert layer.few(tf.zeros((2, 1, 8)), layer.key_global)
    layer.few = lambda *_: False
    close(layer(x, scoring=told)[0], folded)


def test_dropout_is_of_the_rows_key():
    layer, x = made(4, dropout=0.5), tf.convert_to_tensor(states(rows=4))
    told = {"most": 1, "real": tf.convert_to_tensor(np.tile(MASK, (2, 1)))}

    def run(rows):
        part = {**told, "real": tf.gather(told["real"], rows)}
        with random.scope(tf.constant([3, 4], tf.uint32), tf.constant(rows)):
            return layer(tf.gather(x, rows), scoring=Pattern(23, **part), training=True)[0].numpy()

    whole = run([0, 1, 2, 3])
    close(run([2, 3]), whole[2:])
    assert np.abs(whole - layer(x, scoring=Pattern(23, **told))[0].numpy()).max() > 1e-2
