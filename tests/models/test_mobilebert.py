"""MobileBERT and IB-BERT: counts, the new layers by hand, relations, and what they compute against transformers."""

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.layers.naming import names
from kerasbert.models.mobilebert import FirstToken, MobileBert, MobileSpec, NoNorm, TokenHead, Trigrams
from tests.checkpoints import theirs
from tests.checkpoints.reference import batch
from tests.models.reference_mobilebert import reference
from tests.support import by_hand

COUNTS = {
    "mobilebert/base": 24581888,  # transformers' MobileBertModel
    "mobilebert/tiny": 15485696,
    "ib-bert/large": 294467840,
}
SMALL = {
    "hidden": 36,
    "embeddings.vocabulary": 101,
    "embeddings.positions": 19,
    "embeddings.width": 11,
    "attention.heads": 5,
    "feedforward.width": 37,
    "blocks.layers": 3,
    "bottleneck.width": 20,
}
# the same in transformers' words, and two others
SIZES = [
    {
        "vocab_size": 101,
        "hidden_size": 36,
        "embedding_size": 11,
        "intra_bottleneck_size": 20,
        "num_attention_heads": 5,
        "intermediate_size": 37,
        "num_hidden_layers": 3,
        "max_position_embeddings": 19,
    },
    {
        "vocab_size": 13,
        "hidden_size": 9,
        "embedding_size": 4,
        "intra_bottleneck_size": 6,
        "num_attention_heads": 1,
        "intermediate_size": 3,
        "num_hidden_layers": 1,
        "max_position_embeddings": 9,
        "num_feedforward_networks": 1,
    },
    {
        "vocab_size": 57,
        "hidden_size": 24,
        "embedding_size": 7,
        "intra_bottleneck_size": 40,
        "num_attention_heads": 4,
        "intermediate_size": 30,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
        "num_feedforward_networks": 2,
        "use_bottleneck_attention": True,
        "key_query_shared_bottleneck": False,
    },
    {
        "vocab_size": 101,
        "hidden_size": 24,
        "embedding_size": 8,
        "intra_bottleneck_size": 24,  # transformers computes IB-BERT's attention only where the bottleneck has H
        "num_attention_heads": 2,
        "intermediate_size": 30,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
        "num_feedforward_networks": 3,
        "key_query_shared_bottleneck": False,
        "normalization_type": "layer_norm",
        "layer_norm_eps": 1e-5,  # two of their norms take torch's default instead of the configuration's
        "hidden_act": "gelu",
    },
]
RELEASED = {"classifier_activation": False}


@pytest.fixture(scope="module")
def encoder():
    return made("mobilebert/base")


def made(name, **changes):
    """A small model with weights that are no identity."""
    model = kb.build(name, **SMALL, **changes)
    generator = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(generator.normal(0, 0.15, weight.shape) + (weight.path.endswith("gamma")))
    return model


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    family, spec = registry.find(name)
    assert models.parameters(family.encoder, spec) == COUNTS[name]


def test_weight_names_are_public(encoder):
    dense = ["attention/query", "attention/key", "attention/value", "attention/output"]
    dense += ["bottleneck_input", "bottleneck_attention", "bottleneck_output"]
    dense += [f"feedforward{n}/{part}" for n in ("_0", "_1", "_2", "") for part in ("inner", "outer")]
    norms = ["attention_norm", *(f"feedforward_norm{n}" for n in ("_0", "_1", "_2", ""))]
    norms += [f"bottleneck_{end}/norm" for end in ("input", "attention", "output")]
    block = [f"{name}/{leaf}" for name in dense for leaf in ("kernel", "bias")]
    block += [f"{name}/{leaf}" for name in norms for leaf in ("gamma", "beta")]
    expected = {f"embeddings/{table}/table" for table in ("tokens", "positions", "segments")}
    expected |= {f"embeddings/{name}" for name in ("projection/kernel", "projection/bias", "norm/gamma", "norm/beta")}
    assert set(names(encoder)) == expected | {f"block_{i}/{name}" for i in range(3) for name in block}
    tiny = set(names(kb.build("mobilebert/tiny", **SMALL)))
    assert expected < tiny < set(names(encoder))
    assert not any("bottleneck_attention" in name or "feedforward_1" in name for name in tiny)


@pytest.mark.parametrize(
    ("name", "rows"), [("mobilebert/base", [20, 20, 36]), ("mobilebert/tiny", [20] * 3), ("ib-bert/large", [36] * 3)]
)
def test_shapes_follow_who_reads_what(name, rows):
    found = names(kb.build(name, **SMALL))
    shapes = [tuple(found[f"block_0/attention/{part}/kernel"].shape) for part in ("query", "key", "value")]
    assert shapes == [(width, 20) for width in rows]


def test_no_norm_by_hand():
    layer = NoNorm()
    layer.build((None, 2))
    layer.gamma.assign([2.0, -1.0])
    layer.beta.assign([0.5, 0.25])
    np.testing.assert_array_equal(layer(np.array([[1.0, 3.0]], "float32")), [[2.5, -2.75]])
    x, y = np.array([[1.0, 3.0]], "float32"), np.array([[1.0, -1.0]], "float32")
    np.testing.assert_array_equal(layer(x, y), [[4.5, -1.75]])


def trigrams(**changes):
    """Tokens 0, 1, 2 are (1,), (10,), (100,); H = 3 are the next, the token and the one before; nothing is added."""
    parts = {"embeddings.vocabulary": 3, "embeddings.width": 1, "hidden": 3, "embeddings.positions": 8}
    parts |= {"attention.heads": 1, "bottleneck.width": 2}
    layer = Trigrams(MobileSpec().derive(parts | changes), name="embeddings")
    layer.build()
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    layer.tokens.table.assign([[1], [10], [100]])
    layer.projection.kernel.assign(np.eye(3))
    layer.norm.gamma.assign(np.ones(3))
    return layer


def test_trigrams_by_hand():
    found = trigrams()(np.array([[0, 1, 2]]))
    np.testing.assert_array_equal(found, [[[10, 1, 0], [100, 10, 1], [0, 100, 10]]])


def test_trigrams_do_not_look_into_padding_or_another_piece():
    layer, ids = trigrams(), np.array([[0, 1, 2, 2]])
    found = layer(ids, pieces=np.array([[1, 1, 0, 0]]))
    np.testing.assert_array_equal(found[:, :2], layer(ids[:, :2]))
    np.testing.assert_array_equal(layer(ids, pieces=np.array([[True, True, False, False]])), found)
    found = layer(ids, pieces=np.array([[1, 1, 2, 2]]))
    np.testing.assert_array_equal(found, np.concatenate([layer(ids[:, :2]), layer(ids[:, 2:])], axis=1))


def test_the_token_head_by_hand():
    """E = 1, H = 2: logits are h . [table | extra] + bias, h the transformed vector."""
    head = TokenHead(3, 1, activation="relu", epsilon=0.0)
    head.build((None, None, 2))
    assert {tuple(weight.shape) for weight in head.weights} == {(2, 2), (2,), (3,), (3, 1)}
    head.transform.kernel.assign([[1, 0], [0, 1]])
    head.bias.assign([0.0, 1.0, 0.0])
    head.extra.assign([[1.0], [2.0], [3.0]])
    # relu(4, 2) -> normalised (1, -1)
    found = head(np.array([[[4.0, 2.0]]], "float32"), np.array([[5.0], [6.0], [7.0]], "float32"))
    np.testing.assert_allclose(found, [[[4.0, 5.0, 4.0]]], atol=1e-5)


def test_the_pooled_vector_is_the_first_tokens(encoder):
    outputs = encoder(batch(101))
    np.testing.assert_array_equal(outputs["pooled"], np.asarray(outputs["sequence"])[:, 0])
    assert not FirstToken(3).weights
    assert "pooler/kernel" in names(kb.build("ib-bert/large", **SMALL))


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("norm", ["no_norm", "layer_norm"])
def test_the_first_token_alone_is_the_same(name, norm):
    model = made(name, **{"bottleneck.norm": norm})
    whole, first = model(batch(101)), model(batch(101), queries="first")
    assert first["sequence"].shape == (3, 1, 36)
    expected = np.asarray(whole["pooled"])
    np.testing.assert_allclose(first["pooled"], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", COUNTS)
def test_padding_changes_nothing(name):
    model, long = made(name), batch(101)
    short = {part: value[2:, :7] for part, value in long.items()}
    other = dict(long, token_ids=np.where(long["padding_mask"] == 1, long["token_ids"], 7))
    seen, expected = np.asarray(model(long)["sequence"])[2, :7], np.asarray(model(short)["sequence"])[0]
    np.testing.assert_allclose(seen, expected, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_array_equal(seen, np.asarray(model(other)["sequence"])[2, :7])


def test_pieces_of_a_packed_row_do_not_see_each_other(encoder):
    ids = batch(101)["token_ids"][:1]
    alone = [np.asarray(encoder({"token_ids": part})["sequence"]) for part in (ids[:, :4], ids[:, 4:])]
    places = {"position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 3, 4]]), "packed_ids": np.array([[1] * 4 + [2] * 5])}
    found, expected = encoder({"token_ids": ids} | places)["sequence"], np.concatenate(alone, axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_bfloat16_is_near_float32(encoder):
    half = MobileBert(encoder.spec, dtype="mixed_bfloat16")
    half.build()
    half.set_weights(encoder.get_weights())
    y, expected = half(batch(101))["sequence"], np.asarray(encoder(batch(101))["sequence"])
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    assert np.abs(np.asarray(keras.ops.cast(y, "float32")) - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention.heads": 3}, "bottleneck.width 20 is not a multiple of attention.heads 3"),
        ({"bottleneck.networks": 0}, "bottleneck.width and networks must be at least 1. Received: Bottleneck"),
        ({"bottleneck.norm": "none"}, "bottleneck.norm must be one of no_norm, layer_norm. Received: 'none'"),
        ({"bottleneck.attention": True}, "are both true, expected one"),
        ({"embeddings.width": None}, "embeddings.width must be a number below hidden 36. Received: None"),
        ({"blocks.share": "all"}, "must be 'post', 'none' and true with a bottleneck"),
        ({"bottleneck.widht": 3}, "no spec field 'bottleneck.widht'. Nearest: 'bottleneck.width'"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(kb.InputError, match=message):
        registry.family("mobilebert").spec.derive(SMALL | changes)


@pytest.mark.parametrize("name", COUNTS)
def test_the_released_tf1_code_computes_the_same(name, tmp_path):
    """Export under Google's names, compute with a reading of Google's code, import again."""
    from kerasbert.checkpoints import save_model
    from tests.checkpoints.reference import open_checkpoint

    model = made(name)
    save_model(tmp_path / "run", encoder=model, name=name)
    kb.export_checkpoint(tmp_path / "run", tmp_path / "tf1", "tf1")
    reader, _ = open_checkpoint(tmp_path / "tf1", "tf1")
    tensors = {part: reader.read(part).astype("float64") for part in reader.names()}
    given = {part: value for part, value in batch(101).items() if part != "padding_mask"}
    expected = reference(tensors, 5, given["token_ids"], given["segment_ids"])
    for ours, other in zip(model(given)["hidden"], expected, strict=True):
        np.testing.assert_allclose(ours, other, atol=1e-5 * np.abs(other).max())
    family = name.partition("/")[0]
    theirs.same_weights(model, kb.import_checkpoint(tmp_path / "tf1", "tf1", model=family))


def test_the_names_of_the_released_tf1_file():
    """As the released code makes them (modeling.py, run_pretraining.py)."""
    tf1 = registry.family("mobilebert").names["tf1"]
    expected = {
        "embeddings/projection/kernel": "bert/embeddings/embedding_transformation/kernel",
        "embeddings/norm/gamma": "bert/embeddings/FakeLayerNorm/gamma",
        "block_3/bottleneck_attention/norm/beta": "bert/encoder/layer_3/bottleneck/attention/FakeLayerNorm/beta",
        "block_23/feedforward_2/outer/bias": "bert/encoder/layer_23/ffn_layer_2/output/dense/bias",
        "block_0/feedforward_norm_0/gamma": "bert/encoder/layer_0/ffn_layer_0/output/FakeLayerNorm/gamma",
        "block_0/feedforward/inner/kernel": "bert/encoder/layer_0/intermediate/dense/kernel",
        "block_0/bottleneck_output/kernel": "bert/encoder/layer_0/output/bottleneck/dense/kernel",
        "block_0/attention_norm/gamma": "bert/encoder/layer_0/attention/output/FakeLayerNorm/gamma",
        "heads/mlm/norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
        "heads/mlm/extra": "cls/predictions/extra_output_weights",
        "heads/mlm/bias": "cls/predictions/output_bias",
    }
    assert {name: tf1.theirs(name) for name in expected} == {name: (their, False) for name, their in expected.items()}
    teacher = registry.family("ib-bert").names["tf1"]
    assert (
        teacher.theirs("block_1/bottleneck_input/norm/beta")[0]
        == "bert/encoder/layer_1/bottleneck/input/LayerNorm/beta"
    )


def pad_is_nothing(model):
    """Their tokens at the end of a padded row are joined with [PAD]'s vector: make it zero, as without padding."""
    import torch

    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 0
    return model


def padded(vocabulary):
    given = batch(vocabulary)
    given["token_ids"] *= given["padding_mask"]
    return given


@theirs.parity
class TestParity:
    @pytest.mark.parametrize("size", [*by_hand(SIZES[:3]), SIZES[3]], ids=["base", "one", "tiny", "layer_norm"])
    def test_every_hidden_state(self, tmp_path, size):
        model = pad_is_nothing(theirs.make("MobileBertModel", size | RELEASED))
        theirs.same_hidden_states(model, padded(size["vocab_size"]), tmp_path)

    def test_every_hidden_state_without_padding(self, tmp_path):
        given = batch(101)
        given["padding_mask"][:] = 1
        theirs.same_hidden_states(theirs.make("MobileBertModel", SIZES[0] | RELEASED), given, tmp_path)

    @pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForPreTraining", "ForNextSentencePrediction"])
    @pytest.mark.parametrize("size", [SIZES[0], *by_hand((size,) for size in SIZES[1:3])], ids=["base", "one", "tiny"])
    def test_export(self, tmp_path, kind, size):
        model = theirs.make(f"MobileBert{kind}", size | RELEASED)
        encoder = theirs.same_after_export(model, batch(size["vocab_size"]), tmp_path)
        assert ("extra" in encoder.heads.get("mlm", {})) == (kind in ("ForMaskedLM", "ForPreTraining"))

    @pytest.mark.parametrize("size", [*by_hand(SIZES[:3]), SIZES[3]], ids=["base", "one", "tiny", "layer_norm"])
    def test_heads_compute_their_logits(self, tmp_path, size):
        model = pad_is_nothing(theirs.make("MobileBertForPreTraining", size | RELEASED))
        model.save_pretrained(tmp_path)
        given, encoder = padded(size["vocab_size"]), kb.import_checkpoint(tmp_path)
        expected, outputs = theirs.run(model, given), encoder(given)
        spec, real = encoder.spec, given["padding_mask"].astype(bool)
        layer = TokenHead(
            size["vocab_size"], size["embedding_size"], spec.feedforward.activation, spec.epsilon, name="mlm"
        )
        table = encoder.embeddings.tokens.table.value.numpy()
        found = theirs.head(encoder, "mlm", layer, outputs["sequence"], table)
        theirs.close(found[real], expected.prediction_logits[real])
        nsp = encoder.heads["nsp"]
        theirs.close(np.asarray(outputs["pooled"]) @ nsp["kernel"] + nsp["bias"], expected.seq_relationship_logits)

    def test_labels(self, tmp_path):
        model = theirs.make("MobileBertForSequenceClassification", SIZES[0] | RELEASED | {"num_labels": 3})
        encoder = theirs.same_after_export(pad_is_nothing(model), padded(101), tmp_path)
        head = encoder.heads["classifier"]
        found = np.asarray(encoder(padded(101))["pooled"]) @ head["kernel"] + head["bias"]
        theirs.close(found, theirs.run(model, padded(101)).logits)

    def test_a_pooler_with_a_matrix_is_computed(self, tmp_path):
        """transformers' default configuration."""
        model = theirs.make("MobileBertModel", SIZES[0])
        model.save_pretrained(tmp_path)
        encoder = kb.import_checkpoint(tmp_path)
        theirs.close(encoder(padded(101))["pooled"], theirs.run(model, padded(101)).pooler_output)
