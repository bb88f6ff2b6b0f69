"""T5's encoder alone against transformers: hidden states, labels of words, in and out; which checkpoints are read as it."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.errors import InputError
from kerasbert.tasks.predict import task_logits
from tests.checkpoints.test_parity_generate import RELATIVE, T5_SIZES
from tests.checkpoints.theirs import close, make, parity, run, same_after_export

CASES = [T5_SIZES[0] | RELATIVE[1], T5_SIZES[2] | {"feed_forward_proj": "gated-gelu"}]


def batch(vocabulary):
    ids = np.random.default_rng(0).integers(3, vocabulary, (3, 12)).astype("int32")
    return {"token_ids": ids, "padding_mask": (np.arange(12) < np.array([12, 9, 5])[:, None]).astype("int32")}


@parity
@pytest.mark.parametrize(
    ("family", "config"),
    [("T5", CASES[0]), ("T5", CASES[1]), ("MT5", CASES[0]), ("UMT5", T5_SIZES[2])],
)
def test_hidden_states_and_back_again(family, config, tmp_path):
    their, inputs = make(f"{family}EncoderModel", config), batch(config["vocab_size"])
    ours, real = same_after_export(their, inputs, tmp_path), inputs["padding_mask"].astype(bool)
    assert kb.load(tmp_path / "ours").model_name.startswith(f"{family.lower()}-encoder")
    expected, got = run(their, inputs, output_hidden_states=True), ours(inputs)
    for one, other in zip(got["hidden"], expected.hidden_states, strict=True):
        close(np.asarray(one)[real], other[real])


@parity
@pytest.mark.parametrize("family", ["T5", "UMT5"])
def test_labels_of_words(family, tmp_path):
    their, inputs = make(f"{family}ForTokenClassification", CASES[0] | {"num_labels": 3}), batch(61)
    same_after_export(their, inputs, tmp_path)
    model, real = kb.load(tmp_path / "ours"), inputs["padding_mask"].astype(bool)
    assert model.task.kind == "tags"
    close(np.asarray(task_logits(model, inputs))[real], run(their, inputs).logits[real])


@parity
def test_two_stacks_are_still_t5s(tmp_path):
    make("T5ForConditionalGeneration", CASES[0]).save_pretrained(tmp_path)
    assert registry.family_of(kb.import_checkpoint(tmp_path)).name == "t5"
    with pytest.raises(InputError, match="does not fit the model"):
        kb.import_checkpoint(tmp_path, model="t5-encoder")


def test_parameters_are_those_of_the_first_stack():
    # transformers' T5EncoderModel of t5-base; v1.1's three matrices of 2,048 are as many as two of 3,072
    found = registry.family("t5-encoder")
    counts = [models.parameters(found.encoder, found.size(size)) for size in ("base", "v1.1-base")]
    assert counts == [109_628_544, 109_628_544]


def test_heads_that_differ_by_layer_are_refused():
    with pytest.raises(InputError, match="attention.heads must be one number, for all layers share the distances"):
        registry.family("t5-encoder").spec.derive(
            {"attention.heads": (12, 6), "blocks.layers": 2, "attention.head_size": 64}
        )
