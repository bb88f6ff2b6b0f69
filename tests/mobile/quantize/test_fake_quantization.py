"""Fake quantization: values worked out by hand, gradients that go straight through, the file's own numbers."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers import random
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.norms import LayerNorm
from kerasbert.mobile.quantize import fake_quantization as fake


def gradient(function, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x) * upstream)
    return tape.gradient(y, x).numpy()


def test_weights_have_a_scale_for_each_output():
    """Steps of 2/127 and 1/127; the third column is zero."""
    kernel = tf.constant([[2.0, 0.5, 0.0], [-1.0, -1.0, 0.0]])
    # 1 / (2/127) = 63.5 -> 64 (the nearest even), 0.5 / (1/127) = 63.5 -> 64
    expected = [[2.0, 64 / 127, 0.0], [-64 * 2 / 127, -1.0, 0.0]]
    np.testing.assert_allclose(fake.per_output(kernel), expected, rtol=1e-6)


def test_a_token_has_255_steps_of_its_own_range():
    """Row 0: -1 to 1.55 in steps of .01, 0 stands at -28. Row 1 has no negative number: 0 to 2.55. Row 2 is empty."""
    x = tf.constant([[-1.0, 1.55, 0.014, 0.016], [2.55, 1.0, 0.006, 0.0], [0.0, 0.0, 0.0, 0.0]])
    expected = [[-1.0, 1.55, 0.01, 0.02], [2.55, 1.0, 0.01, 0.0], [0.0, 0.0, 0.0, 0.0]]
    np.testing.assert_allclose(fake.per_token(x), expected, atol=1e-6)


def test_zero_is_kept_where_it_lies_between_two_steps():
    """-1 to 2: steps of 3/255, 0 at -128 + 85 = -43 exactly; -1 to 1: 0 at -0.5, which is 0, and 1 is out of reach."""
    np.testing.assert_allclose(fake.per_token(tf.constant([[-1.0, 2.0, 0.0]])), [[-1.0, 2.0, 0.0]], atol=1e-6)
    # 255/2 steps a unit: -1 -> -127.5 -> -128, 1 -> 127.5 -> 128 -> 127
    found = fake.per_token(tf.constant([[-1.0, 1.0, 0.0]])).numpy()
    np.testing.assert_allclose(found, [[-128 / 127.5, 127 / 127.5, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("function", [fake.per_output, fake.per_token, lambda x: fake.in_steps(x, tf.constant(0.1))])
def test_gradients_go_straight_through(function):
    x, upstream = tf.constant([[0.3, -0.7], [0.123, 2.0]]), np.array([[1.0, 2.0], [-3.0, 0.5]], "float32")
    assert np.abs(function(x) - x).max() > 1e-4
    np.testing.assert_array_equal(gradient(function, x, upstream), upstream)


def test_per_channel_is_numpy():
    """Product of integers, then both scales: what the kernel of the file computes."""
    generator = np.random.default_rng(0)
    x, kernel = generator.normal(size=(2, 5, 16)), generator.normal(size=(16, 8)) * generator.uniform(0.1, 9, 8)
    x, kernel = x.astype("float32"), kernel.astype("float32")
    scale = np.abs(kernel).max(0) / np.float32(127)
    whole = np.round(kernel / scale).astype("int64")
    assert np.abs(whole).max() == 127
    low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    steps = np.float32(255) / (high - low)
    zero = np.round(-128 - low * steps).astype("int64")
    q = np.clip(np.round(x * steps).astype("int64") + zero, -128, 127)
    expected = ((q - zero) @ whole) / steps * scale
    found = fake.PerChannel().linear(tf.constant(x), tf.constant(kernel), tf.zeros(8))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert np.abs(found - x @ kernel).max() > 1e-3


def test_the_norms_scale_is_rounded_with_the_kernel():
    """The converter moves gamma and beta into the product that reads them: what is rounded is z and gamma * kernel."""
    norm, linear, quantizer = LayerNorm(), Linear(8), fake.PerChannel()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(3, 16)).astype("float32")
    norm.build((None, 16))
    linear.build((None, 16))
    gamma, beta = generator.uniform(0.01, 3, 16).astype("float32"), generator.normal(size=16).astype("float32")
    norm.gamma.assign(gamma), norm.beta.assign(beta)
    kernel, plain = linear.kernel.numpy(), linear(norm(x)).numpy()
    norm.quantizer = linear.quantizer = quantizer
    z = (norm(x).numpy() - beta) / gamma
    expected = fake.per_token(tf.constant(z)) @ fake.per_output(tf.constant(gamma[:, None] * kernel)) + beta @ kernel
    found = linear(norm(x)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # another tensor with the same values is no norm's result any more
    sliced = linear(norm(x)[:2]).numpy()
    np.testing.assert_allclose(sliced, (fake.per_token(norm(x)[:2]) @ fake.per_output(tf.constant(kernel))), atol=1e-5)
    assert np.abs(found[:2] - sliced).max() > 1e-4
    assert np.abs(found - plain).max() > 1e-4


def test_a_norms_gradient_is_the_float_ones():
    """To gamma, beta and the input, up to the rounding."""
    norm, linear = LayerNorm(), Linear(8)
    x = tf.constant(np.random.default_rng(0).normal(size=(3, 16)).astype("float32"))
    norm.build((None, 16))
    linear.build((None, 16))
    norm.gamma.assign(np.linspace(0.01, 2, 16)), norm.beta.assign(np.linspace(-1, 1, 16))

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(linear(norm(x)) + 1))
        return tape.gradient(loss, [x, norm.gamma.value, norm.beta.value, linear.kernel.value])

    plain = gradients()
    norm.quantizer = linear.quantizer = fake.PerChannel()
    for one, other in zip(gradients(), plain, strict=True):
        assert 0 < np.abs(one - other).max() < 0.02 * np.abs(other).max()


def test_a_table_has_one_scale():
    table, ids = tf.constant([[1.27, 0.1], [0.016, -0.004]]), tf.constant([1, 1, 0])
    with tf.GradientTape() as tape:
        tape.watch(table)
        rows = fake.PerChannel().gather(table, ids)
        loss = tf.reduce_sum(rows)
    np.testing.assert_allclose(rows, [[0.02, 0.0], [0.02, 0.0], [1.27, 0.1]], atol=1e-7)
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(loss, table)), [[1, 1], [2, 2]])


@pytest.mark.parametrize("on", [False, True])
def test_rounding_can_begin_later(on):
    switch = tf.Variable(on)
    quantizer, x = fake.PerChannel(switch), tf.constant([[0.3, -0.7]])
    call = tf.function(lambda: quantizer.linear(x, tf.constant([[1.0], [0.4]]), tf.zeros(1)))
    assert (abs(float(call()[0, 0]) - 0.02) > 1e-5) == on


def test_ranges_are_moving_averages():
    """-1..2 and -3..1 with decay 0.75: -1.5..1.75. Before the first update there is nothing to average."""
    quantizer, strategy = fake.PerTensor(), tf.distribute.get_strategy()
    kernel, bias = tf.constant([[1.0], [1.0]]), tf.constant([0.5])
    expected = [[[-1.0, 2.0], [0.0, 1.5]], [[-1.5, 1.75], [-0.375, 1.125]]]
    for x, ranges in zip(([[-1.0, 2.0]], [[-3.0, 1.0]]), expected):
        with random.scope(tf.constant([0, 0], tf.uint32), tf.range(1)):
            quantizer.on = tf.constant(False)
            quantizer.linear(tf.constant(x), kernel, bias)
        quantizer.learn(strategy, 0.75)
        np.testing.assert_allclose(quantizer.ranges, ranges)
    # micro-batches of one update are one batch, and outside of the training pass nothing is seen
    with random.scope(tf.constant([0, 0], tf.uint32), tf.range(1)):
        quantizer.linear(tf.constant([[-2.0, 0.0]]), kernel, bias)
        quantizer.linear(tf.constant([[0.0, 3.0]]), kernel, bias)
    quantizer.linear(tf.constant([[-9.0, 9.0]]), kernel, bias)
    np.testing.assert_allclose(quantizer.reached(strategy), [[-2.0, 3.0, 5.0, 2.0], [-1.5, 3.5, 5.0, 2.0]])
    # an update that exploded teaches nothing
    quantizer.note(strategy, [[-np.inf, 3.0, np.inf, 1.0], [0.0, np.nan, np.nan, 1.0]])
    quantizer.learn(strategy, 0.5)
    np.testing.assert_allclose(quantizer.ranges, [[-1.5, 2.375], [-0.375, 1.125]])
    np.testing.assert_array_equal(quantizer.reached(strategy), np.zeros((2, 4)))


def test_a_range_ends_at_three_times_what_a_token_reaches():
    """Nine tokens of 1 and one of -41 reach 5 on average; -41 is cut off at -15. What lies within is not cut."""
    quantizer, strategy = fake.PerTensor(tf.constant(False)), tf.distribute.get_strategy()
    x = np.array([[0.5, 1.0]] * 9 + [[0.0, -41.0]], "float32")
    with random.scope(tf.constant([0, 0], tf.uint32), tf.range(1)):
        for part in (x[:4], x[4:]):  # two micro-batches
            quantizer.linear(tf.constant(part), tf.constant([[2.0], [0.0]]), tf.zeros(1))
    quantizer.learn(strategy, 0.9)
    np.testing.assert_allclose(quantizer.ranges, [[-15.0, 1.0], [0.0, 1.0]])


def test_per_tensor_rounds_input_and_output():
    """Input 0..2.55: steps of .01, output -1.27..1.28 too; what lies outside is cut off and receives no gradient."""
    quantizer = fake.PerTensor(ranges=np.array([[0, 2.55], [-1.28, 1.27]]))
    x = tf.constant([[0.104], [3.0], [1.006], [-0.2]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = quantizer.linear(x, tf.constant([[0.5]]), tf.constant([0.101]))
    # .10 * .5 + .101 = .151 -> .15; 2.55 -> 1.376 -> 1.27; 1.01 -> .606 -> .61; 0 -> .101 -> .10
    np.testing.assert_allclose(y, [[0.15], [1.27], [0.61], [0.1]], atol=1e-6)
    np.testing.assert_array_equal(tape.gradient(y, x), [[0.5], [0.0], [0.5], [0.0]])
