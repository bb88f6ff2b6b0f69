"""Reformer against transformers: at most a chunk, and longer by their directions; kinds mixed, rounds, padding, both ways.

Three random configurations of odd sizes, every weight N(0, 0.2); real tokens within 1e-5. Theirs runs in float64: a token that
sees nobody but itself has the score -1e5 there, of which float32 keeps no digit behind the second, so that the shares of three
rounds add up to 0.997.
"""

import json
import math

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.layers.lsh import LSHAttention
from kerasbert.models.reformer import TokenHead
from tests.checkpoints.test_parity_papers import folder_of
from tests.checkpoints.theirs import close, head, make, parity, run, same_after_export

COMMON = {"hash_seed": 7, "use_cache": False, "max_position_embeddings": 48, "pad_token_id": 0}
SIZES = [
    {
        "attn_layers": ["local", "lsh", "local"],
        "hidden_size": 15,
        "num_attention_heads": 3,
        "attention_head_size": 5,
        "axial_pos_shape": [6, 8],
        "axial_pos_embds_dim": [4, 11],
        "feed_forward_size": 23,
        "local_attn_chunk_length": 6,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 6,
        "num_hashes": 3,
        "vocab_size": 61,
        "chunk_size_feed_forward": 0,
    },
    {
        "attn_layers": ["lsh", "lsh"],
        "hidden_size": 14,
        "num_attention_heads": 2,
        "attention_head_size": 9,
        "axial_pos_embds": False,
        "axial_pos_embds_dim": [3, 11],
        "feed_forward_size": 9,
        "lsh_attn_chunk_length": 5,
        "num_buckets": [4, 2],
        "num_hashes": 1,
        "vocab_size": 47,
        "hidden_act": "gelu",
        "lsh_attention_probs_dropout_prob": 0.1,
    },
    {
        "attn_layers": ["lsh", "local"],
        "hidden_size": 20,
        "num_attention_heads": 5,
        "attention_head_size": 7,
        "axial_pos_shape": [3, 16],
        "axial_pos_embds_dim": [13, 7],
        "feed_forward_size": 31,
        "local_attn_chunk_length": 3,
        "local_num_chunks_before": 2,
        "lsh_attn_chunk_length": 9,
        "num_buckets": [2, 6],
        "num_hashes": 2,
        "vocab_size": 83,
    },
]
AFTER = {"local_num_chunks_after": 1, "lsh_num_chunks_after": 1}


def batch(vocabulary, length, rows=3, padded=True, seed=0):
    """Random tokens; row i has 2 i padded places."""
    generator = np.random.default_rng(seed)
    mask = (np.arange(length) < length - 2 * padded * np.arange(rows)[:, None]).astype("int32")
    return {"token_ids": generator.integers(1, vocabulary, (rows, length)).astype("int32"), "padding_mask": mask}


def with_their_directions(encoder, config):
    """Our model hashing as theirs does with this hash_seed."""
    import torch

    for block in encoder.blocks:
        if isinstance(block.attention, LSHAttention):
            torch.manual_seed(config["hash_seed"])
            layer = block.attention
            shape = layer.heads, layer.head_size, layer.rounds, sum(layer.factors) // 2
            layer.fixed = torch.randn(shape, dtype=torch.float64).reshape(*shape[:2], -1).float().numpy()
    return encoder


def cases():
    for i, size in enumerate(SIZES):
        for causal in (True, False):
            more = {} if causal or i == 1 else AFTER
            yield pytest.param(
                COMMON | size | more | {"is_decoder": causal}, id=f"{i}-{'causal' if causal else 'both'}"
            )


@parity
@pytest.mark.parametrize("config", list(cases()))
def test_hidden_states_at_every_length(config, tmp_path):
    their = make("ReformerModel", config, seed=len(str(config)))
    their.save_pretrained(tmp_path)
    their.double()
    encoder = with_their_directions(kb.import_checkpoint(tmp_path), config)
    chunks = [config[f"{kind}_attn_chunk_length"] for kind in set(config["attn_layers"])]
    # up to a chunk; between the two; several chunks, a multiple or not
    for length in sorted({min(chunks), max(chunks), 2 * math.lcm(*chunks), 41}):
        for padded in (False, True):
            inputs = batch(config["vocab_size"], length, padded=padded and length > 5)
            expected, got = run(their, inputs, output_hidden_states=True), encoder(inputs)
            real = inputs["padding_mask"].astype(bool)
            half = config["hidden_size"]
            for ours, other in zip(got["hidden"][:-1], expected.hidden_states[:-1], strict=True):
                close(np.asarray(ours)[..., half:][real], other[:, :length][real])
            close(np.asarray(got["sequence"])[real], expected.last_hidden_state[real])


@parity
@pytest.mark.parametrize(("kind", "size"), [("ReformerModelWithLMHead", 0), ("ReformerForMaskedLM", 2)])
def test_heads_that_predict_tokens_go_both_ways(kind, size, tmp_path):
    config = COMMON | SIZES[size] | {"is_decoder": kind == "ReformerModelWithLMHead"}
    their = make(kind, config, seed=size)
    # transformers 5.24 adds `decoder.bias` and stores `bias` besides; 5.0 to 5.23 store `bias` alone and add it to nothing
    added = getattr(their.lm_head.decoder, "bias", None)
    if added is not None:
        assert not np.array_equal(added.detach(), their.lm_head.bias.detach())
        their.save_pretrained(tmp_path / "two")
        read = kb.import_checkpoint(tmp_path / "two").heads["mlm"]["bias"]
        np.testing.assert_array_equal(read, added.detach().numpy())
        their.lm_head.bias.data.copy_(added.data)
    short = batch(config["vocab_size"], 3, padded=False)  # without hashing: a configuration of ours has no hash_seed
    encoder = with_their_directions(same_after_export(their, short, tmp_path), config)
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert written["architectures"] == [kind]
    keys = {*SIZES[size], "is_decoder", "max_position_embeddings"}
    assert {key: written[key] for key in keys} == {key: config[key] for key in keys}
    inputs = batch(config["vocab_size"], 19, padded=False)
    x = encoder(inputs)["sequence"]
    ours = head(encoder, "mlm", TokenHead(config["vocab_size"], 0, name="mlm"), x)
    close(ours if added is not None else ours - encoder.heads["mlm"]["bias"], run(their.double(), inputs).logits)


@parity
def test_the_classifier_and_answers_are_theirs(tmp_path):
    config = COMMON | SIZES[0] | {"is_decoder": False, "num_labels": 3}
    inputs, short = batch(61, 13), batch(61, 3, padded=False)
    for kind, outputs in (
        ("ReformerForSequenceClassification", ("logits",)),
        ("ReformerForQuestionAnswering", ("start_logits", "end_logits")),
    ):
        config["num_labels"] = 3 if outputs == ("logits",) else 2
        their = make(kind, config, seed=4)
        encoder = same_after_export(their, short, tmp_path / kind)
        model, expected = kb.load(tmp_path / kind / "ours"), run(their.double(), inputs)
        with_their_directions(model.body, config)
        with_their_directions(encoder, config)
        got = model(inputs)
        if outputs == ("logits",):
            close(got["logits"], expected.logits)
        else:
            real = inputs["padding_mask"].astype(bool)
            ours = np.asarray(encoder(inputs)["sequence"]) @ encoder.heads["span"]["kernel"]
            ours = ours + encoder.heads["span"]["bias"]
            for i, name in enumerate(outputs):
                close(ours[..., i][real], expected[name][real])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"architectures": ["ReformerForSequenceClassification"], "is_decoder": True},
            "has is_decoder True, expected False",
        ),
        ({"hidden_size": 16}, r"axial.widths \[4, 11\] must be two that make embeddings.width 16"),
        ({"num_buckets": 5}, "lsh.buckets must be even, for a direction and its opposite. Received: 5"),
        ({"lsh_attn_chunk_length": 0}, "lsh.chunk must be at least 1 token. Received: 0"),
        ({"attn_layers": ["local", "full"]}, r"reversible.kinds must be of local, lsh. Received: \['local', 'full'\]"),
        ({"is_decoder": True, **AFTER}, "local.after is 1, expected 0 where a token sees none behind it"),
        ({"tie_word_embeddings": True}, "has tie_word_embeddings True, expected False"),
    ],
)
def test_a_reformer_that_is_none_of_ours_is_refused(change, message, tmp_path):
    config = {"model_type": "reformer", **COMMON, **SIZES[0], "is_decoder": False, "num_hidden_layers": 3}
    usual = {"layer_norm_eps": 1e-12, "initializer_range": 0.02, "axial_norm_std": 1.0, "hidden_act": "relu"}
    folder_of(tmp_path, {**config, **usual, **change})
    with pytest.raises(InputError, match=message):
        kb.import_checkpoint(tmp_path)
