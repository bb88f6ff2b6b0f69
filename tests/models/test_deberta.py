"""DeBERTa, v2 and v3: counts, public names, what configurations say, the convolution, the enhanced mask decoder."""

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints import save_model
from kerasbert.errors import InputError
from kerasbert.layers import mask_decoder
from kerasbert.layers.mask_decoder import decoded
from kerasbert.layers.naming import names
from kerasbert.models.deberta import DEBERTA, HF, DebertaPretraining
from kerasbert.models.deberta_v2 import DEBERTA_V2, V2_HF, Conv, Convolution
from kerasbert.models.deberta_v3 import DEBERTA_V3
from tests import tiny
from tests.checkpoints import theirs

TINY = {"hidden": 12, "attention.heads": 3, "feedforward.width": 10, "blocks.layers": 2, "embeddings.vocabulary": 50}
SMALL = TINY | {"relative.distance": 9, "dropout": 0.0}
COUNTS = {
    "deberta/base": 138_601_728,
    "deberta/large": 405_163_008,
    "deberta/xlarge": 757_804_032,
    "deberta-v2/xlarge": 884_593_152,
    "deberta-v2/xxlarge": 1_564_549_632,
    "deberta-v3/xsmall": 70_682_112,
    "deberta-v3/small": 141_304_320,
    "deberta-v3/base": 183_831_552,
    "deberta-v3/large": 434_012_160,
    "deberta-v3/base-multilingual": 278_218_752,
}
SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
V3 = {  # the released configurations of version 3, but for sizes
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "type_vocab_size": 0,
}


def built(family, **changes):
    keras.utils.set_random_seed(1)
    made = family.encoder(family.spec.derive(SMALL | changes))
    made.build()
    draw = np.random.default_rng(1)
    for weight in made.weights:
        if not weight.path.endswith(("gamma", "beta")):
            weight.assign(draw.normal(0, 0.4, weight.shape))
    return made


def read(dialect=V2_HF, family=DEBERTA_V2, **config):
    return configs.to_spec(SIZES | config, dialect, family.spec, "theirs")


def test_the_released_models_have_the_papers_parameters():
    # the index, which tests.test_cli compares with the models
    counts = {row["name"]: row["parameters"] for row in registry.shipped()["models"]}
    assert {name: counts[name] for name in COUNTS} == COUNTS
    assert models.parameters(DEBERTA_V3.encoder, DEBERTA_V3.size("small")) == COUNTS["deberta-v3/small"]
    # the backbones of the paper's table 2 (DeBERTaV3), without the vocabulary: 22M, 44M, 86M and 304M with positions
    widths = {"xsmall": 384, "small": 768, "base": 768, "large": 1024}
    backbones = {size: COUNTS[f"deberta-v3/{size}"] - 128100 * width for size, width in widths.items()}
    assert {size: round(count / 1e6) for size, count in backbones.items()} == {
        "xsmall": 21,
        "small": 43,
        "base": 85,
        "large": 303,
    }


@theirs.parity
def test_transformers_counts_as_many():
    import torch

    transformers = theirs.transformers()
    for name in ("deberta/base", "deberta-v2/xlarge", "deberta-v3/xsmall"):
        count, (family, spec) = COUNTS[name], registry.find(name)
        config = configs.to_config(spec, family.names["hf"], family.spec)
        kind = "Deberta" if family is DEBERTA else "DebertaV2"
        with torch.device("meta"):
            model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config))
        assert sum(parameter.numel() for parameter in model.parameters()) == count, name


@theirs.parity
def test_a_file_as_microsoft_released_it(tmp_path):
    """Names of `legacy` false, the head of replaced token detection, positions that no class of transformers reads, no class."""
    import json

    import torch
    from safetensors.torch import load_file, save_file

    import kerasbert as kb

    config = SIZES | V3 | {"legacy": False}
    model = theirs.make("DebertaV2ForMaskedLM", config)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "lm_predictions.lm_head.dense.weight" in tensors
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(40, 24)
    for name, shape in (("dense.weight", (24, 24)), ("LayerNorm.bias", (24,)), ("classifier.weight", (1, 24))):
        tensors[f"mask_predictions.{name}"] = torch.zeros(*shape)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "deberta-v2"}))
    encoder = kb.import_checkpoint(tmp_path, model="deberta-v3", out=tmp_path / "ours")
    assert set(encoder.heads) == {"mlm"}
    inputs = {"token_ids": np.arange(6, 18, dtype="int32")[None], "padding_mask": np.ones((1, 12), "int32")}
    expected = theirs.run(model, inputs, output_hidden_states=True)
    theirs.close(encoder(inputs)["sequence"], expected.hidden_states[-1])
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back = theirs.transformers().DebertaV2ForMaskedLM.from_pretrained(tmp_path / "back").eval()
    theirs.close(theirs.run(back, inputs).logits.numpy(), expected.logits)


def test_weight_names_are_public():
    norms = {f"{part}_norm/{leaf}" for part in ("attention", "feedforward") for leaf in ("gamma", "beta")}
    maps = {f"feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")}
    embeddings = {"embeddings/tokens/table", "embeddings/norm/gamma", "embeddings/norm/beta", "relative/table"}

    def attention(*parts, without=()):
        every = {f"attention/{part}/{leaf}" for part in parts for leaf in ("kernel", "bias")}
        return every - {f"attention/{part}/bias" for part in without}

    one = {*attention("query", "key", "value", "output", "position_key", "position_query",
                      without=("key", "position_key")), *maps, *norms}  # fmt: skip
    assert set(names(built(DEBERTA))) == embeddings | {f"block_{i}/{name}" for i in range(2) for name in one}
    two = {*attention("query", "key", "value", "output"), *maps, *norms}
    buckets = {"relative.buckets": 4}
    found = set(names(built(DEBERTA_V3, **buckets)))
    normed = embeddings | {"relative_norm/gamma", "relative_norm/beta"}
    assert found == normed | {f"block_{i}/{name}" for i in range(2) for name in two}
    conv = {"block_0/conv/kernel", "block_0/conv/bias", "block_0/conv_norm/gamma", "block_0/conv_norm/beta"}
    assert set(names(built(DEBERTA_V2, **buckets))) == found | conv


def test_the_released_configurations():
    spec = read(**V3)
    assert (spec.relative.terms, spec.relative.distance, spec.relative.buckets) == (("c2p", "p2c"), 40, 16)
    assert (spec.relative.share_key, spec.relative.norm, spec.embeddings.kind) == (True, True, "none")
    assert (spec.conv.kernel, spec.embeddings.segments, spec.epsilon) == (0, 0, 1e-7)
    assert read(**V3, conv_kernel_size=3, conv_act="gelu", attention_head_size=12).conv == Conv(3, 1, "gelu")
    written = configs.to_config(spec, V2_HF, DEBERTA_V2.spec)
    assert written["pos_att_type"] == ["c2p", "p2c"]
    assert {key: written[key] for key in V3 if key not in ("pos_att_type", "max_relative_positions")} == {
        key: V3[key] for key in V3 if key not in ("pos_att_type", "max_relative_positions")
    }


def test_a_configuration_that_says_nothing_is_a_bert():
    spec = read()
    assert (spec.relative.terms, spec.embeddings.kind) == ((), "learned")
    assert read(HF, DEBERTA).relative.terms == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pos_att_type": ["p2p"]}, "relative.terms must be some of c2p, p2c"),
        ({"relative_attention": False}, "relative_attention"),
        ({"embedding_size": 12}, "embedding_size"),
        ({"attention_head_size": 7}, "attention_head_size"),
        ({"pooler_hidden_size": 7}, "pooler_hidden_size"),
        ({"norm_rel_ebd": "batch"}, "relative.norm"),
        ({"position_buckets": 5}, "relative.buckets must be an even number"),
        ({"max_relative_positions": 9}, "relative.distance must be above"),
        ({"conv_kernel_size": 2}, "conv.kernel must be an odd number"),
        ({"conv_kernel_size": 3, "conv_groups": 5}, "conv.groups must divide hidden 24"),
        ({"conv_act": "sine"}, "conv.activation must be one of"),
        ({"pooler_hidden_act": "sine"}, "pooled_activation must be one of"),
    ],
)
def test_what_is_not_computed_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        read(**V3 | change)


def test_talking_heads_are_refused():
    with pytest.raises(InputError, match="talking_head"):
        read(HF, DEBERTA, talking_head=True)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_convolution_in_numpy(groups):
    """out_i = act(sum over taps t and inputs c of the group: W[t, c, o] x[i + t - 1, c] + b_o), padding counts as 0."""
    draw = np.random.default_rng(0)
    x, kernel = draw.normal(size=(2, 6, 12)).astype("float32"), draw.normal(size=(3, 12 // groups, 12))
    layer = Convolution(Conv(3, groups, "tanh"))
    layer.build((None, None, 12))
    layer.kernel.assign(kernel)
    layer.bias.assign(bias := draw.normal(size=12))
    mask = np.array([[1] * 6, [1] * 4 + [0] * 2])
    expected = np.zeros((2, 6, 12)) + bias
    for b, i, t, o in np.ndindex(2, 6, 3, 12):
        if 0 <= i + t - 1 < 6 and mask[b, i + t - 1]:
            group = slice(o * groups // 12 * (12 // groups), (o * groups // 12 + 1) * (12 // groups))
            expected[b, i, o] += x[b, i + t - 1, group] @ kernel[t, :, o]
    real = mask.astype(bool)
    np.testing.assert_allclose(np.asarray(layer(x, mask.astype("int32")))[real], np.tanh(expected)[real], atol=1e-5)


def test_texts_of_one_row_are_apart():
    """The convolution reads neighbours, but none of another text."""
    model = built(DEBERTA_V2, **{"relative.buckets": 4})
    ids = np.random.default_rng(0).integers(5, 50, (1, 8)).astype("int32")
    packed = np.array([[1, 1, 1, 1, 2, 2, 2, 0]], "int32")
    together = np.asarray(model({"token_ids": ids, "packed_ids": packed})["sequence"])
    for start, end in ((0, 4), (4, 7)):
        alone = np.asarray(model({"token_ids": ids[:, start:end]})["sequence"])
        np.testing.assert_allclose(together[:, start:end], alone, atol=2e-5)


def decoder(family=DEBERTA, **changes):
    """The objective on a tiny model, its decoder's inputs and outputs of the encoder."""
    model = built(family, **{"embeddings.vocabulary": tiny.tokenizer().size} | changes)
    objective = DebertaPretraining(model, tiny.tokenizer())
    for weight in objective.model.heads["emd"].weights:
        weight.assign(np.random.default_rng(2).normal(0, 0.4, weight.shape))
    ids = np.random.default_rng(0).integers(5, 20, (2, 7)).astype("int32")
    places = np.array([[1, 6], [0, 3]], "int32")
    mask = np.array([[1] * 7, [1] * 5 + [0] * 2], "int32")
    return model, objective, {"token_ids": ids, "padding_mask": mask, "mlm_positions": places}


@pytest.mark.parametrize("family", [DEBERTA, DEBERTA_V2], ids=lambda family: family.name)
def test_a_decoder_of_one_layer_without_positions_is_berts(family, monkeypatch):
    """Section 4.2: with I = H and n = 1 the enhanced mask decoder is BERT's."""
    changes = {"relative.buckets": 4, "conv.kernel": 3} if family is DEBERTA_V2 else {}
    model, objective, inputs = decoder(family, **changes)
    plain = np.take_along_axis(np.asarray(model(inputs)["sequence"]), inputs["mlm_positions"][..., None], 1)
    monkeypatch.setattr(mask_decoder, "DECODER_LAYERS", 1)
    positions = objective.model.heads["emd"]
    told = model.blocks[-1], positions, model(inputs)["hidden"][-2], inputs, model.context(inputs)
    assert np.abs(np.asarray(decoded(*told)) - plain).max() > 0.01
    positions.table.assign(np.zeros_like(positions.table))
    np.testing.assert_allclose(decoded(*told), plain, atol=1e-5)
    monkeypatch.setattr(mask_decoder, "DECODER_LAYERS", 2)
    assert np.abs(np.asarray(decoded(*told)) - plain).max() > 0.01


def test_the_decoder_reads_the_states_of_the_last_layer_but_one():
    """Its second layer has the first one's results as queries; keys and values stay (section 4.2)."""
    model, objective, inputs = decoder()
    found = objective.model(inputs)["mlm_logits"]
    states, block = model(inputs)["hidden"][-2], model.blocks[-1]
    every = dict(inputs, mlm_positions=np.tile(np.arange(7, dtype="int32"), (2, 1)))
    whole = np.asarray(objective.model(every)["mlm_logits"])
    np.testing.assert_allclose(found, np.take_along_axis(whole, inputs["mlm_positions"][..., None], 1), atol=1e-4)
    context = model.context(inputs)
    query, source = np.asarray(states) + objective.model.heads["emd"].table.numpy()[:7], states
    for _ in range(2):
        y, _ = block.attention(query, context.bias, source, scoring=context.scoring)
        query = block.attention_norm(query, y)
        query = block.feedforward_norm(query, block.feedforward(query))
    np.testing.assert_allclose(whole, objective.model.heads["mlm"](query, model.embeddings.tokens.table), atol=1e-4)


def test_rows_beyond_the_table_of_positions_are_refused():
    _, objective, inputs = decoder(**{"embeddings.positions": 6})
    with pytest.raises(InputError, match="rows have 7 tokens, expected at most 6"):
        objective.model(inputs)


def test_other_models_have_no_such_decoder():
    other = registry.family("bert").encoder(registry.family("bert").spec.derive(tiny.SPEC))
    with pytest.raises(InputError, match="pretrain a deberta"):
        DebertaPretraining(other, tiny.tokenizer())


def test_positions_that_tokens_have_are_given_once():
    model = built(DEBERTA, **{"embeddings.kind": "learned", "embeddings.vocabulary": tiny.tokenizer().size})
    assert set(DebertaPretraining(model, tiny.tokenizer()).model.heads) == {"mlm"}
    assert model.longest == 512
    assert built(DEBERTA).longest is None


def test_masks_are_filled_by_the_decoder(tmp_path):
    """What a run with the objective predicts is what fill-mask says: through the positions, not by the plain head."""
    model, objective, inputs = decoder()
    model.tokenizer = tiny.tokenizer()
    save_model(
        tmp_path / "run", encoder=model, name="deberta/tiny", heads=objective.model.heads, tokenizer=model.tokenizer
    )
    inputs["mlm_positions"] = inputs["mlm_positions"][:, :1]
    expected = np.asarray(objective.model(inputs)["mlm_logits"])
    filler = kb.load(tmp_path / "run", task="fill-mask")
    rows = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    asked = rows | {"positions": inputs["mlm_positions"]}
    found = np.asarray(filler.logits(filler.body(asked, queries=filler.queries(asked)), asked))
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-4)
    whole = np.asarray(filler.body(rows)["sequence"])
    of_masks = np.asarray(filler.body(rows, queries=inputs["mlm_positions"])["sequence"])
    np.testing.assert_allclose(of_masks, np.take_along_axis(whole, inputs["mlm_positions"][..., None], 1), atol=1e-4)
    plain = kb.load(tmp_path / "run")(rows)["sequence"]
    assert np.abs(np.asarray(plain) - whole).max() > 0.01
    assert len(kb.fill_mask(filler, ["the cat [MASK] the [MASK]"])[0].tokens) == 2
