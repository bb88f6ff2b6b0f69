"""NEZHA: its attention and whole networks against numpy written from the paper; names, counts, the authors' TF1 layout."""

import math

import keras
import numpy as np
import pytest
from keras import ops

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints import save_model
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.layers.relative import in_order
from kerasbert.models.nezha import NEZHA, TF1, FunctionalAttention, by_distance, table
from tests.checkpoints import reference

TINY = {
    "hidden": 20,
    "attention.heads": 4,
    "feedforward.width": 14,
    "blocks.layers": 2,
    "embeddings.vocabulary": 60,
    "embeddings.positions": 16,
}
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3, [1] + [0] * 8], "int32")


def built(**changes):
    keras.utils.set_random_seed(3)
    made = NEZHA.encoder(NEZHA.spec.derive(TINY | changes))
    made.build()
    generator = np.random.default_rng(3)
    for weight in made.weights:
        if not weight.path.endswith(("gamma", "beta")):
            weight.assign(generator.normal(0, 0.3, weight.shape))
    return made


def inputs():
    generator = np.random.default_rng(0)
    ids = generator.integers(5, 60, MASK.shape).astype("int32")
    return {"token_ids": ids, "padding_mask": MASK, "segment_ids": np.sort(generator.integers(0, 2, MASK.shape), 1)}


def test_the_papers_sizes():
    # BERT's of 21,128 tokens (102,267,648 and 325,522,432) without 512 positions
    counts = {"base": 101_874_432, "large": 324_998_144}
    assert {size: models.parameters(NEZHA.encoder, registry.find(f"nezha/{size}")[1]) for size in counts} == counts


def test_no_weight_is_of_distances():
    bert = registry.family("bert").encoder(registry.family("bert").spec.derive(TINY))
    bert.build()
    assert set(names(built())) == set(names(bert)) - {"embeddings/positions/table"}


def vector(distance, size, clamp=64):
    """a_ij (section 2.2), of the distance j - i counted from -clamp, as the released code does."""
    place = max(-clamp, min(clamp, distance)) + clamp
    found = np.zeros(size)
    for k in range(size // 2):
        found[2 * k] = math.sin(place / 10000 ** (2 * k / size))
        found[2 * k + 1] = math.cos(place / 10000 ** (2 * k / size))
    return found


def attention(x, dense, heads, mask, clamp):
    """Section 2.1: z_i = sum of alpha_ij (x_j W_V + a_ij), e_ij = x_i W_Q (x_j W_K + a_ij)^T / sqrt(d)."""
    rows, length, width = x.shape
    size = width // heads
    a = np.array([[vector(j - i, size, clamp) for j in range(length)] for i in range(length)])
    q, k, v = (dense(name, x).reshape(rows, length, heads, size) for name in ("query", "key", "value"))
    scores = np.einsum("bind,bijnd->bnij", q, k[:, None] + a[None, :, :, None]) / math.sqrt(size)
    alpha = reference.softmax(np.where(mask[:, None, None] > 0, scores, -1e9))
    return np.einsum("bnij,bijnd->bind", alpha, v[:, None] + a[None, :, :, None]).reshape(rows, length, width)


@pytest.mark.parametrize(("heads", "clamp"), [(4, 64), (2, 3), (1, 1)])  # of odd and even sizes; farther than the clamp
def test_attention_is_the_papers(heads, clamp):
    layer = FunctionalAttention(heads, 20 // heads, initializer=0.4)
    layer.build((None, None, 20))
    for part in (layer.query, layer.key, layer.value):
        part.bias.assign(np.random.default_rng(1).normal(size=20))
    layer.output_projection.kernel.assign(np.eye(20))
    x = np.random.default_rng(0).normal(size=(3, 9, 20)).astype("float32")
    apart = np.clip(np.arange(18) - 9, -clamp, clamp) + clamp
    vectors = ops.convert_to_tensor(table(clamp, 20 // heads)[apart])
    bias = np.where(MASK[:, None, None] > 0, 0, -1e9).astype("float32")

    def dense(name, x):
        part = getattr(layer, name)
        return x @ np.asarray(part.kernel, "float64") + np.asarray(part.bias)

    expected = attention(x.astype("float64"), dense, heads, MASK, clamp)
    np.testing.assert_allclose(layer(x, bias, scoring=vectors)[0], expected, atol=1e-5)
    first = layer(x[:, :1], bias, x, scoring=vectors, queries="first")[0]
    np.testing.assert_allclose(first, expected[:, :1], atol=1e-5)
    places = np.array([[4, 8], [0, 2], [7, 7]], "int32")
    rows = np.take_along_axis(x, places[..., None], 1)
    some = layer(rows, bias, x, scoring=vectors, queries=ops.convert_to_tensor(places))[0]
    np.testing.assert_allclose(some, np.take_along_axis(expected, places[..., None], 1), atol=1e-5)


def test_by_distance_is_the_shift_backward():
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype("float32")
    np.testing.assert_array_equal(in_order(by_distance(x), 5), x)
    assert np.count_nonzero(by_distance(x)) == x.size


def network(w, heads, given):
    """Hidden states of a TF1 checkpoint (name -> array), in float64."""
    w = {name: value.astype("float64") for name, value in w.items()}

    def norm(name, x):
        return reference.norm(x, w[f"{name}/LayerNorm/gamma"], w[f"{name}/LayerNorm/beta"])

    def dense(name, x):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    x = w["bert/embeddings/word_embeddings"][given["token_ids"]]
    x = norm("bert/embeddings", x + w["bert/embeddings/token_type_embeddings"][given["segment_ids"]])
    hidden = [x]
    for i in range(2):
        at = f"bert/encoder/layer_{i}"
        y = attention(x, lambda name, x, at=at: dense(f"{at}/attention/self/{name}", x), heads, MASK, 64)
        x = norm(f"{at}/attention/output", x + dense(f"{at}/attention/output/dense", y))
        x = norm(f"{at}/output", x + dense(f"{at}/output/dense", reference.gelu(dense(f"{at}/intermediate/dense", x))))
        hidden.append(x)
    return hidden


def test_the_authors_checkpoints_are_read_and_written(tmp_path):
    """Known by use_relative_position of bert_config.json, without a name."""
    made, given = built(), inputs()
    save_model(tmp_path / "run", encoder=made, name="nezha/base")
    kb.export_checkpoint(tmp_path / "run", tmp_path / "tf1", "tf1")
    tensors, _ = reference.open_checkpoint(tmp_path / "tf1", "tf1")
    weights = {name: tensors.read(name) for name in tensors.names()}
    assert "bert/embeddings/position_embeddings" not in weights
    encoder = kb.import_checkpoint(tmp_path / "tf1", out=tmp_path / "ours")
    assert (type(encoder), encoder.spec) == (type(made), made.spec)
    real = MASK > 0
    for ours, expected in zip(encoder(given)["hidden"], network(weights, 4, given), strict=True):
        np.testing.assert_allclose(np.asarray(ours)[real], expected[real], atol=1e-5)
    with pytest.raises(InputError, match="missing: bert/embeddings/position_embeddings"):
        kb.import_checkpoint(tmp_path / "tf1", model="bert")


def test_what_their_configuration_cannot_say_is_refused():
    assert configs.to_config(NEZHA.spec, TF1, NEZHA.spec)["use_relative_position"] is True
    with pytest.raises(InputError, match="cannot say distances.clamp=8"):
        configs.to_config(NEZHA.spec.derive({"distances.clamp": 8}), TF1, NEZHA.spec)
    for change, message in (({"distances.clamp": 0}, "at least 1"), ({"embeddings.kind": "learned"}, "kind none")):
        with pytest.raises(InputError, match=message):
            NEZHA.spec.derive(change)


def test_pieces_of_a_row_are_as_alone():
    model, given = built(), {"token_ids": inputs()["token_ids"][:1]}
    whole = model(given | {"packed_ids": np.array([[1] * 4 + [2] * 5], "int32")})["sequence"]
    np.testing.assert_allclose(whole[:, 4:], model({"token_ids": given["token_ids"][:, 4:]})["sequence"], atol=1e-5)
