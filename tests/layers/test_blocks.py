"""Attention by blocks of rows, as on TPU, against attention of all rows at once."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.layers import backend, backend_blocks, random, visibility
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend_blocks import block_rows, by_rows
from kerasbert.layers.rotary import RotaryAttention
from kerasbert.models.modernbert import LocalAttention
from kerasbert.models.mpnet import MPNetAttention
from kerasbert.models.roformer import RoFormerAttention

ROWS, LENGTH, HIDDEN = 8, 5, 8
MASKS = {
    "none": None,
    "padding": visibility.padding(np.arange(LENGTH) < np.array([[5], [4], [3], [2], [1], [5], [4], [3]])),
    "pieces": visibility.packed(np.array([[1, 1, 2, 2, 0]] * 7 + [[1, 2, 3, 4, 5]])),
    "causal": visibility.causal(LENGTH),
}


@contextlib.contextmanager
def blocks(monkeypatch, rows: int):
    """Tracing as for a TPU whose memory takes so many rows of float32 scores of two heads."""
    with monkeypatch.context() as patch, backend.as_tpu():
        patch.setattr(backend_blocks, "BLOCK", rows * 2 * LENGTH * LENGTH * 4)
        yield


def results(layer, x, bias, source=None, **at) -> list[np.ndarray]:
    """y, the probabilities, the gradients by x, the source and the weights of a training call with dropout."""
    inputs = [x] if source is None else [x, source]
    weights = [weight.value for weight in layer.trainable_variables]
    with random.scope(tf.constant([3, 4], tf.uint32), tf.range(ROWS)), tf.GradientTape() as tape:
        tape.watch(inputs)
        y, probabilities = layer(x, bias, source, training=True, **at)
        loss = tf.reduce_sum(tf.cast(y, "float32") * tf.random.stateless_normal(y.shape, (1, 2)))
    found = [y, probabilities, *tape.gradient(loss, [*inputs, *weights])]
    return [tf.cast(one, "float32").numpy() for one in found]


def drawn(shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), "float32")


def equal(found, expected):
    """Up to float32's rounding of the largest number: a gradient that is 0 is a sum of such."""
    largest = max(np.abs(each).max() for each in expected)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, atol=5e-7 * largest)


@pytest.mark.parametrize("mask", MASKS)
def test_values_gradients_and_dropout_are_those_of_all_rows_at_once(monkeypatch, mask):
    layer = Attention(2, 4, dropout=0.3, initializer=0.5)
    layer.build((None, None, HIDDEN))
    x, bias = drawn((ROWS, LENGTH, HIDDEN)), None if MASKS[mask] is None else visibility.bias(MASKS[mask])
    expected = results(layer, x, bias)
    called = []
    for name in ("scan", "_replaced"):
        function = getattr(backend_blocks, name)
        monkeypatch.setattr(backend_blocks, name, lambda *args, function=function: called.append(1) or function(*args))
    with blocks(monkeypatch, 2):
        found = results(layer, x, bias)
    assert len(called) == 2  # forward and backward
    equal(found, expected)


@pytest.mark.parametrize("mask", ["none", "padding", "pieces"])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [(RotaryAttention, {}), (LocalAttention, {"window": 2}), (RoFormerAttention, {"values": True})],
    ids=["rotary", "local", "values"],
)
def test_rotated_queries_and_keys_are_attended_to_in_blocks(monkeypatch, kind, settings, mask):
    layer = kind(2, 4, dropout=0.3, initializer=0.5, **settings)
    layer.build((None, None, HIDDEN))
    x, bias = drawn((ROWS, LENGTH, HIDDEN)), None if MASKS[mask] is None else visibility.bias(MASKS[mask])
    places = tf.range(LENGTH)[None] if mask == "none" else tf.constant([[0, 1, 0, 1, 2]] * 4 + [[0, 1, 2, 3, 4]] * 4)
    expected = results(layer, x, bias, scoring=places)
    called = []
    monkeypatch.setattr(
        "kerasbert.layers.attention.by_rows", lambda *args: called.append(args[-1]) or backend_blocks.by_rows(*args)
    )
    with blocks(monkeypatch, 2):
        found = results(layer, x, bias, scoring=places)
    assert called == [2]
    equal(found, expected)


def test_keys_of_another_sequence(monkeypatch):
    layer = Attention(2, 4, dropout=0.3, initializer=0.5)
    layer.build((None, None, HIDDEN))
    x, source = drawn((ROWS, LENGTH, HIDDEN)), drawn((ROWS, 3, HIDDEN), 1)
    bias = visibility.bias(visibility.padding(np.arange(3) < np.array([[3], [2], [1], [3]] * 2)))
    expected = results(layer, x, bias, source)
    with blocks(monkeypatch, 1):
        found = results(layer, x, bias, source)
    equal(found, expected)


def test_bfloat16(monkeypatch):
    layer = Attention(2, 4, dropout=0.3, initializer=0.5, dtype="mixed_bfloat16")
    layer.build((None, None, HIDDEN))
    x, bias = drawn((ROWS, LENGTH, HIDDEN)), visibility.bias(MASKS["padding"])
    with backend.as_tpu():
        expected = results(layer, x, bias)
    with blocks(monkeypatch, 1):
        found = results(layer, x, bias)
    np.testing.assert_array_equal(found[0], expected[0])
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, atol=0.02 * np.abs(one).max())


def test_blocks_divide_the_rows_and_stay_within_the_chips_memory(monkeypatch):
    monkeypatch.setattr(backend_blocks, "BLOCK", 100)
    assert block_rows(64, 10) == 0  # no TPU
    with backend.as_tpu():
        assert block_rows(64, 10) == 8
        assert block_rows(63, 10) == 9
        assert block_rows(7, 50) == 1  # a prime
        assert block_rows(8, 1000) == 1  # no row fits: the fewest
        assert block_rows(30, 10) == 0  # three blocks: the chip's own memory does as well
        with backend.as_tpu("v4"):  # whose memory is too small
            assert block_rows(64, 10) == 0
        assert (block_rows(None, 10), block_rows(64, None), block_rows(1, 1000)) == (0, 0, 0)


def test_no_blocks_where_scores_read_weights(monkeypatch):
    def no(*args):
        raise AssertionError

    class Scaled(Attention):
        def scores(self, query, key, **at):
            return super().scores(query, key, **at) * self.query.bias[0]

    x = drawn((ROWS, LENGTH, HIDDEN))
    monkeypatch.setattr("kerasbert.layers.attention.by_rows", no)
    with blocks(monkeypatch, 1):
        Scaled(2, 4)(x)
        MPNetAttention(2, 4)(x, scoring=drawn((1, 2, LENGTH, LENGTH)), queries=None)
        with pytest.raises(AssertionError):
            Attention(2, 4)(x)


def test_by_rows_without_blocks_is_the_function():
    x = drawn((4, 2))
    np.testing.assert_array_equal(by_rows(lambda x, y: x + 1, [x], [None], (2,), 0), x + 1)
