"""Funnel-Transformer against transformers': every hidden state of rows of odd lengths, every class in and out."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.layers.heads import LabelHead
from kerasbert.models.xlnet import XLNetLM
from kerasbert.tasks.predict import task_logits
from tests.checkpoints.theirs import close, head, make, parity, run, same_after_export
from tests.support import by_hand

SIZES = {"vocab_size": 61, "d_model": 20, "n_head": 3, "d_head": 6, "d_inner": 30, "hidden_dropout": 0.0}
FORMS = {
    "uneven": {"block_sizes": [2, 1, 2]},
    "factorized": {"block_sizes": [1, 2], "attention_type": "factorized", "hidden_act": "relu"},
    "repeated": {"block_sizes": [2, 1, 1], "block_repeats": [1, 2, 3], "num_decoder_layers": 1},
    "maximum": {"block_sizes": [1, 1, 1, 1], "pooling_type": "max", "layer_norm_eps": 1e-3},
    "not cut": {"block_sizes": [2, 2, 1], "truncate_seq": False},
    "not apart": {"block_sizes": [1, 2, 1], "separate_cls": False, "truncate_seq": False},
    "not apart, factorized": {"block_sizes": [1, 1], "separate_cls": False, "attention_type": "factorized"},
    "pooled keys": {"block_sizes": [1, 2, 1], "pool_q_only": False},
    "one block": {"block_sizes": [2]},
}
KEPT = ("uneven", "factorized", "repeated", "not apart")


def batch(length, rows=2):
    """Rows without padding: what theirs gives of one depends on the padding beside it."""
    rng = np.random.default_rng(length)
    segments = np.sort(rng.integers(0, 2, (rows, length)), axis=1)
    segments[0, 0] = 2  # as their tokenizer marks [CLS]; without it as ours does
    ids = rng.integers(5, SIZES["vocab_size"], (rows, length))
    named = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": segments}
    return {name: value.astype("int32") for name, value in named.items()}


@parity
@pytest.mark.parametrize("form", [*KEPT, *by_hand(form for form in FORMS if form not in KEPT)])
def test_every_hidden_state(form, tmp_path):
    their = make("FunnelModel", SIZES | FORMS[form], seed=3)
    their.save_pretrained(tmp_path)
    ours = kb.import_checkpoint(tmp_path)
    for length in (9, 12, 17):  # theirs fails where the last block has less than three tokens
        inputs = batch(length)
        expected, got = run(their, inputs, output_hidden_states=True), ours(inputs)
        for one, other in zip(got["hidden"], expected.hidden_states, strict=True):
            close(one, other)
        close(got["sequence"], expected.last_hidden_state)


CLASSES = {
    "FunnelBaseModel": (),
    "FunnelForMaskedLM": ("mlm",),
    "FunnelForPreTraining": ("rtd",),
    "FunnelForSequenceClassification": ("classifier",),
    "FunnelForTokenClassification": ("classifier",),
    "FunnelForQuestionAnswering": ("span",),
    "FunnelForMultipleChoice": ("classifier",),
}


@parity
@pytest.mark.parametrize("kind", CLASSES)
def test_heads_and_back_again(kind, tmp_path):
    their = make(kind, SIZES | FORMS["uneven"] | {"num_labels": 2 if "Question" in kind else 3})
    inputs = batch(11)
    encoder = same_after_export(their, inputs, tmp_path)
    assert set(encoder.heads) == set(CLASSES[kind])
    assert json.loads((tmp_path / "back/config.json").read_text())["architectures"] == [kind]
    bare = kind in ("FunnelBaseModel", "FunnelForSequenceClassification", "FunnelForMultipleChoice")
    assert encoder.spec.funnel.decoder == (0 if bare else 2)
    expected, got = run(their, inputs), encoder(inputs)
    if kind == "FunnelBaseModel":
        close(got["hidden"][-1], expected.last_hidden_state)
        close(got["sequence"][:, 0], expected.last_hidden_state[:, 0])
        # each token has the last vector of its four; what was left out has none
        np.testing.assert_array_equal(got["sequence"][:, 1:5], np.repeat(got["hidden"][-1][:, 1:2], 4, axis=1))
        assert not np.asarray(got["sequence"])[:, 9:].any()
    elif kind == "FunnelForMaskedLM":
        table = encoder.embeddings.tokens.table
        close(head(encoder, "mlm", XLNetLM(61, name="mlm"), got["sequence"], table), expected.logits, 1e-4)
    elif kind == "FunnelForPreTraining":
        layer = LabelHead(1, activation="gelu_tanh", name="rtd")
        close(head(encoder, "rtd", layer, got["sequence"])[..., 0], expected.logits)
    else:
        model = kb.load(tmp_path / "ours")
        if kind == "FunnelForQuestionAnswering":
            import torch

            close(task_logits(model, inputs), torch.stack([expected.start_logits, expected.end_logits], -1))
        else:
            close(np.asarray(task_logits(model, inputs)).reshape(expected.logits.shape), expected.logits)


@parity
def test_a_model_without_a_decoder_is_read_as_one_of_their_base_models_alone(tmp_path):
    their = make("FunnelModel", SIZES | FORMS["one block"] | {"num_decoder_layers": 0})
    their.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="FunnelModel has no decoder layers .*expected some, or FunnelBaseModel"):
        kb.import_checkpoint(tmp_path)


@parity
def test_the_released_layout_of_a_matrix(tmp_path):
    """W_r is stored with an axis for the heads."""
    their = make("FunnelModel", SIZES | FORMS["one block"])
    their.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    name = "funnel.encoder.blocks.0.1.attention.r_kernel"
    kernel = checkpoints.read_tensors(tmp_path / "ours").read("block_0/layer_1/attention/position/kernel")
    stored = Safetensors(tmp_path / "back/model.safetensors").read(name)
    assert (kernel.shape, stored.shape) == ((20, 18), (20, 3, 6))
    np.testing.assert_array_equal(stored.reshape(20, 18), kernel)
