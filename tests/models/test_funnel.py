"""Funnel-Transformer: pooling by hand, scores against the paper's sums, rows, names, counts. Parity: test_parity_funnel."""

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import config as configs
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.layers.pooled import Distances, Level, PooledAttention
from kerasbert.models.funnel import FUNNEL, HF
from kerasbert.models.funnel_electra import of_generator
from kerasbert.testing import battery

TINY = {
    "hidden": 12,
    "blocks.layers": 3,
    "attention.heads": 2,
    "attention.head_size": 5,
    "feedforward.width": 20,
    "embeddings.vocabulary": 40,
    "dropout": 0.0,
    "initializer": 0.3,
}


def level(counts, length, **parts):
    return Level((np.arange(length) < np.array(counts)[:, None]).astype("int32"), **parts)


def test_pooled_by_hand():
    x = np.arange(1.0, 19.0, dtype="float32").reshape(2, 9, 1)  # rows 1..9 and 10..18
    low = level([9, 6], 9)
    # [CLS], means of two, without the last; of the second row 10 | 11 12 | 13 14, and 15 is its last
    assert low.pool(x, "mean")[..., 0].numpy().tolist() == [[1, 2.5, 4.5, 6.5, 8], [10, 11.5, 13.5, 0, 0]]
    assert low.pool(x, "max")[..., 0].numpy().tolist() == [[1, 3, 5, 7, 8], [10, 12, 14, 0, 0]]
    high = low.pooled()
    assert (high.ids.numpy().tolist(), high.step) == ([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], 2)
    whole = level([9, 6], 9, cut=False)
    assert whole.pool(x, "mean")[..., 0].numpy().tolist() == [[1, 2.5, 4.5, 6.5, 8.5], [10, 11.5, 13.5, 15, 0]]
    together = level([9, 6], 9, apart=False)
    assert together.pool(x, "mean")[..., 0].numpy().tolist() == [[1.5, 3.5, 5.5, 7.5, 9], [10.5, 12.5, 14.5, 0, 0]]


def test_a_row_of_two_is_not_pooled_any_more():
    x = np.arange(1.0, 9.0, dtype="float32").reshape(2, 4, 1)
    low = level([2, 4], 4)
    assert low.pool(x, "mean")[..., 0].numpy().tolist() == [[1, 2], [5, 6.5]]
    assert low.pooled().ids.numpy().tolist() == [[1, 1], [1, 1]]


def test_unpooled_by_hand():
    x = np.array([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]], "float32")
    high = Level(np.array([[1, 1, 1], [1, 1, 0]], "int32"), step=4)
    assert high.unpooled(x, 11)[..., 0].numpy().tolist() == [
        [1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0],
        [4, 5, 5, 5, 5, 0, 0, 0, 0, 0, 0],
    ]


def attention(factorized, seed=0):
    layer = PooledAttention(2, 5, initializer=0.5, factorized=factorized)
    layer.build((None, None, 12))
    for number, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(seed + number).normal(0, 0.5, weight.shape))
    return layer


def by_the_paper(layer, x, keys, told, places):
    """Equation 2 of the appendix, one pair of a query and a key after the other; [CLS] counts for neither term."""
    weights = {
        weight.path.rpartition("pooled_attention")[2].partition("/")[2]: weight.numpy() for weight in layer.weights
    }
    heads, size, half = 2, 5, 6
    q, k = (
        (vectors @ weights[f"{name}/kernel"] + (weights.get(f"{name}/bias", 0))).reshape(-1, heads, size)
        for name, vectors in (("query", x), ("key", keys))
    )
    frequencies = 10000.0 ** (-np.arange(half) / half)
    at = lambda place, step: 1 + step * (place - 1)  # noqa: E731  # the first of the tokens that one stands for
    scores = np.zeros((heads, len(x), len(keys)))
    for n in range(heads):
        for i in range(len(x)):
            for j in range(len(keys)):
                scores[n, i, j] = (q[i, n] + weights["content_bias"][n]) @ k[j, n]
                if told.apart and 0 in (places[i], j):
                    continue
                query_step = told.step * told.stride
                apart = (
                    at(places[i], query_step) - at(j, told.step)
                    if told.apart
                    else query_step * places[i] - told.step * j
                )
                wave = np.concatenate([np.sin(apart * frequencies), np.cos(apart * frequencies)])
                r = (wave @ weights["position/kernel"]).reshape(heads, size)[n]
                scores[n, i, j] += (q[i, n] + weights["position_bias"][n]) @ r
                e = weights["segments"][int(told.same[0, i, j]), n]
                scores[n, i, j] += (q[i, n] + weights["segment_bias"][n]) @ e
    return scores / size**0.5


@pytest.mark.parametrize("factorized", [False, True], ids=["shift", "waves"])
@pytest.mark.parametrize(("stride", "apart"), [(1, True), (2, True), (1, False), (2, False)])
def test_scores_are_the_papers(factorized, stride, apart):
    rng = np.random.default_rng(1)
    layer, keys = attention(factorized), rng.normal(size=(1, 7, 12)).astype("float32")
    queries = 7 if stride == 1 else 4
    x = keys if stride == 1 else rng.normal(size=(1, queries, 12)).astype("float32")
    told = Distances(queries, 7, 2, stride, apart, 12, rng.random((1, queries, 7)) < 0.5)
    q, k = layer.split(layer.query(x)), layer.split(layer.key(keys))
    found = layer.scores(q, k, scoring=told)
    np.testing.assert_allclose(found[0], by_the_paper(layer, x[0], keys[0], told, range(queries)), atol=1e-5)
    places = np.array([[3, 0, 2]], "int32")
    one = layer.scores(q[:, :, :1], k, scoring=told, queries="first")
    np.testing.assert_allclose(one, found[:, :, :1], atol=1e-5)
    if stride == 1:
        some = layer.scores(np.asarray(q)[:, :, places[0]], k, scoring=told, queries=places)
        np.testing.assert_allclose(some, np.asarray(found)[:, :, places[0]], atol=1e-5)


@pytest.fixture(scope="module")
def model():
    return kb.build("funnel/small", **TINY)


def test_both_forms_compute_the_same(model):
    other = kb.build("funnel/small", **TINY, **{"funnel.attention": "factorized"})
    for one, weight in zip(other.weights, model.weights, strict=True):
        one.assign(weight)
    ids = np.random.default_rng(0).integers(5, 40, (2, 11)).astype("int32")
    inputs = {"token_ids": ids, "segment_ids": np.sort(ids % 2, axis=1)}
    np.testing.assert_allclose(model(inputs)["sequence"], other(inputs)["sequence"], atol=2e-5)


@pytest.mark.parametrize("count", range(2, 10))
def test_a_row_gives_the_same_beside_any_padding(model, count):
    ids = np.random.default_rng(count).integers(5, 40, (1, 13)).astype("int32")
    mask = (np.arange(13) < count).astype("int32")[None]
    padded = model({"token_ids": ids, "padding_mask": mask})["sequence"][:, :count]
    np.testing.assert_allclose(padded, model({"token_ids": ids[:, :count]})["sequence"], atol=1e-5)


def test_lengths_that_are_not_known_yet(model):
    """As in a SavedModel: one graph for all."""
    import tensorflow as tf

    shapes = {name: tf.TensorSpec((None, None), tf.int32) for name in ("token_ids", "padding_mask")}
    called = tf.function(lambda inputs: model(inputs)["sequence"], input_signature=[shapes])
    for length in (5, 8, 13):
        ids = np.random.default_rng(length).integers(5, 40, (2, length)).astype("int32")
        inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
        np.testing.assert_allclose(called(inputs), model(inputs)["sequence"], atol=1e-5)


def test_pieces_of_a_packed_row_do_not_see_each_other(model):
    ids = np.random.default_rng(0).integers(5, 40, (1, 13)).astype("int32")
    packed = np.array([[1] * 6 + [2] * 5 + [0] * 2], "int32")
    other = np.where(packed == 2, 39 - ids % 30, ids)
    one, two = (np.asarray(model({"token_ids": each, "packed_ids": packed})["sequence"]) for each in (ids, other))
    np.testing.assert_array_equal(one[:, :6], two[:, :6])
    assert np.abs(one - two)[:, 6:11].max() > 1e-3


def test_a_text_is_classified_without_the_decoder(model):
    bare = kb.build("funnel/small", **TINY, **{"funnel.decoder": 0})
    assert [name for name in names(bare) if name.startswith("decoder/")] == []
    held = names(model)
    for name, weight in names(bare).items():
        weight.assign(held[name].value)
    ids = np.random.default_rng(0).integers(5, 40, (2, 11)).astype("int32")
    found, whole = bare({"token_ids": ids}, queries="first")["sequence"], model({"token_ids": ids})
    np.testing.assert_array_equal(found[:, 0], whole["hidden"][3][:, 0])  # the embeddings, three layers
    assert [x.shape[1] for x in whole["hidden"]] == [11, 11, 6, 3, 11, 11, 11]


def test_weight_names_are_public(model):
    held = [name for name in names(model) if name.startswith("decoder/layer_1/attention/")]
    maps = [f"{name}/{part}" for name in ("key", "output", "value") for part in ("bias", "kernel")]
    more = ["content_bias", "position/kernel", "position_bias", "query/kernel", "segment_bias", "segments"]
    assert sorted(name.removeprefix("decoder/layer_1/attention/") for name in held) == sorted([*maps, *more])
    assert {name.partition("/layer_")[0] for name in names(model)} >= {"block_0", "block_1", "block_2", "decoder"}


def test_counts_are_those_of_the_released_models():
    # their cards: 131M, 131M, 177M, 386M and 468M with the decoder
    listed = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}
    sizes = ("small", "medium", "intermediate", "large", "xlarge")
    assert [round(listed[f"funnel/{size}"] / 1e6) for size in sizes] == [131, 131, 177, 386, 468]


def test_configurations():
    sizes = {"vocab_size": 40, "d_model": 12, "n_head": 2, "d_head": 5, "d_inner": 20, "num_decoder_layers": 2}
    sizes |= {"hidden_act": "gelu_new", "hidden_dropout": 0.1, "attention_dropout": 0.1, "layer_norm_eps": 1e-9}
    read = lambda **more: configs.to_spec(sizes | more, HF, FUNNEL.spec, "theirs")  # noqa: E731
    assert read(block_sizes=[1, 1, 1], block_repeats=[1, 1, 1]).funnel == FUNNEL.spec.funnel
    spec = read(block_sizes=[6, 3, 3], block_repeats=[1, 2, 2])
    assert (spec.blocks.layers, spec.sizes, spec.repeats) == (12, (6, 3, 3), (1, 2, 2))
    written = configs.to_config(spec, HF, FUNNEL.spec)
    assert (written["block_sizes"], written["block_repeats"]) == ([6, 3, 3], [1, 2, 2])
    assert "num_hidden_layers" not in written  # which their class refuses to be told
    assert configs.to_config(FUNNEL.spec.derive({"funnel.blocks": 4}), HF, FUNNEL.spec)["block_sizes"] == [3, 3, 3, 3]
    with pytest.raises(InputError, match="funnel.pooling must be one of mean, max"):
        read(block_sizes=[1, 1, 1], pooling_type="min")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"funnel.pooling": "min"}, "funnel.pooling must be one of mean, max"),
        ({"funnel.attention": "full"}, "funnel.attention must be one of relative_shift, factorized"),
        ({"funnel.decoder": -1}, "decoder at least 0"),
        ({"funnel.sizes": (4, 4)}, "funnel.sizes must add up to blocks.layers, 12"),
        ({"funnel.repeats": (1, 2)}, "one number a block, 3"),
        ({"attention.causal": True}, "attention.causal false"),
        ({"hidden": 13, "attention.head_size": 4}, "an even hidden"),
    ],
)
def test_settings_that_are_none_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        FUNNEL.spec.derive(change)


def test_its_generator_is_a_smaller_funnel_with_heads_as_wide():
    own = of_generator(FUNNEL.size("large"))
    assert (own.hidden, own.attention.heads, own.head_size, own.feedforward.width) == (256, 4, 64, 1024)
    assert (own.sizes, own.embeddings.width, own.funnel.decoder) == (FUNNEL.size("large").sizes, 1024, 2)
    assert "generator" in HF.own_heads  # it stays here when a run goes out
    odd = of_generator(FUNNEL.spec.derive(TINY | {"hidden": 14}))
    assert odd.hidden % 2 == 0
    assert registry.objective("funnel_electra").settings_for(FUNNEL.size("large")).rate == 0.25


def test_replaced_tokens_are_what_the_generator_says():
    """In the selected places alone; the discriminator's loss moves nothing of the generator."""
    encoder = kb.build("funnel/small", **TINY)
    program = registry.objective("funnel_electra")(encoder, battery.tokenizer("wordpiece"))
    ids = np.random.default_rng(0).integers(5, 40, (3, 11)).astype("int32")
    mask = (np.arange(11) < np.array([[11], [8], [5]])).astype("int32")
    batch = {"token_ids": ids, "padding_mask": mask, "row": np.arange(3, dtype="int32")}
    batch |= {"mlm_positions": np.tile([[1, 3]], (3, 1)).astype("int32"), "mlm_labels": ids[:, [1, 3]]}
    batch |= {"mlm_weights": np.ones((3, 2), "float32"), "segment_ids": (ids % 2).astype("int32")}
    with tf.GradientTape(persistent=True) as tape:
        outputs = program.model({name: tf.constant(x) for name, x in batch.items()})
        sums = program.sums(outputs, batch)
    corrupted = ids.copy()
    corrupted[:, [1, 3]] = outputs["sampled"]
    np.testing.assert_array_equal(outputs["corrupted_ids"], corrupted)
    np.testing.assert_array_equal(outputs["replaced"], corrupted != ids)
    own = program.model.heads["generator"].trainable_variables
    assert all(each is None for each in tape.gradient(sums["rtd"], [variable.value for variable in own]))
    assert all(each is not None for each in tape.gradient(sums["mlm"], [variable.value for variable in own]))


def test_replaced_tokens_want_a_decoder():
    with pytest.raises(InputError, match=r"funnel\.decoder of at least 1"):
        registry.objective("funnel_electra")(kb.build("funnel/small", **TINY, **{"funnel.decoder": 0}), None)
    with pytest.raises(InputError, match="--objective funnel_electra"):
        registry.objective("electra")(kb.build("funnel/small", **TINY), None)
