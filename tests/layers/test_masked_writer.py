"""An encoder that writes at [MASK]s: who sees whom, a step is a training row's, what a prediction reads. UniLM, s2s-ft."""

import numpy as np
import pytest
from keras import ops

import kerasbert as kb
from kerasbert import registry
from kerasbert.layers import heads
from kerasbert.layers.masked_writer import MaskedWriter, segment_ids, visible, writes_at_masks
from kerasbert.testing import battery
from tests import tiny

BEGINS, COUNT = np.array([4, 6, 3], "int32"), 5  # where the targets begin, tokens of a target


def writer(name: str) -> MaskedWriter:
    """A tiny encoder and its head of tokens, every weight N(0, 0.3)."""
    family = registry.family(name)
    size = next(iter(family.sizes))
    encoder = kb.build(f"{name}/{size}", **battery.tiny(family.size(size), 60, 48))
    encoder.tokenizer = tiny.tokenizer()
    head = heads.token_head(encoder.token_head, encoder.spec)
    head.build((None, None, encoder.spec.hidden))
    draw = np.random.default_rng(0)
    for weight in (*encoder.weights, *head.weights):
        weight.assign(draw.normal(size=weight.shape) * 0.3)
    return MaskedWriter(encoder, head)


def rows(seed: int = 1) -> dict:
    """Three rows of source and target, the last places padded, with the [MASK]s of their targets."""
    ids = np.random.default_rng(seed).integers(5, 60, (3, 12)).astype("int32")
    real = (np.arange(12)[None] < BEGINS[:, None] + COUNT).astype("int32")
    masks = np.full((3, COUNT), tiny.tokenizer().mask_id, "int32")
    return {"token_ids": ids, "padding_mask": real, "target_place": BEGINS, "decoder_token_ids": masks}


def logits(model: MaskedWriter, inputs: dict) -> np.ndarray:
    return np.asarray(model.logits(model(inputs)["sequence"]))


def test_who_sees_whom_by_hand():
    """A source of two, a target of two and a padded place; behind them their [MASK]s."""
    place, masks = np.arange(5)[None], np.arange(2)[None]
    found = np.asarray(visible(np.array([[2]]), place, masks, np.array([[1, 1, 1, 1, 0]]))).astype(int)
    assert found.tolist() == [
        [
            [1, 1, 0, 0, 0, 0, 0],  # of the source the source
            [1, 1, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0, 0],  # of the target the source, and what has been written
            [1, 1, 1, 1, 0, 0, 0],
            [1, 1, 1, 1, 0, 0, 0],
            [1, 1, 0, 0, 0, 1, 0],  # the first [MASK]: the source, and itself
            [1, 1, 1, 0, 0, 0, 1],
        ]
    ]


@pytest.mark.parametrize("name", ["unilm", "roberta", "albert"])
def test_a_step_is_what_is_learnt_at_its_place(name):
    """From prompts of all lengths at once, token after token, with what the cache holds."""
    model, inputs = writer(name), rows()
    whole, ids = logits(model, inputs), inputs["token_ids"]
    prompt = {"token_ids": ids[:, :6], "padding_mask": (np.arange(6)[None] < BEGINS[:, None]).astype("int32")}
    state = model.start(prompt, 6 + COUNT)
    for t in range(COUNT):
        found, state = model.step(ids[np.arange(3), BEGINS - 1 + t], BEGINS - 1 + t, state)
        assert battery.relative(found, whole[:, t]) < 1e-5


def test_a_prediction_reads_the_source_and_what_was_written_and_nothing_else():
    model, inputs = writer("unilm"), rows()
    whole = logits(model, inputs)
    for place in range(12):
        other = inputs | {"token_ids": inputs["token_ids"].copy()}
        other["token_ids"][:, place] += 1
        changed = np.abs(logits(model, other) - whole).max(axis=2)  # [3, T]
        for row, begin in enumerate(BEGINS):
            seen = place < begin + np.arange(COUNT)
            assert (changed[row, seen] > 1e-3).all(), (row, place)
            assert (changed[row, ~seen] == 0).all(), (row, place)


def test_a_prediction_reads_no_other_mask():
    model, inputs = writer("bert"), rows()
    whole = logits(model, inputs)
    other = inputs | {"decoder_token_ids": inputs["decoder_token_ids"].copy()}
    other["decoder_token_ids"][:, 2] = 9
    changed = np.abs(logits(model, other) - whole).max(axis=(0, 2))
    assert (changed > 0).tolist() == [False, False, True, False, False]


def test_segments_are_unilms_or_berts():
    assert np.asarray(segment_ids(ops.array([0, 1, 2, 3, 4, 5]), 6)).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.asarray(segment_ids(ops.array([4, 5]), 2)).tolist() == [0, 1]
    assert np.asarray(segment_ids(ops.array([4, 5]), 0)).tolist() == [0, 0]
    model, inputs = writer("unilm"), rows()
    whole, table = logits(model, inputs), model.encoder.embeddings.segments.table
    for segment in range(6):
        kept = table.numpy()
        table.assign(kept + np.outer(np.arange(6) == segment, np.arange(kept.shape[1])))
        assert (np.abs(logits(model, inputs) - whole).max() > 1e-3) == (segment in (4, 5))
        table.assign(kept)


def test_which_encoders_write():
    found = {name for name, family in registry.families().items() if writes_at_masks(family.encoder)}
    encoders = {name for name, family in registry.families().items() if family.kind == "encoder"}
    assert {
        "bert",
        "albert",
        "distilbert",
        "electra",
        "roberta",
        "xlm-roberta",
        "spanbert",
        "unilm",
    } <= found & encoders
    # relative positions, trees, windows, neighbouring tokens, no attention
    assert not {"deberta", "nezha", "xlnet", "kbert", "longformer", "mobilebert", "elmo", "average", "t5"} & found


def test_rows_longer_than_the_positions_are_refused():
    model = writer("bert")
    assert model.spec.embeddings.positions == 32
    with pytest.raises(ValueError, match="token_ids has length 33, expected at most 32"):
        model.start({"token_ids": np.ones((1, 33), "int32")}, 40)
