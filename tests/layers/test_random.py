"""The counter hash: uniform, uncorrelated, and the same however a batch is split."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers import random


def masks(seed: int, step: int, name: str, rows, size=512, rate=0.1):
    layer = random.Dropout(rate, name="dropout")
    layer.build()
    layer._path = name
    with random.scope(random.key(seed, "dropout", step), np.asarray(rows, "int32")):
        return np.asarray(layer(np.ones((len(rows), size), "float32"), training=True)) > 0


def test_golden_value_worked_out_in_python():
    def mix(x):
        x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    low = mix((0x9E3779B9 ^ 7) + 0x9E3779B9 & 0xFFFFFFFF)
    high = mix((0x243F6A88 + 7 & 0xFFFFFFFF) ^ low)
    assert np.asarray(random.key(7)).tolist() == [low, high]
    x = (3 * 0x9E3779B9 & 0xFFFFFFFF) + low & 0xFFFFFFFF
    x = ((x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF) + high & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    assert int(np.asarray(random.bits(random.key(7), (5,)))[3]) == x ^ x >> 16


def test_elements_are_numbered_along_all_axes_from_any_first_one_on():
    key = random.key(7, np.arange(3, dtype="int32"))
    line = np.asarray(random.bits(key, (130,)))
    np.testing.assert_array_equal(random.bits(key, (2, 5, 13)), line.reshape(3, 2, 5, 13))
    np.testing.assert_array_equal(random.bits(key, (), 4), line[:, 4])
    for first in (26, tf.constant(26)):
        np.testing.assert_array_equal(random.bits(key, (2, 4, 13), first), line[:, 26:].reshape(3, 2, 4, 13))


def test_no_large_array_hangs_on_nothing_but_constants():
    """TensorFlow would work it out once and keep it: one of the size of the activations for every dropout of the graph."""

    @tf.function(autograph=False)
    def drop(x, words):
        with random.scope(words, tf.range(2)):
            return random.drop(x, random.rows_key("a", 2), 0.1)

    graph = drop.get_concrete_function(tf.TensorSpec((2, 40, 30)), tf.TensorSpec((2,), tf.uint32)).graph
    varying, largest = set(), 0
    for operation in graph.get_operations():
        if operation.type == "Placeholder" or any(x.op.name in varying for x in operation.inputs):
            varying.add(operation.name)
        else:
            largest = max([largest, *(x.shape.num_elements() or 0 for x in operation.outputs)])
    assert largest == 40
    assert len(varying) > 10


def test_keys_depend_on_every_word_and_their_order():
    keys = [random.key(*words) for words in ((1, 2), (2, 1), (1,), (1, 2, 0), (1, "a"), (1, "b"), (1 + 2**32, 2))]
    assert len({tuple(np.asarray(key).tolist()) for key in keys}) == len(keys)


def test_negative_words_are_refused():
    with pytest.raises(ValueError, match="must be >= 0. Received: -1"):
        random.key(-1)


def test_bits_are_uniform():
    drawn = np.asarray(random.bits(random.key(3, np.arange(64, dtype="int32")), (4096,)))
    counts = np.bincount((drawn >> np.uint32(24)).ravel(), minlength=256)
    chi = ((counts - drawn.size / 256) ** 2 / (drawn.size / 256)).sum()
    assert abs(chi - 255) < 4 * np.sqrt(2 * 255)
    ones = np.unpackbits(drawn.view("uint8").ravel(), bitorder="little").reshape(-1, 32).mean(0)
    assert np.abs(ones - 0.5).max() < 4 * 0.5 / np.sqrt(drawn.size)


def test_dropout_keeps_its_share_and_its_mean():
    layer = random.Dropout(0.3)
    layer.build()
    with random.scope(random.key(1), np.arange(64, dtype="int32")):
        y = np.asarray(layer(np.ones((64, 1000), "float32"), training=True))
    share = (y > 0).mean()
    assert abs(share - 0.7) < 3 * np.sqrt(0.21 / y.size)
    np.testing.assert_allclose(y[y > 0], 1 / 0.7, rtol=1e-6)
    assert (np.asarray(layer(np.ones((2, 3)), training=False)) == 1).all()


@pytest.mark.parametrize(
    "other", [(0, 5, "a/dropout"), (1, 4, "a/dropout"), (0, 4, "b/dropout")], ids=["step", "seed", "layer"]
)
def test_masks_of_other_steps_seeds_and_layers_are_independent(other):
    one, two = masks(0, 4, "a/dropout", range(256)), masks(*other, range(256))
    drops = (~one & ~two).sum()
    expected, deviation = one.size * 0.01, np.sqrt(one.size * 0.01 * 0.99)
    assert abs(drops - expected) < 4 * deviation
    # nor are they permutations of each other, row by row
    assert (one.sum(1) != two.sum(1)).any()


def test_rows_differ_and_a_row_does_not_depend_on_its_neighbours():
    whole = masks(0, 1, "a/dropout", range(32))
    assert len({row.tobytes() for row in whole}) == 32
    np.testing.assert_array_equal(masks(0, 1, "a/dropout", range(20, 32)), whole[20:])


def test_a_shared_layer_draws_anew_at_each_call():
    layer = random.Dropout(0.5)
    layer.build()
    with random.scope(random.key(1), np.arange(2, dtype="int32")):
        one, two = (np.asarray(layer(np.ones((2, 64), "float32"), training=True)) for _ in range(2))
    assert (one != two).any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masks_of_open_lengths_are_those_of_known_ones(dtype, compiled):
    """Traced once for both calls; the gradient is one product."""
    keys, x = random.key(3, np.arange(2)), tf.cast(tf.random.stateless_normal((2, 5, 3), (1, 2)), dtype)

    def twice(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = random.drop(random.drop(x, keys, 0.3), keys + np.uint32(1), 0.3, first=7)
        return y, tape.gradient(y, x)

    open_lengths = tf.function(twice, [tf.TensorSpec((2, None, 3), x.dtype)], jit_compile=compiled)
    for one, other in zip(open_lengths(x), twice(x), strict=True):
        np.testing.assert_array_equal(tf.cast(one, "float32"), tf.cast(other, "float32"))
    assert open_lengths.get_concrete_function().outputs[0].shape.as_list() == [2, None, 3]
    calls = [each.type for each in open_lengths.get_concrete_function().graph.get_operations()]
    assert calls.count("PartitionedCall") == 2


def test_outside_of_a_scope_each_call_differs():
    layer = random.Dropout(0.5)
    layer.build()
    one, two = (np.asarray(layer(np.ones((2, 64), "float32"), training=True)) for _ in range(2))
    assert (one != two).any()


def test_a_shared_mask_is_one_for_all_rows_of_an_update():
    """Whatever the rows of a micro-batch; another update has another."""
    layer = random.Dropout(0.5, shared=True, name="shared")
    layer.build()
    x = np.ones((1, 4, 50), "float32")

    def mask(step, rows):
        with random.scope(random.key(1, step), np.array(rows)):
            return np.asarray(layer(x, training=True))

    np.testing.assert_array_equal(mask(3, [0, 1]), mask(3, [5, 6, 7]))
    assert (mask(3, [0]) != mask(4, [0])).any()


def test_a_gradient_keeps_a_byte_for_each_element():
    """Not the numbers that it was multiplied by: of attention they are as many as the probabilities."""

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = random.drop(x, random.key(3, np.arange(2)), 0.5)
        return y, tape.gradient(y, x)

    x = tf.ones((2, 3, 4))
    y, found = step(x)
    np.testing.assert_array_equal(y, found)
    assert set(np.unique(y)) == {0.0, 2.0}
    graph = step.get_concrete_function(x).graph
    assert not [op for op in graph.get_operations() if op.type == "Cast" and op.inputs[0].dtype == tf.bool]
