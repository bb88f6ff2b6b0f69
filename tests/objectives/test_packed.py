"""Packed rows: their pieces do not see each other, so each is what it is alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.data import write_records
from kerasbert.layers import visibility
from kerasbert.models.bert import Encoder
from kerasbert.objectives.base import cross_entropy
from kerasbert.objectives.bert import BertPretraining
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens
from kerasbert.spec import Spec
from tests import tiny
from tests.data import corpus

TOKENIZER = corpus.tokenizer()


def features(ids, total, pieces):
    rows = len(ids)
    given = {
        "token_ids": ids,
        "segment_lengths": np.stack([total, np.zeros_like(total)], 1),
        "pieces": pieces,
        **{name: np.arange(rows) for name in ("example", "epoch", "row", "step")},
    }
    return {name: tf.constant(value, tf.int32) for name, value in given.items()}


def test_numbers_and_places_by_hand():
    ids = np.array([[2, 9, 3, 2, 9, 9, 3, 0], [2, 9, 9, 9, 9, 9, 9, 3]])
    batch = mask_tokens(features(ids, np.array([7, 8]), np.array([2, 1])), MaskedLM(), tokenizer=TOKENIZER, seed=0)
    assert batch["packed_ids"].numpy().tolist() == [[1, 1, 1, 2, 2, 2, 2, 0], [1] * 8]
    assert batch["position_ids"].numpy().tolist() == [[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 5, 6, 7]]
    assert batch["packed_ids"].dtype == batch["position_ids"].dtype == tf.int32


def test_visibility_by_hand():
    seen = np.asarray(visibility.packed(np.array([[1, 1, 2, 0]])))[0].astype(int)
    assert seen.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.fixture(scope="module")
def program():
    keras.utils.set_random_seed(1)
    small = {"embeddings.vocabulary": TOKENIZER.size, "initializer": 0.3, "dropout": 0.0}
    encoder = Encoder(Spec().derive(tiny.SPEC | small))
    encoder.build()
    return BertPretraining(encoder, TOKENIZER)


def test_the_loss_of_a_packed_row_is_that_of_its_pieces_alone(program, tmp_path):
    source = corpus.write(tmp_path / "a.txt", corpus.documents(40, segments=(1, 3), words=(2, 5)))
    records = write_records([source], TOKENIZER, tmp_path / "out", length=32, packing="packed")
    assert records.features == {"token_ids": (32,), "segment_lengths": (2,), "pieces": ()}
    batch = program.prepare(next(iter(records.dataset(16, seed=1))))
    losses = np.asarray(cross_entropy(program.model(batch)["mlm_logits"], batch["mlm_labels"]))
    batch = {name: value.numpy() for name, value in batch.items()}
    assert batch["packed_ids"].max() > 2
    compared = 0
    for row in range(16):
        for piece in range(1, batch["packed_ids"][row].max() + 1):
            (places,) = np.nonzero(batch["packed_ids"][row] == piece)
            chosen = (batch["mlm_weights"][row] == 1) & np.isin(batch["mlm_positions"][row], places)
            if not chosen.any():
                continue
            alone = {
                "token_ids": batch["token_ids"][row : row + 1, places],
                "padding_mask": np.ones((1, len(places)), "int32"),
                "mlm_positions": batch["mlm_positions"][row : row + 1, chosen] - places[0],
            }
            labels = batch["mlm_labels"][row : row + 1, chosen]
            expected = np.asarray(cross_entropy(program.model(alone)["mlm_logits"], labels))[0]
            np.testing.assert_allclose(losses[row, chosen], expected, atol=1e-5)
            compared += chosen.sum()
    assert compared == batch["mlm_weights"].sum()


def test_without_the_numbers_the_pieces_would_see_each_other(program):
    ids = np.array([[2, 9, 8, 3, 2, 7, 6, 3]])
    batch = mask_tokens(features(ids, np.array([8]), np.array([2])), MaskedLM(), tokenizer=TOKENIZER, seed=0)
    apart = program.model(batch)["mlm_logits"]
    together = program.model({name: value for name, value in batch.items() if name != "packed_ids"})["mlm_logits"]
    assert np.abs(np.asarray(apart) - np.asarray(together)).max() > 1e-3


@pytest.mark.slow
def test_packed_records_train(tmp_path):
    import kerasbert as kb

    settings = {"steps": 2, "batch": 8, "changes": tiny.SPEC, "strategy": "cpu", "quiet": True}
    kb.pretrain("bert/tiny", tiny.records(tmp_path, "packed"), out=tmp_path / "run", **settings)
    assert (tmp_path / "run" / "weights.safetensors").exists()
