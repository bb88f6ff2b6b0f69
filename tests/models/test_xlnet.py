"""XLNet: the papers' sizes, names, who sees whom in two streams, memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert import models
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.layers.relative import Relative
from kerasbert.models.xlnet import XLNET, XLNetAttention
from kerasbert.registry import find

TINY = {"hidden": 12, "attention.heads": 3, "feedforward.width": 10, "blocks.layers": 3, "embeddings.vocabulary": 50}
LENGTH = 8
# 0: context; 1 to 3: predicted, and 4 a <cls> among them
ORDER = np.array([[0, 3, 0, 1, 5, 0, 2, 4]], "int32")
TARGETS = np.array([[6, 1, 3, 4]], "int32")


@pytest.fixture(scope="module")
def encoder():
    return built()


def built(**changes):
    keras.utils.set_random_seed(1)
    made = XLNET.encoder(XLNET.spec.derive(TINY | changes))
    made.build()
    generator = np.random.default_rng(1)
    for weight in made.weights:
        if not weight.path.endswith(("gamma", "beta")):
            weight.assign(generator.normal(0, 0.4, weight.shape))
    return made


def inputs(rows=1, seed=0):
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, 50, (rows, LENGTH)).astype("int32")
    return {"token_ids": ids, "segment_ids": np.sort(generator.integers(0, 2, (rows, LENGTH)), 1).astype("int32")}


def test_released_sizes():
    counts = {"base": 116_718_336, "large": 360_268_800}  # reference_counts.json
    assert {size: models.parameters(XLNET.encoder, find(f"xlnet/{size}")[1]) for size in counts} == counts


def test_weight_names_are_public(encoder):
    attention = (*(f"{part}/kernel" for part in ("query", "key", "value", "output", "position")),)
    own = (*attention, "content_bias", "position_bias", "segment_bias", "segments")
    block = {
        *(f"attention/{part}" for part in own),
        *(f"feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")),
        *(f"{part}_norm/{leaf}" for part in ("attention", "feedforward") for leaf in ("gamma", "beta")),
    }
    blocks = {f"block_{i}/{name}" for i in range(3) for name in block}
    assert set(names(encoder)) == {"embeddings/tokens/table", "mask/table", *blocks}


def test_the_term_of_segments_by_hand():
    """(q + s) (e_other - e_same) where segments differ: (2 + 1) (5 - 2) and (3 - 1) (1 - 4)."""
    layer = XLNetAttention(heads=2, head_size=1)
    layer.build((None, None, 2))
    layer.segment_bias.assign([[1], [-1]])
    layer.segments.assign([[[2], [4]], [[5], [1]]])
    other = np.array([[[0.0, 1.0, 1.0]]], "float32")
    query = np.array([[[[2.0]], [[3.0]]]], "float32")
    found = layer.further(query, Relative(None, 3, other=other))
    assert np.asarray(found).tolist() == [[[[0, 9, 9]], [[0, -6, -6]]]]


def differences(encoder, given):
    """How much each vector of the sequence changes with each token: [S, P]."""
    given = {name: np.repeat(value, LENGTH, axis=0) for name, value in given.items()}
    other = given | {"token_ids": (given["token_ids"] + np.eye(LENGTH, dtype="int32")) % 50}
    one, other = (np.asarray(encoder(each)["sequence"]) for each in (given, other))
    return np.abs(one - other).max(axis=-1)


@pytest.mark.parametrize("matrix", [False, True])
def test_a_prediction_changes_exactly_with_earlier_tokens(encoder, matrix):
    """Not with its own token, nor with later ones; whatever the number of layers."""
    given = inputs() | {"target_positions": TARGETS}
    earlier = (ORDER[0] == 0) | (ORDER[0] < ORDER[0][:, None])
    given |= {"visible_matrix": earlier[None].astype("int32")} if matrix else {"order": ORDER}
    apart = differences(encoder, given)
    assert apart.shape == (LENGTH, 4)
    expected = (ORDER[0, :, None] == 0) | (ORDER[0, :, None] < ORDER[0, TARGETS[0]])
    np.testing.assert_array_equal(apart > 1e-5, expected)
    np.testing.assert_array_equal(apart == 0, ~expected)


def test_a_token_sees_itself_and_earlier_ones(encoder):
    """The content stream."""
    apart = differences(encoder, inputs() | {"order": ORDER})
    expected = (ORDER[0, :, None] == 0) | (ORDER[0, :, None] < ORDER[0]) | np.eye(LENGTH, dtype=bool)
    np.testing.assert_array_equal(apart > 1e-5, expected)


@pytest.mark.parametrize("given", [{"order": ORDER}, {"visible_matrix": np.tri(LENGTH, dtype="int32")[None]}, {}])
@pytest.mark.parametrize("causal", [False, True])
def test_single_queries_have_their_rows_of_every_visibility(encoder, given, causal):
    model = built(**{"attention.causal": True}) if causal else encoder
    memory = tuple(np.random.default_rng(i).normal(size=(1, 3, 12)).astype("float32") for i in range(3))
    given = inputs() | given | {"memory": memory, "backward": np.array([True])}
    whole = np.asarray(model(given)["sequence"])
    for queries, rows in (("first", [0]), (np.array([[5, 1]], "int32"), [5, 1]), (np.array([7], "int32"), [7])):
        np.testing.assert_allclose(model(given, queries=queries)["sequence"], whole[:, rows], atol=1e-5)


def test_what_sees_nothing_gets_zeros(encoder):
    """The first of an order without context; theirs averages what it must not see."""
    given = inputs() | {"order": 1 + np.arange(LENGTH, dtype="int32")[None], "target_positions": np.array([[0, 1]])}
    outputs = encoder(given, attention=True)
    for weights in outputs["attention"]:  # of the first layers' both streams, of the last one's queries alone
        np.testing.assert_array_equal(np.asarray(weights)[0, :, -2], 0)
        np.testing.assert_allclose(np.asarray(weights)[0, :, -1].sum(-1), 1, rtol=1e-5)
    other = encoder(given | {"token_ids": (given["token_ids"] + 7) % 50})["sequence"]
    np.testing.assert_array_equal(other[0, 0], outputs["sequence"][0, 0])


def test_memory_is_what_the_layers_read_and_has_no_gradient(encoder):
    first, second = inputs(seed=1), inputs(seed=2)
    with tf.GradientTape() as tape:
        left = encoder(first)["memory"]
        loss = tf.reduce_sum(encoder(second | {"memory": left})["sequence"] ** 2)
    assert [layer.shape for layer in left] == [(1, LENGTH, 12)] * 3
    found = dict(zip(names(encoder), tape.gradient(loss, encoder.trainable_weights)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(second | {"memory": tuple(x.numpy() for x in left)})["sequence"] ** 2)
    alone = dict(zip(names(encoder), tape.gradient(loss, encoder.trainable_weights)))
    for name, value in alone.items():
        if value is not None:
            one, other = (tf.convert_to_tensor(x).numpy() for x in (value, found[name]))
            np.testing.assert_array_equal(one, other)
    whole = encoder(second | {"memory": left})["sequence"]
    assert np.abs(np.asarray(whole) - np.asarray(encoder(second)["sequence"])).max() > 1e-3


def test_masked_memory_is_as_none(encoder):
    given, order = inputs(), {"order": ORDER, "target_positions": TARGETS}
    memory = tuple(np.ones((1, 4, 12), "float32") for _ in range(3))
    part = tuple(layer[:, 2:] for layer in memory)
    for more in ({}, order):
        masked = encoder(given | more | {"memory": memory, "memory_mask": np.array([[0, 0, 1, 1]], "float32")})
        np.testing.assert_allclose(masked["sequence"], encoder(given | more | {"memory": part})["sequence"], atol=1e-5)


def test_two_streams_at_once_are_each_alone(encoder):
    """h is what it is without g."""
    given = inputs() | {"order": ORDER}
    both, alone = encoder(given | {"target_positions": TARGETS}), encoder(given)
    for one, other in zip(both["memory"], alone["memory"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_model_without_a_head_computes_what_is_left(encoder):
    """The second head's part of every matrix by heads goes with it; its outputs were zero."""
    from kerasbert.layers.naming import values
    from kerasbert.mobile.prune.slices import Cut

    whole = values(encoder)
    cut = Cut(encoder.spec, whole).without_heads({layer: [1] for layer in range(3)})
    assert cut.spec.attention.heads == 2
    assert cut.tensors["block_0/attention/segments"].shape == (2, 2, 4)
    assert cut.tensors["block_1/attention/position/kernel"].shape == (12, 8)
    less, silent = XLNET.encoder(cut.spec), built()
    less.build()
    for name, weight in names(less).items():
        weight.assign(cut.tensors[name])
    for block in silent.blocks:
        kernel = block.attention.output_projection.kernel
        kernel.assign(np.where(np.arange(12)[:, None] // 4 == 1, 0, kernel))
    given = inputs() | {"order": ORDER, "target_positions": TARGETS}
    np.testing.assert_allclose(less(given)["sequence"], silent(given)["sequence"], atol=1e-5)


def test_any_length_is_read(encoder):
    assert encoder({"token_ids": np.zeros((1, 600), "int32")}, queries="first")["sequence"].shape == (1, 1, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 9}, "hidden must be even, half sines and half cosines. Received: 9"),
        ({"distances.clamp": -1}, "distances.clamp must be at least 0, no bound. Received: -1"),
        ({"blocks.norm": "pre"}, "XLNet has blocks.norm post and embeddings.kind none. Received: pre, none"),
    ],
)
def test_what_it_cannot_be(change, message):
    with pytest.raises(InputError, match=message):
        XLNET.spec.derive(TINY | change)


def test_targets_and_queries_are_one_too_many(encoder):
    with pytest.raises(ValueError, match="target_positions and queries were given, expected one of them"):
        encoder(inputs() | {"order": ORDER, "target_positions": TARGETS}, queries="first")
