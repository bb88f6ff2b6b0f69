"""StructBERT: shuffled trigrams, and what is asked of them."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.directory import save_model
from kerasbert.layers import random
from kerasbert.models.structbert import STRUCTBERT, StructBertPretraining
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens
from kerasbert.objectives.shuffle import shuffle
from tests import tiny
from tests.data import corpus

TOKENIZER = corpus.tokenizer()


@pytest.fixture(scope="module")
def program():
    keras.utils.set_random_seed(1)
    small = {"embeddings.vocabulary": TOKENIZER.size, "embeddings.positions": 64, "initializer": 0.3, "dropout": 0.0}
    encoder = STRUCTBERT.encoder(STRUCTBERT.spec.derive(tiny.SPEC | small))
    encoder.build()
    return StructBertPretraining(encoder, TOKENIZER, features=["place_label"], seed=3)


def rows(count=300, length=64):
    rng = np.random.default_rng(0)
    ids = rng.permuted(np.tile(np.arange(5, 5 + length), (count, 1)), axis=1)  # every token of a row is another
    total = rng.integers(8, length + 1, count)
    first = total // 2
    ids[:, 0] = 2
    for row in range(count):
        ids[row, first[row] - 1] = ids[row, total[row] - 1] = 3
        ids[row, total[row] :] = 0
    given = {
        "token_ids": ids,
        "segment_lengths": np.stack([first, total - first], 1),
        "place_label": rng.integers(0, 3, count),
        **{name: np.arange(count) for name in ("example", "epoch", "row", "step")},
    }
    return {name: tf.constant(value, tf.int32) for name, value in given.items()}


def test_shuffled_by_hand():
    ids = np.tile([2, 10, 11, 12, 3, 0, 0, 0], (300, 1)).astype("int32")
    eligible, count, key = np.isin(ids, [10, 11, 12]), np.full(300, 1, "int32"), random.key(1, np.arange(300))
    new, positions, labels, chosen = (
        x.numpy() for x in shuffle(key, tf.constant(ids), tf.constant(eligible), count, 2)
    )
    seen = set()
    for row in range(300):
        if chosen[row].any():  # the grid may cut the only trigram
            assert positions[row][chosen[row]].tolist() == [1, 2, 3]
            assert labels[row][chosen[row]].tolist() == [10, 11, 12]
            seen.add(tuple(new[row][1:4].tolist()))
        assert new[row][[0, 4, 5, 6, 7]].tolist() == [2, 3, 0, 0, 0]
    assert seen == set(itertools.permutations([10, 11, 12]))


def test_relations(program):
    given = rows()
    batch = {name: value.numpy() for name, value in program.prepare(given).items()}
    masked = {k: v.numpy() for k, v in mask_tokens(given, MaskedLM(), tokenizer=TOKENIZER, seed=3).items()}
    ids, total = given["token_ids"].numpy(), given["segment_lengths"].numpy().sum(1)
    for name in ("mlm_positions", "mlm_labels", "mlm_weights", "padding_mask", "segment_ids"):
        np.testing.assert_array_equal(batch[name], masked[name])
    full = 0
    for row in range(300):
        chosen = batch["wso_weights"][row] == 1
        positions = batch["wso_positions"][row][chosen]
        budget = round(0.05 * total[row])
        assert len(positions) in range(0, 3 * budget + 1, 3)
        full += len(positions) == 3 * budget
        assert len(set(positions.tolist())) == len(positions)
        assert not set(positions.tolist()) & set(batch["mlm_positions"][row][batch["mlm_weights"][row] == 1].tolist())
        np.testing.assert_array_equal(batch["wso_labels"][row][chosen], ids[row][positions])
        assert not np.isin(ids[row][positions], TOKENIZER.special_ids).any()
        for trigram in positions.reshape(-1, 3):
            assert trigram.tolist() == list(range(trigram[0], trigram[0] + 3))
            assert sorted(batch["token_ids"][row][trigram]) == sorted(ids[row][trigram])
        rest = np.setdiff1d(np.arange(64), positions)
        np.testing.assert_array_equal(batch["token_ids"][row][rest], masked["token_ids"][row][rest])
    assert full > 250


def test_the_six_orders_are_as_likely(program):
    given = rows(3000)
    batch = {name: value.numpy() for name, value in program.prepare(given).items()}
    chosen = batch["wso_weights"] == 1
    seen = np.take_along_axis(batch["token_ids"], batch["wso_positions"], 1)[chosen].reshape(-1, 3)
    was = batch["wso_labels"][chosen].reshape(-1, 3)
    orders = [np.flatnonzero((seen == was[:, list(order)]).all(1)) for order in itertools.permutations(range(3))]
    counts = np.array([len(order) for order in orders])
    assert counts.sum() == len(was)
    assert len(was) > 4000
    assert np.abs(counts - len(was) / 6).max() < 3.5 * (len(was) * 5 / 36) ** 0.5


def test_rows_are_their_own(program):
    given = rows(16)
    whole = program.prepare(given)
    part = program.prepare({name: value[3::4] for name, value in given.items()})
    for name, value in part.items():
        np.testing.assert_array_equal(value, whole[name][3::4], name)


def test_losses_and_counts(program):
    assert program.packing == "place"
    assert program.scales == {"mlm": 1.0, "place": 1.0, "wso": 1.0}
    batch = program.prepare(rows(8))
    assert batch["token_ids"].dtype == batch["wso_positions"].dtype == tf.int32
    sums, counts = program.losses(batch, training=False), program.counts(batch)
    assert {name.split("/")[0] for name in sums} == set(counts) == {"mlm", "place", "wso"}
    assert float(counts["wso"]) == float(tf.reduce_sum(batch["wso_weights"]))
    outputs = program.model(batch)
    assert outputs["place_logits"].shape == (8, 3)
    # the token head of masked LM, at the shuffled places
    expected = program.model.tokens(outputs["sequence"], batch["wso_positions"])
    np.testing.assert_array_equal(outputs["wso_logits"], expected)
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["wso_labels"], expected) * batch["wso_weights"]
    assert float(sums["wso"]) == pytest.approx(float(tf.reduce_sum(nats)), rel=1e-5)


def test_the_answer_of_three_is_left_out_on_export(program, tmp_path):
    save_model(tmp_path / "run", encoder=program.model.encoder, name="structbert/base", heads=program.model.heads)
    ours = read_tensors(tmp_path / "run").names()
    assert {name.split("/")[1] for name in ours if name.startswith("heads/")} == {"mlm", "place"}
    kb.export_checkpoint(tmp_path / "run", tmp_path / "hf")
    kb.import_checkpoint(tmp_path / "hf", model="structbert", out=tmp_path / "back")
    assert set(read_tensors(tmp_path / "back").names()) == {name for name in ours if "/place/" not in name}
