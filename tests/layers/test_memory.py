"""What is remembered of segments, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers.memory import Memory, remembered


def hidden(*tokens):
    """A row of vectors of one number."""
    return tf.constant(tokens, "float32")[None, :, None]


def test_the_last_places_of_memory_and_segment():
    first = remembered(None, [hidden(1, 2), hidden(10, 20)], 3)
    assert first.mask is None
    assert first.places == 2
    second = remembered(first, [hidden(3, 4), hidden(30, 40)], 3)
    assert [layer.numpy().ravel().tolist() for layer in second.layers] == [[2, 3, 4], [20, 30, 40]]
    third = remembered(second, [hidden(5, 6, 7, 8), hidden(50, 60, 70, 80)], 3)
    assert third.layers[0].numpy().ravel().tolist() == [6, 7, 8]
    assert remembered(second, [hidden(5), hidden(50)], 0) is None


def test_places_of_nothing_have_no_mark():
    memory = Memory.empty(1, 3, 1, 1, "float32")
    memory = remembered(memory, [hidden(1, 2)], 3, real=[[1, 0]])
    assert memory.layers[0].numpy().ravel().tolist() == [0, 1, 2]
    assert memory.mask.numpy().tolist() == [[0, 1, 0]]
    again = Memory.of_state(memory.state)
    assert [layer is own for layer, own in zip(again.layers, memory.layers, strict=True)] == [True]
    assert again.mask is memory.mask
    grown = remembered(remembered(None, [hidden(1, 2)], 3), [hidden(3, 4)], 3, real=[[1, 0]])
    assert grown.mask.numpy().tolist() == [[1, 1, 0]]


def test_it_has_no_gradient():
    x = tf.Variable([[[1.0], [2.0]]])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(remembered(None, [x * 3], 2).layers[0])
    assert float(total) == 9
    assert tape.gradient(total, x) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_it_is_as_the_segment_is(dtype):
    memory = remembered(Memory.empty(2, 3, 2, 4, "float32"), [tf.ones((2, 1, 4), dtype)] * 2, 3)
    assert {layer.dtype.name for layer in memory.layers} == {dtype}
    np.testing.assert_array_equal(memory.mask, [[0, 0, 1]] * 2)
