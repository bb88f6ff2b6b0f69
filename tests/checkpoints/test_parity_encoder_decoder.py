"""BERT2BERT and its kin against transformers' EncoderDecoderModel, in and out."""

import numpy as np
import pytest

from kerasbert import registry
from tests.checkpoints.test_parity_generate import alone, batch, compare
from tests.checkpoints.theirs import parity, same_after_export, transformers

SIZES = [  # odd ones
    {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 29},
    {"vocab_size": 47, "hidden_size": 15, "num_hidden_layers": 1, "num_attention_heads": 5, "intermediate_size": 23},
    {"vocab_size": 53, "hidden_size": 14, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 31},
]
HALVES = {  # our family, and the options of their halves
    "Bert": ("bert2bert", [{}, {"hidden_act": "relu", "layer_norm_eps": 1e-5}, {"type_vocab_size": 3}]),
    "Roberta": ("roberta2roberta", [{"type_vocab_size": 1}, {"hidden_act": "gelu_new"}, {"type_vocab_size": 2}]),
    "BertGeneration": ("bert-generation", [{}, {"hidden_act": "relu"}, {}]),
}


def theirs(kind: str, config: dict, seed: int, layers: int | None = None):
    """A model of their class, every weight N(0, 0.2) but for the pooler's, which nothing reads."""
    import torch

    module = transformers()
    torch.manual_seed(seed)
    halves = [config | {"max_position_embeddings": 33}] * 2
    halves[1] = halves[1] | ({"num_hidden_layers": layers} if layers else {})
    made = [getattr(module, f"{kind}Config")(**half) for half in halves]
    about = {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": made[0].pad_token_id}
    whole = module.EncoderDecoderConfig.from_encoder_decoder_configs(*made, **about)
    model = module.EncoderDecoderModel(whole).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.0 if "pooler" in name else 0.2)
    return model


def inputs_of(their, config: dict) -> dict:
    """Of tokens that are no special ones, padded with theirs."""
    inputs, pad = batch(config["vocab_size"], two=True), their.config.pad_token_id
    for side in ("", "decoder_"):
        ids, mask = inputs[f"{side}token_ids"], inputs[f"{side}padding_mask"]
        inputs[f"{side}token_ids"] = np.where(mask == 1, np.maximum(ids, 4), pad).astype("int32")
    return inputs


CASES = [
    pytest.param(kind, size, id=f"{kind}-{size}", marks=[] if (kind, size) in {("Bert", 0)} else pytest.mark.full)
    for kind in HALVES
    for size in range(3)
]


@parity
@pytest.mark.parametrize(("kind", "size"), CASES)
def test_logits_and_back_again(kind, size, tmp_path):
    family, options = HALVES[kind]
    config = SIZES[size] | options[size]
    their = theirs(kind, config, seed=size, layers=(None, 2, 1)[size])
    inputs = inputs_of(their, config)
    model = same_after_export(their, inputs, tmp_path)
    assert (registry.family_of(model).name, model.spec.share) == (family, "none")
    compare(model, their, inputs)
    alone(model, inputs)
