"""The Transformer and MASS: table 3's counts, values of another size, what scales embeddings, MASS against numpy.

Parity with Marian: tests/checkpoints/test_parity_papers.py.
"""

import math

import keras
import numpy as np
import pytest

from kerasbert import models, registry
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.testing import battery
from kerasbert.testing.generating import check_steps
from tests.models.test_generating import of_attention, tiny

TABLE_3 = {  # millions
    "base": 65,
    **{f"base-h{heads}": 65 for heads in (1, 4, 16, 32)},
    "base-k16": 58,
    "base-k32": 60,
    "base-n2": 36,
    "base-n4": 50,
    "base-n8": 80,
    "base-d256": 28,
    "base-d1024": 168,
    "base-f1024": 53,
    "base-f4096": 90,
    "big": 218,  # the table says 213
}


def test_table_3_is_within_a_million():
    index = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}
    found = {name: index[f"transformer/{name}"] / 1e6 for name in TABLE_3}
    assert {name: round(value, 2) for name, value in found.items() if abs(value - TABLE_3[name]) >= 1} == {}
    assert set(TABLE_3) == set(registry.family("transformer").sizes)
    family, spec = registry.find("transformer/base-k16")
    assert models.parameters(family.encoder, spec) == index["transformer/base-k16"]


def test_weight_names_are_public_and_no_position_is_learned():
    expected = ["embeddings/tokens/table"]
    for stack, sublayers in {"encoder": ["attention"], "decoder": ["attention", "cross_attention"]}.items():
        for part in sublayers:
            expected += of_attention(f"{stack}/block_0/{part}", "kernel", "bias")
        for part in ("inner", "outer"):
            expected += [f"{stack}/block_0/feedforward/{part}/{leaf}" for leaf in ("kernel", "bias")]
        for part in (*sublayers, "feedforward"):
            expected += [f"{stack}/block_0/{part}_norm/{leaf}" for leaf in ("gamma", "beta")]
    assert sorted(names(tiny("transformer/base"))) == sorted(expected)


def test_tokens_are_scaled_before_the_positions_by_hand():
    model = tiny("transformer/base", hidden=4, **{"attention.heads": 1, "embeddings.vocabulary": 3, "dropout": 0.0})
    model.tokens.table.assign(np.arange(12.0).reshape(3, 4))
    found = np.asarray(model.encode({"token_ids": np.array([[2, 0]])})["hidden"][0])
    # token * sqrt(4) + (sin p, sin p/100, cos p, cos p/100)
    expected = [[[16, 18, 21, 23], [0 + np.sin(1), 2 + np.sin(0.01), 4 + np.cos(1), 6 + np.cos(0.01)]]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    plain = tiny("transformer/base", hidden=4, **{"attention.heads": 1, "embeddings.scaled": False})
    plain.tokens.table.assign(np.ones(plain.tokens.table.shape))
    found = plain.encode({"token_ids": np.array([[2, 2]])})["hidden"][0][:, 0]
    np.testing.assert_allclose(found, [[1, 1, 2, 2]], atol=1e-6)


def test_values_may_be_of_another_size():
    sizes = {"hidden": 8, "attention.heads": 2, "attention.head_size": 3, "attention.value_size": 5}
    model = tiny("transformer/base", **sizes)
    found = {name: tuple(weight.shape) for name, weight in names(model).items() if "cross_attention/" in name}
    widths = {"query": (8, 6), "key": (8, 6), "value": (8, 10), "output": (10, 8)}
    assert {
        f"decoder/block_0/cross_attention/{part}/kernel": shape for part, shape in widths.items()
    }.items() <= found.items()
    equal = tiny("transformer/base", hidden=8, **{"attention.heads": 2, "attention.value_size": 4})
    usual = tiny("transformer/base", hidden=8, **{"attention.heads": 2})
    for one, other in zip(equal.weights, usual.weights, strict=True):
        one.assign(keras.random.normal(one.shape, seed=1))
        other.assign(one)
    ids = {name: np.array([[3, 1, 2]], "int32") for name in ("token_ids", "decoder_token_ids")}
    np.testing.assert_array_equal(equal(ids)["sequence"], usual(ids)["sequence"])
    ids = {**ids, "padding_mask": ids["token_ids"] > 0, "decoder_padding_mask": ids["token_ids"] > 0}
    check_steps(model, ids, battery.relative)
    with pytest.raises(InputError, match=r"attention\.value_size must be at least 1 or None\. Received: 0"):
        model.spec.derive({"attention.value_size": 0})


def test_norms_may_stand_in_front():
    found = names(tiny("transformer/base", **{"blocks.norm": "pre", "attention.value_size": 4}))
    assert {"encoder/norm/gamma", "decoder/norm/gamma"} <= set(found)


def norm(x, weights, name):
    """Layer norm of the last axis."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def linear(x, weights, name):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def attention(x, source, visible, weights, name, heads):
    """Of one text: x [Q, H], source [K, H], visible [Q, K] -> [Q, H]."""
    query, key, value = (
        linear(y, weights, f"{name}/{part}").reshape(len(y), heads, -1)
        for y, part in ((x, "query"), (source, "key"), (source, "value"))
    )
    found = np.zeros_like(query)
    for n in range(heads):
        scores = np.where(visible, query[:, n] @ key[:, n].T / math.sqrt(query.shape[-1]), -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        found[:, n] = share / share.sum(-1, keepdims=True) @ value[:, n]
    return linear(found.reshape(len(x), -1), weights, f"{name}/output")


def embedded(ids, places, weights, stack):
    """Rows of the table times sqrt(H), with the positions that count from 1, normalised."""
    x = weights["embeddings/tokens/table"][ids]
    x = x * math.sqrt(x.shape[-1]) + weights[f"{stack}/positions/table"][np.asarray(places) + 1]
    return norm(x, weights, f"{stack}/embeddings_norm")


def feedforward(x, weights, block):
    """GELU, exact, and the norm of the sum."""
    inner = linear(x, weights, f"{block}/feedforward/inner")
    inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
    return norm(x + linear(inner, weights, f"{block}/feedforward/outer"), weights, f"{block}/feedforward_norm")


def mass_logits(ids, written, places, weights, layers, heads):
    """Of one text and what the decoder has written of it at these places: [T, V]."""
    x = embedded(ids, range(len(ids)), weights, "encoder")
    for i in range(layers):
        block = f"encoder/block_{i}"
        y = attention(x, x, np.ones((len(x), len(x)), bool), weights, f"{block}/attention", heads)
        x = feedforward(norm(x + y, weights, f"{block}/attention_norm"), weights, block)
    source, x = x, embedded(written, places, weights, "decoder")
    for i in range(layers):
        block = f"decoder/block_{i}"
        y = attention(x, x, np.tri(len(x), dtype=bool), weights, f"{block}/attention", heads)
        x = norm(x + y, weights, f"{block}/attention_norm")
        y = attention(x, source, np.ones((len(x), len(source)), bool), weights, f"{block}/cross_attention", heads)
        x = feedforward(norm(x + y, weights, f"{block}/cross_attention_norm"), weights, block)
    return x @ weights["embeddings/tokens/table"].T


@pytest.mark.parametrize(("hidden", "heads", "layers"), [(15, 3, 2), (14, 2, 1), (25, 5, 3)])
def test_mass_is_what_numpy_computes(hidden, heads, layers):
    sizes = {"hidden": hidden, "attention.heads": heads, "blocks.layers": layers, "feedforward.width": 2 * hidden - 7}
    model = tiny("mass/middle", **sizes)
    generator = np.random.default_rng(hidden)
    for weight in model.weights:
        weight.assign(generator.normal(0, 0.2, weight.shape))
    weights = {name: weight.value.numpy().astype("float64") for name, weight in names(model).items()}
    ids = generator.integers(5, 60, (2, 11)).astype("int32")
    mask = np.array([[1] * 11, [1] * 7 + [0] * 4], "int32")
    places = np.array(
        [[3, 4, 5, 6, 7], [1, 2, 3, 0, 0]], "int32"
    )  # the piece that was masked, and what stands before it
    real = np.array([[1] * 5, [1, 1, 1, 0, 0]], "int32")
    written = np.take_along_axis(ids, places, axis=1)
    inputs = {"token_ids": ids, "padding_mask": mask, "decoder_token_ids": written, "decoder_padding_mask": real}
    found = np.asarray(model.logits(model(inputs | {"decoder_position_ids": places})["sequence"]))
    for row in range(2):
        length, count = mask[row].sum(), real[row].sum()
        expected = mass_logits(ids[row, :length], written[row, :count], places[row, :count], weights, layers, heads)
        np.testing.assert_allclose(found[row, :count], expected, rtol=0, atol=1e-5)


def test_mass_counts_and_what_it_starts_with():
    index = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}

    def count(hidden, width):
        attention, inner = 4 * hidden * (hidden + 1), 2 * hidden * width + width + hidden
        stacks = 6 * (attention + inner + 4 * hidden) + 6 * (2 * attention + inner + 6 * hidden)
        return stacks + (30522 + 2 * 513 + 2 * 2) * hidden

    assert (index["mass/middle"], index["mass/base"]) == (count(1024, 4096), count(768, 3072))
    family = registry.family("mass")
    assert (family.kind, family.spec.longest, family.objective) == ("seq2seq", 512, "mass")


def test_mbart_and_pegasus_have_the_released_models_parameters():
    index = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}
    found = {name: index[name] for name in index if name.startswith(("mbart/", "pegasus/large"))}
    # 610M in both; section 6.1: 568M
    assert found == {"mbart/large-cc25": 610_851_840, "mbart/large-50": 610_879_488, "pegasus/large": 568_699_904}
    for name, layers, width, vocabulary, more in (
        ("mbart", 24, 1024, 250_027, 2 * 1026 * 1024 + 4 * 2 * 1024),  # positions, two norms more a stack
        ("pegasus", 32, 1024, 96_103, 2 * 2 * 1024),
    ):
        attention, feedforward, norm = 4 * (width**2 + width), 8 * width**2 + 5 * width, 2 * width
        block, crossed = attention + feedforward + 2 * norm, attention + norm
        wanted = vocabulary * width + layers * block + layers // 2 * crossed + more
        assert wanted == next(count for each, count in found.items() if each.startswith(name))
