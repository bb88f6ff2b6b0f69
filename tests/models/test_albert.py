"""ALBERT: the paper's tables, weights that all layers share, names."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import models
from kerasbert.checkpoints import load_encoder, read_tensors
from kerasbert.checkpoints.directory import save_model
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.layers.naming import names
from kerasbert.models.albert import ALBERT, AlbertPretraining
from kerasbert.registry import find
from tests import tiny

SMALL = tiny.SPEC | {"embeddings.vocabulary": 101, "embeddings.width": 6, "blocks.layers": 3, "initializer": 0.3}
BLOCK = {
    *(f"attention/{part}/{leaf}" for part in ("query", "key", "value", "output") for leaf in ("kernel", "bias")),
    *(f"feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")),
    *(f"{part}_norm/{leaf}" for part in ("attention", "feedforward") for leaf in ("gamma", "beta")),
}
ATTENTION = {name for name in BLOCK if name.startswith("attention")}


def millions(width, share, pooler):
    spec = ALBERT.spec.derive({"embeddings.width": width, "blocks.share": share, "pooler": pooler})
    return round(models.parameters(ALBERT.encoder, spec) / 1e6)


@pytest.mark.parametrize(
    ("share", "pooler", "millions_by_width"),
    [
        # table 3 of Lan et al., 2020
        ("none", False, {64: 87, 128: 89, 256: 93, 768: 108}),
        ("all", True, {64: 10, 128: 12, 256: 16, 768: 31}),
        # table 4
        ("attention", True, {768: 83, 128: 64}),
        ("ffn", True, {768: 57, 128: 38}),
    ],
)
def test_the_ablation_tables(share, pooler, millions_by_width):
    assert {width: millions(width, share, pooler) for width in millions_by_width} == millions_by_width


def test_released_sizes():
    counts = {"base": 11683584, "large": 17683968, "xlarge": 58724864, "xxlarge": 222595584}
    assert {size: models.parameters(ALBERT.encoder, find(f"albert/{size}")[1]) for size in counts} == counts


def built(**changes):
    keras.utils.set_random_seed(1)
    made = ALBERT.encoder(ALBERT.spec.derive(SMALL | changes))
    made.build()
    return made


def inputs():
    rng = np.random.default_rng(0)
    return {"token_ids": rng.integers(0, 101, (4, 9)).astype("int32"), "padding_mask": np.ones((4, 9), "int32")}


def blocks_of(encoder):
    return {name for name in names(encoder) if name.startswith("block_")}


def test_shared_weights_are_stored_once():
    assert blocks_of(built()) == {f"block_0/{name}" for name in BLOCK}
    once = {f"block_{i}/{name}" for i in range(3) for name in BLOCK - ATTENTION}
    assert blocks_of(built(**{"blocks.share": "attention"})) == once | {f"block_0/{name}" for name in ATTENTION}
    once = {f"block_{i}/{name}" for i in range(3) for name in ATTENTION}
    assert blocks_of(built(**{"blocks.share": "ffn"})) == once | {f"block_0/{name}" for name in BLOCK - ATTENTION}
    assert "embeddings/projection/kernel" in names(built())
    assert "embeddings/projection/kernel" not in names(built(**{"embeddings.width": 16}))


@pytest.mark.parametrize("share", ["all", "attention", "ffn"])
def test_shared_weights_receive_the_gradients_of_every_layer(share):
    """The gradient is the sum of those of an unshared model of the same weights."""
    shared, apart = built(**{"blocks.share": share}), built(**{"blocks.share": "none"})
    weights = names(shared)
    for name, variable in names(apart).items():
        _block, _, rest = name.partition("/")
        variable.assign(weights[name if name in weights else f"block_0/{rest}"])

    def gradients(model):
        variables = {name: variable.value for name, variable in names(model).items()}
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs())["sequence"] ** 3)
        found = tape.gradient(loss, list(variables.values()), unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in zip(variables, found)}

    found, parts = gradients(shared), gradients(apart)
    for name, gradient in found.items():
        block, _, rest = name.partition("/")
        copies = [f"block_{i}/{rest}" for i in (1, 2)] if block == "block_0" and f"block_1/{rest}" not in found else []
        assert bool(copies) == (
            block == "block_0"
            and (share == "all" or rest in (ATTENTION if share == "attention" else BLOCK - ATTENTION))
        )
        np.testing.assert_allclose(gradient, sum(parts[other] for other in [name, *copies]), rtol=1e-3, atol=1e-4)
        assert name.endswith("key/bias") or np.abs(gradient).max() > 1e-6 or not name.startswith("block_")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model directory with the heads of pretraining."""
    tokenizer, encoder = tiny.tokenizer(), built()
    heads = AlbertPretraining(encoder, tokenizer, features=["order_label"]).model.heads
    folder = tmp_path_factory.mktemp("albert") / "run"
    save_model(folder, encoder=encoder, name="albert/base", heads=heads, tokenizer=tokenizer)
    return folder


@pytest.mark.parametrize("target", ["hf", "tf1"])
def test_export_and_import_are_inverses(run, tmp_path, target):
    kb.export_checkpoint(run, tmp_path / "theirs", target)
    back = kb.import_checkpoint(tmp_path / "theirs", target, "albert", out=tmp_path / "back")
    ours, again = read_tensors(run), read_tensors(tmp_path / "back")
    assert ours.names() == again.names()
    assert {name.split("/")[1] for name in ours.names() if name.startswith("heads/")} == {"mlm", "sop"}
    for name in ours.names():
        np.testing.assert_array_equal(ours.read(name), again.read(name))
    encoder = load_encoder(run)[0]
    given = {"token_ids": np.array([[2, 7, 8, 3]], "int32")}
    np.testing.assert_array_equal(back(given)["pooled"], encoder(given)["pooled"])


def test_names_of_others(run, tmp_path):
    kb.export_checkpoint(run, tmp_path / "hf")
    kb.export_checkpoint(run, tmp_path / "tf1", "tf1")
    theirs = Safetensors(tmp_path / "hf" / "model.safetensors")
    assert theirs.shape("albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight") == (24, 16)
    assert theirs.shape("albert.encoder.embedding_hidden_mapping_in.weight") == (16, 6)
    assert theirs.shape("sop_classifier.classifier.weight") == (2, 16)
    google = {name for name, _ in tf.train.list_variables(str(tmp_path / "tf1" / "bert_model.ckpt"))}
    at = "bert/encoder/transformer/group_0/inner_group_0"
    assert {
        f"{at}/attention_1/self/query/kernel",
        f"{at}/attention_1/output/dense/bias",
        f"{at}/ffn_1/intermediate/dense/kernel",
        f"{at}/ffn_1/intermediate/output/dense/kernel",
        f"{at}/LayerNorm/gamma",
        f"{at}/LayerNorm_1/beta",
        "bert/encoder/embedding_hidden_mapping_in/kernel",
        "bert/embeddings/word_embeddings",
        "bert/pooler/dense/kernel",
        "cls/predictions/output_bias",
        "cls/predictions/transform/dense/kernel",
        "cls/seq_relationship/output_weights",
    } <= google


@pytest.mark.parametrize("changes", [{"blocks.share": "none"}, {"embeddings.width": None}], ids=str)
def test_what_their_format_cannot_say_is_refused(tmp_path, changes):
    encoder = built(**changes)
    save_model(tmp_path / "run", encoder=encoder, name="albert")
    (path,) = changes
    message = (
        "block_1/attention/key/bias has no name in this checkpoint format" if "share" in path else f"cannot say {path}="
    )
    with pytest.raises(kb.InputError, match=message):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "theirs")
