"""Attention in chunks: by hand, against the mask form with gradients, lonely tokens, padding, directions, sorting."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from kerasbert.layers import random
from kerasbert.layers.backend import fusion, permute, permute_plainly, stable_argsort
from kerasbert.layers.lsh import Chunks, LocalAttention, LSHAttention, Visible, chunk_weights, round_weights
from tests.support import close


def made(kind, chunks, seed=0, width=7, heads=2, size=3, **more):
    """A built layer with random weights."""
    layer = kind(heads, size, chunks=chunks, name="attention", **more)
    layer.build((None, None, width))
    generator = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(generator.normal(0, 0.6, weight.shape))
    return layer


def inputs(rows=2, length=12, width=7, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, length, width)).astype("float32")


def test_weights_by_hand():
    scores = np.log(np.array([[1.0, 2.0, 5.0], [3.0, 1.0, 7.0], [4.0, 4.0, 4.0]], "float32"))[None, None, None]
    visible = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0]], bool)[None, None, None]
    own = np.eye(3, dtype=bool)[None, None, None]
    weights, logits, company = chunk_weights(scores, visible, own, None, rate=0.0, dtype="float32")
    # the first sees itself alone, the second 3 and 7 of its neighbours, the third nothing
    np.testing.assert_allclose(np.asarray(weights)[0, 0, 0], [[1, 0, 0], [0.3, 0, 0.7], [0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(np.asarray(logits)[0, 0, 0, :2], np.log([1, 10]), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(company)[0, 0, 0], [0, 1, 0])
    # 10 of 25 and 15 of 25; a lonely round counts nothing beside another, and all where there are no others
    two = np.log(np.array([[10.0, 99.0, 5.0], [15.0, 3.0, 5.0]], "float32"))[None, None]
    met = np.array([[1, 0, 0], [1, 1, 0]], "float32")[None, None]
    found = np.asarray(round_weights(two, met))[0, 0]
    np.testing.assert_allclose(found, [[0.4, 0, 0.5], [0.6, 1, 0.5]], atol=1e-6)


def test_local_attention_by_hand():
    layer = LocalAttention(1, 2, chunks=Chunks(2, 1, 0, 2, 2))
    layer.build((None, None, 2))
    for weight in layer.weights:
        weight.assign(np.eye(2))
    x = np.array([[[1, 0], [0, 1], [1, 1], [2, 0]]], "float32")
    y, probabilities = layer(x, visible=Visible(causal=True), probabilities=True)
    a = np.exp(1 / np.sqrt(2))
    # the third token sees its own chunk and the one before, up to itself: scores 1, 1 and 2 over the root of 2
    third = np.array([a, a, a * a, 0]) / (2 * a + a * a)
    np.testing.assert_allclose(probabilities[0, 0, 2], third, atol=1e-6)
    np.testing.assert_allclose(y[0, 2], third @ x[0], atol=1e-6)
    np.testing.assert_allclose(probabilities[0, 0, 0], [1, 0, 0, 0], atol=1e-6)


def mask_form(layer, x, visible, buckets):
    """The same by full matrices: every round a mask, of the pairs that share a bucket and stand in own or previous chunk."""
    length, chunk = x.shape[1], layer.chunks.size
    shared, value = (layer.split(each(x)) for each in (layer.query_key, layer.value))
    scores = ops.matmul(shared, ops.transpose(layer.unit(shared), (0, 1, 3, 2)))
    order = np.argsort(buckets, axis=-1, kind="stable")
    number = np.argsort(order, axis=-1) // chunk  # [B, N, R, S]
    behind = number[..., :, None] - number[..., None, :]
    near = (behind >= -layer.chunks.after) & (behind <= layer.chunks.before)
    same = buckets[..., :, None] == buckets[..., None, :]
    seen = near & same
    if visible.real is not None:
        seen = seen & np.asarray(visible.real, bool)[:, None, None, None, :]
    if visible.causal:
        seen = seen & np.tril(np.ones((length, length), bool))
    own = np.eye(length, dtype=bool)
    company = (seen & ~own).any(-1, keepdims=True)
    seen = (seen & ~own) | (seen & own & ~company)
    spread = ops.where(seen, ops.expand_dims(scores, 2), -1e9)
    each = ops.softmax(spread, axis=-1) * seen.any(-1, keepdims=True)
    met = company[..., 0]
    logits = ops.where(met | ~met.any(2, keepdims=True), ops.logsumexp(spread, axis=-1), -1e9)
    share = ops.exp(logits - ops.logsumexp(logits, axis=2, keepdims=True))
    y = ops.sum(ops.matmul(each, ops.expand_dims(value, 2)) * ops.expand_dims(share, -1), axis=2)
    y = ops.transpose(y, (0, 2, 1, 3))
    return layer.output_projection(ops.reshape(y, (*y.shape[:2], -1)))


@pytest.mark.parametrize(
    ("rounds", "causal", "padded", "after", "factors"),
    [(1, True, False, 0, 4), (3, False, True, 0, (2, 4)), (2, True, True, 0, 2), (2, False, False, 1, 6)],
)
def test_the_kernel_is_the_mask_form_with_gradients(rounds, causal, padded, after, factors):
    layer = made(LSHAttention, Chunks(3, 1, after, 3, 3), buckets=factors, rounds=rounds, across=False)
    x = tf.constant(inputs())
    real = np.arange(12) < np.array([[12], [8]]) if padded else None
    visible = Visible(real, causal=causal)
    buckets = layer.hash(layer.split(layer.query_key(x)), real, False).numpy()
    assert len(np.unique(buckets)) > 1
    upstream = inputs(seed=5)
    weights = [weight.value for weight in layer.weights]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        ours, theirs = layer(x, visible=visible)[0], mask_form(layer, x, visible, buckets)
        one, other = ops.sum(ours * upstream), ops.sum(theirs * upstream)
    close(ours, theirs)
    for mine, full in zip(tape.gradient(one, [x, *weights]), tape.gradient(other, [x, *weights]), strict=True):
        close(mine, full)


def test_one_bucket_is_not_full_attention():
    layer = made(LSHAttention, Chunks(3, 1, 0, 3, 3), buckets=2, across=False)
    layer.fixed = np.zeros_like(layer.fixed)  # every product is 0, the first bucket
    probabilities = np.asarray(layer(inputs(), probabilities=True)[1])
    chunk = np.arange(12) // 3
    near = (chunk[:, None] - chunk[None] >= 0) & (chunk[:, None] - chunk[None] <= 1)
    assert ((probabilities > 0) == (near & ~np.eye(12, dtype=bool))).all()


@pytest.mark.parametrize("kind", [LocalAttention, LSHAttention])
def test_up_to_a_chunk_it_is_full_attention_whatever_is_known_of_the_length(kind):
    more = {} if kind is LocalAttention else {"buckets": 4, "rounds": 2}
    layer = made(kind, Chunks(8, 1, 0, 8, 8), **more)
    x, visible = inputs(length=6), Visible(causal=True)
    whole = layer(x, visible=visible)[0]
    unknown = tf.function(
        lambda x: layer(x, visible=visible)[0], input_signature=[tf.TensorSpec((None, None, 7), tf.float32)]
    )
    close(unknown(x), whole)


@pytest.mark.parametrize("kind", [LocalAttention, LSHAttention])
def test_padding_and_what_stands_behind_are_not_seen(kind):
    more = {} if kind is LocalAttention else {"buckets": 4, "rounds": 2}
    layer = made(kind, Chunks(3, 1, 0, 3, 3), **more)
    x, real = inputs(length=11), np.arange(11) < np.array([[11], [7]])
    other = np.where(real[..., None], x, 9.0).astype("float32")
    found = [np.asarray(layer(each, visible=Visible(real))[0]) for each in (x, other)]
    np.testing.assert_array_equal(found[0][1, :7], found[1][1, :7])
    # of pieces and of a matrix alike; who sees nothing gets zeros
    pieces = np.repeat([[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]], 2, axis=0).astype("int32")
    matrix = pieces[:, :, None] == pieces[:, None, :]
    by_matrix = layer(x, visible=Visible(matrix=matrix))[0]
    close(layer(x, visible=Visible(pieces=pieces))[0], by_matrix)
    matrix[0, 4] = False
    assert (np.asarray(layer(x, visible=Visible(matrix=matrix))[0])[0, 4] == 0).all()


def test_probabilities_are_of_all_tokens_and_add_up():
    layer = made(LSHAttention, Chunks(3, 1, 0, 3, 3), buckets=(2, 4), rounds=3)
    x = inputs(length=11)
    y, probabilities = layer(x, visible=Visible(causal=True), probabilities=True)
    assert probabilities.shape == (2, 2, 11, 11)
    np.testing.assert_allclose(np.asarray(probabilities).sum(-1), 1, atol=1e-5)
    assert not np.triu(np.asarray(probabilities), 1).any()
    values = layer.split(layer.value(x))
    own = ops.transpose(ops.matmul(probabilities, values), (0, 2, 1, 3))
    close(layer.output_projection(ops.reshape(own, (2, 11, -1))), y)


def test_compiled_parts_give_the_same():
    layer = made(LSHAttention, Chunks(3, 1, 0, 3, 3), buckets=4, rounds=2)
    x = tf.constant(inputs())

    def both():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, visible=Visible(causal=True))[0]
        return y, tape.gradient(y, x, output_gradients=tf.constant(inputs(seed=3)))

    plain = both()
    with fusion(True):
        compiled = both()
    for one, other in zip(plain, compiled, strict=True):
        close(one, other)


def test_directions_follow_update_layer_and_round_and_nothing_else():
    layers = [made(LSHAttention, Chunks(3), buckets=8, rounds=2, layer=i) for i in (0, 1)]
    again = made(LSHAttention, Chunks(3), buckets=8, rounds=2, layer=0)
    np.testing.assert_array_equal(layers[0].fixed, again.fixed)
    assert not np.array_equal(layers[0].fixed, layers[1].fixed)
    assert not np.array_equal(layers[0].fixed[..., :4], layers[0].fixed[..., 4:])
    np.testing.assert_array_equal(layers[0].rotations(False), layers[0].fixed)

    def drawn(words, rows, layer=layers[0]):
        with random.scope(tf.constant(words, tf.uint32), tf.constant(rows)):
            return np.asarray(layer.rotations(True))

    np.testing.assert_array_equal(drawn([1, 2], [0, 1]), drawn([1, 2], [8, 9, 10]))
    assert not np.array_equal(drawn([1, 2], [0]), drawn([1, 3], [0]))
    assert not np.array_equal(drawn([1, 2], [0]), drawn([1, 2], [0], layers[1]))


def test_directions_are_normal_and_buckets_even():
    layer = LSHAttention(4, 16, chunks=Chunks(3), buckets=64, rounds=4)
    layer.build((None, None, 64))
    count = layer.fixed.size
    assert abs(layer.fixed.mean()) < 3 / np.sqrt(count)
    assert abs(layer.fixed.var() - 1) < 3 * np.sqrt(2 / count)

    # every head has directions of its own: 4 x 1,024 independent draws, in which each bucket has the same chance
    layer = LSHAttention(1024, 16, chunks=Chunks(3), buckets=64, rounds=4)
    layer.fixed = np.asarray(layer.directions(random.key(0, "buckets")))
    vectors = np.random.default_rng(0).normal(size=(1, 1024, 1, 16)).astype("float32")
    counts = np.bincount(np.asarray(layer.hash(vectors, None, False)).ravel(), minlength=64)
    share, draws = 1 / 64, 4 * 1024
    assert np.abs(counts - draws * share).max() < 3 * np.sqrt(draws * share * (1 - share))


def test_sorting_is_stable_and_permuting_has_a_gather_for_its_gradient():
    numbers = np.random.default_rng(0).integers(0, 3, (2, 2, 3, 40)).astype("int32")
    expected = np.argsort(numbers, axis=-1, kind="stable")
    order = stable_argsort(tf.constant(numbers))
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(tf.function(stable_argsort, jit_compile=True)(tf.constant(numbers)), expected)
    undo = stable_argsort(order)
    for shape in ((2, 2, 40, 5), (2, 2, 3, 40, 5)):
        x = tf.constant(np.random.default_rng(1).normal(size=shape).astype("float32"))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            ours, plain = permute(x, order, undo), permute_plainly(x, order)
            weighed = [y * tf.range(40.0)[:, None] for y in (ours, plain)]
        np.testing.assert_array_equal(ours, plain)
        np.testing.assert_allclose(*(tape.gradient(y, x) for y in weighed), atol=1e-4)
