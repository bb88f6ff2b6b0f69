"""The reversible stack: plain gradients, draws handed to the gradient, pieces."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from kerasbert.layers import random
from kerasbert.layers.backend_reversible import reversible, reversible_plainly
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.random import Dropout
from kerasbert.layers.reversible import Half, in_pieces


def sublayer(seed, rate=0.3):
    """A map, dropout and tanh of single tokens, with layers of its own."""
    linear, dropout = Linear(5, 0.5, name=f"linear_{seed}"), Dropout(rate, name=f"dropout_{seed}")
    linear.build((None, None, 5))
    dropout.build()
    linear.bias.assign(np.linspace(-1, 1, 5))
    return lambda x, first: ops.tanh(dropout(linear(x), training=True, first=first)), [linear, dropout]


def streams(rows=3, length=7):
    generator = np.random.default_rng(0)
    return [tf.constant(generator.normal(size=(rows, length, 5)).astype("float32")) for _ in range(2)]


def test_by_hand():
    """Two sublayers, twice x and x + 1: (a, b) -> (b, a + 2 b) -> (a + 2 b, b + a + 2 b + 1)."""
    halves = [Half(lambda x, first: 2 * x, []), Half(lambda x, first: x + 1, [])]
    a, b = tf.constant([[[1.0]]]), tf.constant([[[10.0]]])
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        one, two = reversible(halves, a, b)
        total = 3 * one + 5 * two
    assert (float(one[0, 0, 0]), float(two[0, 0, 0])) == (21.0, 32.0)
    assert [float(g[0, 0, 0]) for g in tape.gradient(total, [a, b])] == [8.0, 3 * 2 + 5 * 3]


def gradients(form, sizes, keys=(1, 2)):
    keras.utils.set_random_seed(4)
    made = [sublayer(i) for i in range(4)]
    a, b = streams()
    weights = [weight.value for _, layers in made for weight in layers[0].weights]
    with random.scope(tf.constant(keys, tf.uint32), tf.range(3)), tf.GradientTape() as tape:
        tape.watch([a, b])
        halves = [Half(fn, layers, size) for (fn, layers), size in zip(made, sizes, strict=True)]
        one, two = form(halves, a, b)
        total = tf.reduce_sum(one * streams()[1] + two * two)
    # here the scope is closed: a second draw would be another
    return [total, *tape.gradient(total, [a, b, *weights])]


@pytest.mark.parametrize("compiled", [None, False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_with_dropout_are_the_plain_ones(compiled):
    plain = gradients(reversible_plainly, [0] * 4)
    ours = gradients
    if compiled is not None:
        made = [sublayer(i) for i in range(4)]

        def ours(form, sizes):
            a, b = streams()
            weights = [weight.value for _, layers in made for weight in layers[0].weights]

            @tf.function(jit_compile=compiled)
            def step(a, b):
                with random.scope(tf.constant((1, 2), tf.uint32), tf.range(3)), tf.GradientTape() as tape:
                    tape.watch([a, b])
                    halves = [Half(fn, layers, size) for (fn, layers), size in zip(made, sizes, strict=True)]
                    one, two = form(halves, a, b)
                    total = tf.reduce_sum(one * streams()[1] + two * two)
                return [total, *tape.gradient(total, [a, b, *weights])]

            return step(a, b)

        plain = ours(reversible_plainly, [0] * 4)
    sizes = [0] * 4 if compiled is None else [0, 3, 2, 0]  # of a loop, whose last piece is filled up
    for one, other in zip(ours(reversible, sizes), plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_pieces_change_nothing():
    """Not the values to the last bit either: a piece's dropout is its part of the whole's."""
    whole, pieces = gradients(reversible, [0] * 4), gradients(reversible, [2, 7, 3, 1])
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert abs(float(whole[0] - gradients(reversible, [0] * 4, keys=(1, 3))[0])) > 1e-2
    fn, _ = sublayer(1)
    x = streams()[0]
    with random.scope(tf.constant([1, 2], tf.uint32), tf.range(3)):
        alone = fn(x, 0)
    with random.scope(tf.constant([1, 2], tf.uint32), tf.range(3)):
        np.testing.assert_allclose(in_pieces(fn, x, 3), alone, atol=1e-6)


def test_what_was_drawn_is_handed_out_again():
    with random.recorded() as outer, random.recorded() as inner:
        random.drawn(lambda: 1)
        random.drawn(lambda: 2)
    assert outer == inner == [1, 2]
    with random.replayed(inner):
        assert [random.drawn(lambda: 9), random.drawn(lambda: 9)] == [1, 2]
    assert random.drawn(lambda: 9) == 9


def test_a_gradient_asks_for_no_variable():
    """One that a sublayer reads beside its weights, such as a number of the step, gets none."""
    step = tf.Variable(2.0)
    half = Half(lambda x, first: x * step, [])
    a, b = streams()
    with tf.GradientTape() as tape:
        tape.watch(b)
        two = reversible([half], a, b)[1]
    np.testing.assert_array_equal(tape.gradient(two, b), 2 * np.ones_like(b))
