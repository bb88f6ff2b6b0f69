"""UniLM: the mix of language models, what each mask hides, what the records must hold."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert import models, registry
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.models.unilm import (
    BIDIRECTIONAL,
    LEFT_TO_RIGHT,
    RIGHT_TO_LEFT,
    SEQ2SEQ,
    TOKEN_NGRAMS,
    UNILM,
    UniLMPretraining,
    token_ngrams,
)
from tests import tiny
from tests.data import corpus

TOKENIZER = corpus.tokenizer()
MODES = (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ)
SEGMENTS = {BIDIRECTIONAL: (0, 1), LEFT_TO_RIGHT: (2, 2), RIGHT_TO_LEFT: (3, 3), SEQ2SEQ: (4, 5)}


@pytest.fixture(scope="module")
def program():
    keras.utils.set_random_seed(1)
    small = {"embeddings.vocabulary": TOKENIZER.size, "embeddings.positions": 16, "initializer": 0.3, "dropout": 0.0}
    encoder = UNILM.encoder(UNILM.spec.derive(tiny.SPEC | small | {"blocks.layers": 2}))
    encoder.build()
    return UniLMPretraining(encoder, TOKENIZER, features=["next_label"], seed=3)


def rows(count: int, length: int = 12) -> dict:
    """Pairs of 8 to `length` tokens, of which half follow one another."""
    draw = np.random.default_rng(0)
    ids, total = draw.integers(5, TOKENIZER.size, (count, length)), draw.integers(8, length + 1, count)
    first = total // 2
    ids[:, 0] = TOKENIZER.cls_id
    for row in range(count):
        ids[row, first[row] - 1] = ids[row, total[row] - 1] = TOKENIZER.sep_id
        ids[row, total[row] :] = TOKENIZER.pad_id
    numbers = {name: np.arange(count) for name in ("example", "epoch", "row", "step")}
    lengths = {"segment_lengths": np.stack([first, total - first], 1), "next_label": draw.integers(0, 2, count)}
    return {name: tf.constant(value, tf.int32) for name, value in {"token_ids": ids, **lengths, **numbers}.items()}


def of_modes(features: dict, batch: dict) -> np.ndarray:
    """The language model of each row, by the segment of its first token."""
    first = {of[0]: mode for mode, of in SEGMENTS.items()}
    return np.array([first[int(segment)] for segment in batch["segment_ids"][:, 0]])


def wanted(mode: int, first: int, total: int) -> np.ndarray:
    """Who sees whom among the real tokens, of the paper's figure 1: bool [total, total]."""
    query, key = np.indices((total, total))
    return {
        BIDIRECTIONAL: np.ones((total, total), bool),
        LEFT_TO_RIGHT: key <= query,
        RIGHT_TO_LEFT: key >= query,
        SEQ2SEQ: (key < first) | ((query >= first) & (key <= query)),
    }[mode]


def test_the_shares_are_the_papers(program):
    """A third bidirectional, a third sequence-to-sequence, a sixth each left-to-right and right-to-left: within 3 sigma."""
    features = rows(6000)
    batch = program.prepare(features)
    mode, follows = of_modes(features, batch), np.asarray(features["next_label"]) == 0
    for number, share in ((BIDIRECTIONAL, 1 / 3), (SEQ2SEQ, 1 / 3), (LEFT_TO_RIGHT, 1 / 6), (RIGHT_TO_LEFT, 1 / 6)):
        assert abs((mode == number).mean() - share) < 3 * np.sqrt(share * (1 - share) / 6000)
    assert follows[mode == SEQ2SEQ].all()
    assert abs(follows[mode == BIDIRECTIONAL].mean() - 0.5) < 3 * 0.5 / np.sqrt(2000)
    np.testing.assert_array_equal(batch["pair_weights"], mode == BIDIRECTIONAL)
    assert float(program.counts(batch)["nsp"]) == (mode == BIDIRECTIONAL).sum()


def test_the_ranges_are_the_papers_masks(program):
    features = rows(200)
    batch = {name: np.asarray(value) for name, value in program.prepare(features).items()}
    mode, place = of_modes(features, batch), np.arange(12)
    for row, (first, second) in enumerate(np.asarray(features["segment_lengths"])):
        total = first + second
        seen = (place >= batch["first_seen"][row, :, None]) & (place <= batch["last_seen"][row, :, None])
        np.testing.assert_array_equal(seen[:total, :total], wanted(mode[row], first, total))
        one, two = SEGMENTS[mode[row]]
        assert batch["segment_ids"][row].tolist() == [one] * first + [two] * second + [0] * (12 - total)


@pytest.mark.parametrize("mode", MODES, ids=["bidirectional", "left-to-right", "right-to-left", "sequence-to-sequence"])
def test_no_prediction_changes_by_what_its_mask_hides_and_each_by_what_it_sees(program, mode):
    """To the bit, through two layers: every token of a row in turn is another one."""
    features = rows(60)
    batch = {name: np.asarray(value) for name, value in program.prepare(features).items()}
    row = np.flatnonzero((of_modes(features, batch) == mode) & (batch["padding_mask"].sum(axis=1) < 12))[0]
    first, second = np.asarray(features["segment_lengths"])[row]
    total, every = first + second, np.arange(12)
    one = {name: np.repeat(value[row : row + 1], 12, axis=0) for name, value in batch.items()}
    one["mlm_positions"] = np.repeat(every[None], 12, axis=0).astype("int32")
    other = one | {"token_ids": one["token_ids"].copy()}
    other["token_ids"][every, every] = (other["token_ids"][every, every] + 1) % TOKENIZER.size
    both = [np.asarray(program.model(each)["mlm_logits"]) for each in (one, other)]
    changed = np.abs(both[0] - both[1]).max(axis=2).T[:total]  # [query, key]
    seen = np.zeros((total, 12), bool)
    seen[:, :total] = wanted(mode, first, total)
    assert (changed[~seen] == 0).all()
    assert (changed[seen] > 1e-4).all()


def test_choices_are_of_one_two_and_three_tokens():
    """80, 10 and 10% of one, two and three, of tokens that nothing else divides."""
    eligible = tf.ones((400, 200), tf.bool)
    count = tf.fill([400], 30)
    _, chosen, first = (np.asarray(x) for x in token_ngrams(random.key(1, np.arange(400)), eligible, count, 30))
    assert chosen.all()
    sizes = np.concatenate([np.bincount(row)[np.unique(row)] for row in first])
    shares = np.bincount(sizes, minlength=4)[1:] / len(sizes)
    np.testing.assert_allclose(shares, TOKEN_NGRAMS, atol=3 * np.sqrt(0.16 / len(sizes)) + 0.01)


def test_records_without_pairs_are_refused(tmp_path):
    records = Records(tiny.records(tmp_path, packing="full"))
    with pytest.raises(InputError, match="hold no pairs of which some follow one another.*--packing pairs"):
        UniLMPretraining.check(UniLMPretraining.settings_for(UNILM.spec), records)


def test_encoders_that_decide_who_sees_whom_are_refused():
    spec = registry.find("nezha/base")[1].derive(tiny.SPEC)
    encoder = registry.family("nezha").encoder(spec)
    encoder.build()
    with pytest.raises(
        InputError, match="Nezha decides by itself who sees whom, and this objective does: choose another"
    ):
        UniLMPretraining(encoder, TOKENIZER)


def test_parameters_are_berts_and_four_segments_more():
    for size, bert in (("base", "bert/base-cased"), ("large", "bert/large-cased")):
        family, spec = registry.find(bert)
        wanted = models.parameters(family.encoder, spec) + 4 * spec.hidden
        assert models.parameters(UNILM.encoder, UNILM.size(size)) == wanted
