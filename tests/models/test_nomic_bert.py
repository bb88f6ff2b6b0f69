"""NomicBERT: its configurations in both vocabularies, counts, names. Parity: tests.checkpoints.test_family_parity."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints import save_model
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.models.nomic_bert import HF, NOMIC_BERT

TINY = {
    "hidden": 12,
    "attention.heads": 2,
    "feedforward.width": 14,
    "blocks.layers": 2,
    "embeddings.vocabulary": 60,
    "embeddings.positions": 16,
}
FIRST = {  # as the first releases say it, in GPT-2's words
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "causal": False,
    "embd_pdrop": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "max_trained_positions": 128,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 24,
    "n_head": 2,
    "n_inner": 32,
    "n_layer": 2,
    "n_positions": 512,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 700,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_type": "cls_index",
    "type_vocab_size": 2,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "vocab_size": 128,
}
TODAY = {  # in transformers'
    "model_type": "nomic_bert",
    "vocab_size": 128,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_act": "silu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 128,
    "layer_norm_eps": 1e-05,
    "type_vocab_size": 2,
    "rope_parameters": {"rope_theta": 700.0, "rope_type": "default"},
}


def read(config):
    return configs.to_spec(config, HF, NOMIC_BERT.spec, "theirs")


def test_the_released_size():
    count = models.parameters(NOMIC_BERT.encoder, registry.find("nomic-bert/base")[1])
    assert count == 136_731_648  # nomic-embed-text-v1.5: 137M; the blocks' 113,283,072 and the tables


def test_both_vocabularies_say_the_same():
    assert read(FIRST) == read(TODAY) == read(FIRST | TODAY)
    assert (read(FIRST).rotary.theta, read(FIRST).longest, read(FIRST).epsilon) == (700.0, 128, 1e-5)
    assert read({**FIRST, "activation_function": "geglu"}).feedforward.activation == "gated_gelu"
    written = configs.to_config(read(FIRST), HF, NOMIC_BERT.spec)
    assert {key: written[key] for key in TODAY} == TODAY
    assert read(written) == read(FIRST)


@pytest.mark.parametrize(
    "change",
    [
        {"prenorm": True},
        {"causal": True},
        {"rotary_emb_fraction": 0.5},
        {"rotary_emb_interleaved": True},
        {"rotary_scaling_factor": 2},
        {"qkv_proj_bias": True},
        {"activation_function": "gelu"},
        {"rope_parameters": {"rope_theta": 700.0, "rope_type": "yarn"}},
        {"rope_parameters": {"rope_theta": 800.0, "rope_type": "default"}},  # another base than rotary_emb_base
    ],
)
def test_what_is_computed_otherwise_is_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        read(FIRST | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention.head_size": 7}, "even width"),
        ({"rotary.theta": 1.0}, "must be above 1"),
        ({"embeddings.kind": "learned"}, "kind none"),
    ],
)
def test_settings_that_are_none_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        NOMIC_BERT.spec.derive(change)


def test_a_folder_of_the_first_releases_is_read(tmp_path, capsys):
    """Their names of weights, which transformers writes to this day, and their configuration: nothing is left unsaid."""
    spec = read(FIRST)
    made = NOMIC_BERT.encoder(spec)
    made.build()
    block = {name.partition("/")[2] for name in names(made) if name.startswith("block_1")}
    maps = {f"attention/{each}/kernel" for each in ("query", "key", "value", "output")}
    maps |= {f"feedforward/{each}/kernel" for each in ("gate", "linear", "outer")}
    assert block == maps | {
        f"{each}_norm/{leaf}" for each in ("attention", "feedforward") for leaf in ("gamma", "beta")
    }
    save_model(tmp_path / "run", encoder=made, name="nomic-bert/base")
    kb.export_checkpoint(tmp_path / "run", tmp_path / "theirs")
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(FIRST | {"architectures": ["NomicBertModel"]}))
    capsys.readouterr()
    again = kb.import_checkpoint(tmp_path / "theirs")
    assert "not used" not in capsys.readouterr().err
    ids = np.random.default_rng(0).integers(5, 128, (2, 9)).astype("int32")
    np.testing.assert_array_equal(again({"token_ids": ids})["sequence"], made({"token_ids": ids})["sequence"])
