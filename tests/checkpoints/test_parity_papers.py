"""The Transformer against Marian, GPT against OpenAIGPT, MASS against numpy: as in test_parity_generate.py."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from tests.checkpoints.test_parity_generate import alone, batch, compare, named
from tests.checkpoints.theirs import make, parity, same_after_export

MARIAN = {"max_position_embeddings": 15, "scale_embedding": True}
MARIAN_SIZES = [
    {"vocab_size": 61, "d_model": 15, "layers": (2, 3), "heads": 3, "width": 23, "activation_function": "swish"},
    {"vocab_size": 47, "d_model": 14, "layers": (1, 1), "heads": 2, "width": 9, "activation_function": "relu"},
    {"vocab_size": 83, "d_model": 25, "layers": (3, 1), "heads": 5, "width": 31, "activation_function": "gelu"},
]


def marian(vocab_size, d_model, layers, heads, width, **more):
    """A configuration in their words, both stacks alike but for their layers."""
    ids = {"pad_token_id": vocab_size - 1, "decoder_start_token_id": vocab_size - 1}
    config = MARIAN | ids | {"vocab_size": vocab_size, "d_model": d_model} | more
    for stack, count in zip(("encoder", "decoder"), layers):
        config |= {f"{stack}_layers": count, f"{stack}_attention_heads": heads, f"{stack}_ffn_dim": width}
    return config


CASES = [
    *(("MarianMTModel", marian(**size)) for size in MARIAN_SIZES),
]


def fixed_positions(their) -> None:
    """Sines and cosines, with which they fill what they read."""
    for name, module in their.named_modules():
        if name.endswith("embed_positions"):
            module.weight.data = module.create_weight()


@parity
@pytest.mark.parametrize(("kind", "config"), named(CASES))
def test_logits_and_back_again(kind, config, tmp_path):
    their = make(kind, config, seed=len(str(config)))
    fixed_positions(their)
    if hasattr(their, "final_logits_bias"):
        their.final_logits_bias.normal_(0, 0.2)
    inputs = batch(config["vocab_size"], two=getattr(their.config, "is_encoder_decoder", False))
    model = same_after_export(their, inputs, tmp_path)
    compare(model, their, inputs)
    alone(model, inputs)
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    keys = {"pad_token_id", "decoder_start_token_id", "scale_embedding"} & set(config)
    assert {key: written[key] for key in keys} == {key: config[key] for key in keys}


@parity
def test_a_marian_without_a_head_whose_file_holds_the_positions(tmp_path):
    config = marian(**MARIAN_SIZES[1]) | {"scale_embedding": False}
    their = make("MarianModel", config, seed=3)
    fixed_positions(their)
    their.save_pretrained(tmp_path)
    assert "encoder.embed_positions.weight" in Safetensors(tmp_path / "model.safetensors").names()
    model, inputs = kb.import_checkpoint(tmp_path), batch(47, two=True)
    assert model.spec.embeddings.scaled is False
    compare(model, their, inputs)


def folder_of(path, config, **files):
    """A folder of theirs whose configuration is what matters."""
    (path / "config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", {"a": (1,)}, lambda name: np.zeros(1, "float32"), {"format": "pt"})
    for name, content in files.items():
        (path / name.replace("_", ".")).write_text(content)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "mish"}, "has the activation 'mish', expected one of gelu"),
        ({"decoder_vocab_size": 60}, "has decoder_vocab_size 60, expected 61: no such model here"),
        ({"share_encoder_decoder_embeddings": False}, "has share_encoder_decoder_embeddings False, expected True"),
        ({"decoder_attention_heads": 5}, "has decoder_attention_heads 5, expected 3"),
        ({"normalize_before": True}, "has normalize_before True, expected False"),
    ],
)
def test_a_marian_that_is_none_of_ours_is_refused(change, message, tmp_path):
    folder_of(tmp_path, {"model_type": "marian", **marian(**MARIAN_SIZES[0]), **change})
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path)
