"""Longformer against transformers: windows per layer, odd lengths, global tokens, every class back and forth."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.layers.heads import LabelHead
from tests.checkpoints.theirs import close, head, make, parity, run, same_after_export

COMMON = {"pad_token_id": 1, "sep_token_id": 2, "type_vocab_size": 1, "attention_probs_dropout_prob": 0.0}
SIZES = [  # theirs wants windows of at least 4 that divide the widest
    {"vocab_size": 61, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 23}
    | {"max_position_embeddings": 35, "attention_window": [4, 8], "layer_norm_eps": 1e-5},
    {"vocab_size": 47, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 9}
    | {"max_position_embeddings": 33, "attention_window": [6, 12, 4], "hidden_act": "relu"},
    {"vocab_size": 83, "hidden_size": 25, "num_hidden_layers": 1, "num_attention_heads": 5, "intermediate_size": 31}
    | {"max_position_embeddings": 64, "attention_window": 4, "hidden_act": "gelu_new"},
]
LENGTHS = (31, 25, 61)


def batch(size, length, count, seed=0):
    """Rows with 0, 3 and 6 padded places, whose first tokens are global; in the last row one fewer."""
    mask = (np.arange(length) < length - 3 * np.arange(3)[:, None]).astype("int32")
    ids = np.where(mask, np.random.default_rng(seed).integers(3, size["vocab_size"], (3, length)), 1).astype("int32")
    marked = np.tile(np.arange(length) < count, (3, 1)).astype("int32")
    marked[2, max(0, count - 1) :] = 0
    return {"token_ids": ids, "padding_mask": mask} | ({"global_mask": marked} if count else {})


@parity
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("number", range(3))
def test_hidden_states(number, count, tmp_path):
    size, length = SIZES[number], LENGTHS[number]
    their = make("LongformerModel", COMMON | size, seed=number)
    their.save_pretrained(tmp_path)
    model, told = kb.import_checkpoint(tmp_path), batch(size, length, count)
    real, expected = told["padding_mask"] == 1, run(their, told, output_hidden_states=True)
    assert model.spec.window.global_tokens == 0
    for form in ("any token", "the first"):
        model.spec = model.spec.derive({"window.global_tokens": count if form == "the first" else 0})
        got = model(told)
        for ours, theirs in zip(got["hidden"], expected.hidden_states, strict=True):
            close(np.asarray(ours)[real], theirs[real])
        close(got["pooled"], expected.pooler_output)


CLASSES = {
    "LongformerModel": (),
    "LongformerForMaskedLM": ("mlm",),
    "LongformerForSequenceClassification": ("classifier",),
    "LongformerForTokenClassification": ("classifier",),
    "LongformerForQuestionAnswering": ("span",),
    "LongformerForMultipleChoice": ("classifier",),
}


@parity
@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_back_and_forth(kind, tmp_path):
    size = COMMON | SIZES[0]
    told = batch(size, 31, 0)
    if kind.endswith(("QuestionAnswering", "MultipleChoice")):  # a question, three separators in each row
        told["token_ids"][:, [5, 6, 24]] = 2
        told["padding_mask"] = (np.arange(31) < 25).astype("int32")[None].repeat(3, axis=0)
        told["token_ids"][:, 25:] = 1
    their = make(kind, size, seed=5)
    model = same_after_export(their, told, tmp_path)
    assert set(model.heads) == set(CLASSES[kind])
    assert model.spec.window.size == (4, 8)
    expected = run(their, told)
    if kind.endswith("SequenceClassification"):  # [CLS] is global, as there
        assert model.spec.window.global_tokens == 1
        close(head(model, "classifier", LabelHead(2, name="classifier"), model(told)["pooled"]), expected.logits)
    if kind.endswith("TokenClassification"):
        real = told["padding_mask"] == 1
        logits = head(model, "classifier", LabelHead(2, name="classifier"), model(told)["sequence"])
        close(logits[real], expected.logits[real])
    if kind.endswith("QuestionAnswering"):
        marked = told | {"question_mask": (np.tile(np.arange(31) < 5, (3, 1))).astype("int32")}
        logits = head(model, "span", LabelHead(2, name="span"), model(marked)["sequence"])
        close(logits[:, :25, 0], expected.start_logits[:, :25])
    if kind.endswith("MultipleChoice"):
        place = np.tile(np.arange(31), (3, 1))
        marked = told | {"choice_mask": ((place > 6) & (place < 25)).astype("int32")}
        scores = head(model, "classifier", LabelHead(1, name="classifier"), model(marked)["pooled"])
        close(scores[:, 0], expected.logits[0])


@parity
def test_windows_of_another_count_and_odd_ones_are_refused(tmp_path):
    make("LongformerModel", COMMON | SIZES[0]).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for window, message in (
        ([4, 8, 4], "window.size has 3 values, expected one per layer: 2"),
        ([4, 5], "must be even"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | {"attention_window": window}))
        with pytest.raises(InputError, match=message):
            kb.import_checkpoint(tmp_path)
