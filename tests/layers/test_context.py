"""What blocks are told: queries, memory, visibility; and how learned numbers reach the scores."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import visibility
from kerasbert.layers.attention import Attention
from kerasbert.layers.backend import fusion
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.naming import names
from kerasbert.layers.norms import LayerNorm
from kerasbert.spec import Spec

SMALL = {
    "hidden": 16,
    "dropout": 0.0,
    "initializer": 0.3,
    "embeddings.vocabulary": 50,
    "embeddings.positions": 19,
    "attention.heads": 2,
    "feedforward.width": 24,
    "blocks.layers": 2,
}
GENERATOR = np.random.default_rng(5)
X = tf.constant(GENERATOR.normal(size=(2, 6, 16)), tf.float32)


def encoder(**changes) -> Encoder:
    """A small one, with weights far from zero."""
    keras.utils.set_random_seed(3)
    built = Encoder(Spec().derive(SMALL | {name.replace("__", "."): value for name, value in changes.items()}))
    built.build()
    return built


def inputs(**more) -> dict:
    """Two rows of 9 tokens, three of the first are padding."""
    mask = np.ones((2, 9), "int32")
    mask[0, 6:] = 0
    ids = np.random.default_rng(1).integers(0, 50, (2, 9)).astype("int32")
    return {"token_ids": ids, "padding_mask": mask} | more


def block(kind: type = Block, **changes) -> Block:
    """A built block of two heads."""
    keras.utils.set_random_seed(2)
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "epsilon": 1e-6, "initializer": 0.3}
    built = kind(heads=2, head_size=8, width=24, activation="gelu", name="block_0", **rates | changes)
    built.build((None, None, 16))
    return built


QUERIES = {
    "first": ("first", [[0], [0]]),
    "several": (np.array([[3, 0, 3], [8, 1, 2]], "int32"), None),
    "one a row": (np.array([5, 8], "int32"), [[5], [8]]),
}
MATRIX = np.tril(np.ones((2, 9, 9), "int32"))
MASKS = {
    "padding": {},
    "packed": {"packed_ids": np.array([[1, 1, 2, 2, 2, 3, 0, 0, 0], [1, 1, 1, 1, 2, 2, 2, 2, 2]], "int32")},
    "matrix": {"visible_matrix": MATRIX},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("queries", QUERIES)
def test_the_last_layer_is_computed_for_the_queries_alone(queries, mask):
    """With a mask a row for each token the first token's call gave [2, 9, 16]: x was cut and the bias was not."""
    model, batch = encoder(), inputs(**MASKS[mask])
    wanted, positions = QUERIES[queries]
    positions = np.array(wanted if positions is None else positions)
    whole, some = model(batch, attention=True), model(batch, queries=wanted, attention=True)
    expected = np.take_along_axis(np.asarray(whole["sequence"]), positions[..., None], axis=1)
    assert some["sequence"].shape == (2, positions.shape[1], 16)
    np.testing.assert_allclose(some["sequence"], expected, atol=1e-5)
    assert some["attention"][-1].shape == (2, 2, positions.shape[1], 9)
    np.testing.assert_array_equal(some["hidden"][1], whole["hidden"][1])
    if queries == "first":
        np.testing.assert_allclose(some["pooled"], whole["pooled"], atol=1e-5)


def test_positions_of_a_causal_model_without_a_mask():
    model = encoder(attention__causal=True)
    batch = {"token_ids": inputs()["token_ids"]}
    positions = np.array([[2, 7], [0, 8]], "int32")
    expected = np.take_along_axis(np.asarray(model(batch)["sequence"]), positions[..., None], axis=1)
    np.testing.assert_allclose(model(batch, queries=positions)["sequence"], expected, atol=1e-5)
    as_graph = tf.function(lambda ids, at: model({"token_ids": ids}, queries=at)["sequence"], autograph=False)
    dynamic = as_graph.get_concrete_function(tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32))
    np.testing.assert_allclose(dynamic(batch["token_ids"], positions[:, 1])[:, 0], expected[:, 1], atol=1e-5)


def test_what_is_no_queries_is_refused():
    with pytest.raises(InputError, match=r"queries must be 'first', int positions \[B, P\] or \[B\], or None.*'last'"):
        encoder()(inputs(), queries="last")
    uncut = Context(visibility.bias(MATRIX), "first")
    with pytest.raises(
        ValueError, match=r"bias has 9 rows, expected 1 or 3, one a query: Context.of\(queries\) cuts it"
    ):
        Attention(2, 8)(tf.ones((2, 3, 16)), uncut.bias, tf.ones((2, 9, 16)))


@pytest.mark.parametrize("kind", [Block, PreNormBlock])
def test_memory_stands_in_front_of_the_keys(kind):
    layer = block(kind)
    visible = visibility.bias(visibility.causal(6))
    whole, _ = layer(X, context=Context(visible))
    rest = visibility.bias(visibility.causal(4, memory=2))
    found, weights = layer(X[:, 2:], context=Context(rest, memory=X[:, :2]))
    np.testing.assert_allclose(found, whole[:, 2:], atol=1e-5)
    assert weights.shape == (2, 2, 4, 6)
    one, _ = layer(X[:, 2:], context=Context(rest, memory=X[:, :2]).of(np.array([3, 1])))
    np.testing.assert_allclose(one[:, 0], [whole[0, 5], whole[1, 3]], atol=1e-5)


def test_keys_and_values_can_be_kept():
    attention = block().attention
    bias = visibility.bias(visibility.causal(6))
    np.testing.assert_array_equal(attention.attend(X, *attention.read(X, X), bias)[0], attention(X, bias)[0])
    key, value = attention.read(X, X)
    one, _ = attention.attend(X[:, 3:4], key[:, :, :4], value[:, :, :4])
    np.testing.assert_allclose(one, attention(X, bias)[0][:, 3:4], atol=1e-5)


def test_visibilities_are_anded():
    np.testing.assert_array_equal(visibility.causal(3)[0], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(visibility.causal(2, memory=1)[0], [[1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(visibility.causal(tf.constant(3)), visibility.causal(3))
    padding, causal = visibility.padding(np.array([[1, 1, 0], [1, 0, 1]])), visibility.causal(3)
    expected = [[[1, 0, 0], [1, 1, 0], [1, 1, 0]], [[1, 0, 0], [1, 0, 0], [1, 0, 1]]]
    np.testing.assert_array_equal(visibility.both(padding, None, causal), expected)
    np.testing.assert_array_equal(visibility.both(None, padding), padding)
    assert visibility.both() is visibility.both(None, None) is None


def test_an_encoder_ands_what_it_is_given():
    model = encoder(attention__causal=True)
    weights = np.asarray(model(inputs(), attention=True)["attention"])  # [L, B, N, Q, K]
    expected = np.tril(np.ones((9, 9), bool)) & inputs()["padding_mask"].astype(bool)[:, None]
    np.testing.assert_array_equal(weights > 1e-20, np.broadcast_to(expected[None, :, None], weights.shape))
    matrix = MATRIX.copy()
    matrix[:, 5, 3] = 0
    weights = np.asarray(encoder()(inputs(visible_matrix=matrix), attention=True)["attention"])
    expected = matrix.astype(bool) & inputs()["padding_mask"].astype(bool)[:, None]
    np.testing.assert_array_equal(weights > 1e-20, np.broadcast_to(expected[None, :, None], weights.shape))
    with pytest.raises(
        ValueError, match=r"visible_matrix has shape \(2, 9, 8\), expected \(batch, 9, 9\): one row and"
    ):
        model(inputs(visible_matrix=np.ones((2, 9, 8), "int32")))


def test_a_later_token_changes_nothing_before_it_in_a_causal_model():
    model, one, other = encoder(attention__causal=True), inputs(), inputs()
    other["token_ids"] = other["token_ids"].copy()
    other["token_ids"][:, 5] = 49
    np.testing.assert_array_equal(model(one)["sequence"][:, :5], model(other)["sequence"][:, :5])
    assert np.abs(model(one)["sequence"][1, 5:] - model(other)["sequence"][1, 5:]).max() > 0.01


class RelativeAttention(Attention):
    """T5's scores (Raffel et al., 2020, section 2.1): no scale, a learned number a head for every distance."""

    def build(self, shape):
        super().build(shape)
        self.distances = self.add_weight(shape=(self.heads, 11), initializer="normal", name="distances")

    def scores(self, query, key, scoring):
        learned = keras.ops.cast(keras.ops.take(self.distances, scoring, axis=1), "float32")  # [N, Q, K]
        return keras.ops.cast(keras.ops.matmul(query, keras.ops.swapaxes(key, 2, 3)), "float32") + learned


class GatedFeedForward(FeedForward):
    """A part with weights of its own."""


class Rms(LayerNorm):
    """A norm of another name."""


class RelativeBlock(Block):
    """Its parts are named, its `call` is Block's."""

    attention_class, feedforward_class, norm_class = RelativeAttention, GatedFeedForward, Rms


DISTANCES = tf.constant(5 + np.arange(6)[:, None] - np.arange(6))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_learned_scores_have_their_gradient_in_compiled_parts_too(dtype):
    exact = RelativeAttention(2, 8, initializer=0.3, dtype="float32")
    attention = RelativeAttention(2, 8, initializer=0.3, dtype=dtype)
    for layer in (exact, attention):
        layer.build((None, None, 16))
    attention.set_weights(exact.get_weights())
    gradients = []
    for layer, compiled in ((exact, False), (attention, False), (attention, True)):
        with fusion(compiled), tf.GradientTape() as tape:
            y, weights = layer(X, visibility.bias(visibility.causal(6)), scoring=DISTANCES)
            loss = tf.reduce_sum(tf.cast(y, "float32") ** 2)
        gradients.append(tf.convert_to_tensor(tape.gradient(loss, layer.distances.value)).numpy())
    assert keras.backend.standardize_dtype(y.dtype) == attention.compute_dtype
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    exact, plain, fast = gradients
    assert np.abs(plain).max(axis=0)[5:].min() > 0  # the distances that are seen
    if dtype == "float32":
        np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-6)
    else:  # the compiled gradient reads the rounded probabilities: it is as far off as the plain one
        assert np.linalg.norm(fast - exact) < 2 * np.linalg.norm(plain - exact) < 0.1 * np.linalg.norm(exact)


def test_a_learned_bias_has_its_gradient_in_compiled_parts_too():
    attention, learned = block().attention, tf.Variable(GENERATOR.normal(size=(1, 1, 6, 6)), dtype=tf.float32)
    gradients = []
    for compiled in (False, True):
        with fusion(compiled), tf.GradientTape() as tape:
            loss = tf.reduce_sum(attention(X, learned * 2.0)[0] ** 2)
        gradients.append(tape.gradient(loss, learned))
    assert np.abs(gradients[0]).min() > 0
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_a_block_has_the_parts_that_its_class_names():
    layer = block(RelativeBlock, use_bias=False)
    kinds = {"attention": RelativeAttention, "feedforward": GatedFeedForward}
    assert {name: type(getattr(layer, name)) for name in kinds} == kinds
    assert type(layer.attention_norm) is type(layer.feedforward_norm) is Rms
    assert {weight.path.rpartition("block_0/")[2] for weight in layer.weights} == {
        *(f"attention/{name}/kernel" for name in ("query", "key", "value", "output")),
        "attention/distances",
        *(f"feedforward/{name}/kernel" for name in ("inner", "outer")),
        *(f"{name}_norm/{leaf}" for name in ("attention", "feedforward") for leaf in ("gamma", "beta")),
    }


def test_without_biases_the_result_is_that_of_zero_biases():
    with_bias, without = encoder(), encoder(blocks__bias=False)
    ours, theirs = names(without), names(with_bias)
    left = {name for name in theirs if name.startswith("block_") and name.endswith("/bias")}
    assert len(left) == 2 * 6
    assert set(ours) == set(theirs) - left
    for name, weight in ours.items():
        weight.assign(theirs[name])  # biases start at 0
    np.testing.assert_array_equal(without(inputs())["sequence"], with_bias(inputs())["sequence"])


def test_a_stack_has_a_memory_for_each_layer():
    one, two = np.ones((1, 2, 3), "float32"), np.zeros((1, 2, 3), "float32")
    context = Context(memory=(one, two))
    assert context.of_layer(0).memory is one
    assert context.of_layer(1).memory is two
    assert Context(memory=one).of_layer(1).memory is one
