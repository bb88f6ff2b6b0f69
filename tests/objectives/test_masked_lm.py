import math

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.data import write_records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.objectives import render
from kerasbert.objectives.base import Objective
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens, masker
from kerasbert.objectives.select import select, tokens
from tests.data import corpus

TOKENIZER = corpus.tokenizer()
SPECIAL = np.array(TOKENIZER.special_ids)


def features(rows, length=64, *, step=3, epoch=0, lengths=None):
    """Pairs of random ordinary tokens with one [UNK] each; `lengths` gives the tokens of each row."""
    rng = np.random.default_rng(0)
    total = np.full(rows, length) if lengths is None else np.asarray(lengths)
    ids = rng.integers(5, TOKENIZER.size, (rows, length))
    ids[:, 0], ids[:, 2] = TOKENIZER.cls_id, TOKENIZER.unk_id
    first = np.minimum(total - 2, np.maximum(4, total // 2))
    for row in range(rows):
        ids[row, first[row] - 1] = ids[row, total[row] - 1] = TOKENIZER.sep_id
        ids[row, total[row] :] = TOKENIZER.pad_id
    arrays = {
        "token_ids": ids,
        "segment_lengths": np.stack([first, total - first], 1),
        "next_label": rng.integers(0, 2, rows),
        "example": np.arange(rows)[::-1] + 1000,
        "epoch": np.full(rows, epoch),
        "row": np.arange(rows),
        "step": np.full(rows, step),
    }
    return {name: tf.constant(value, tf.int32) for name, value in arrays.items()}


def masked(given, settings=None, seed=1):
    batch = mask_tokens(given, settings or MaskedLM(), tokenizer=TOKENIZER, seed=seed)
    return {name: value.numpy() for name, value in batch.items()}


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], name)


def test_a_batch_by_hand():
    given = {
        "token_ids": tf.constant([[2, 10, 11, 3, 12, 3, 0, 0]]),
        "segment_lengths": tf.constant([[4, 2]]),
        "next_label": tf.constant([1]),
        **{name: tf.constant([7]) for name in ("example", "epoch", "row", "step")},
    }
    batch = masked(given, MaskedLM(rate=0.9, mask=1.0, random=0.0, predictions=4))
    # round(0.9 * 6) = 5 is more than P = 4 and than the three tokens that are not special: those are all taken.
    assert batch["token_ids"].tolist() == [[2, 4, 4, 3, 4, 3, 0, 0]]
    assert batch["padding_mask"].tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]]
    assert batch["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0]]
    found = zip(batch["mlm_positions"][0], batch["mlm_labels"][0], batch["mlm_weights"][0])
    assert sorted(found) == [(0, 0, 0.0), (1, 10, 1.0), (2, 11, 1.0), (4, 12, 1.0)]
    assert batch["next_label"].tolist() == [1]
    assert batch["row"].tolist() == [7]


def test_shapes_and_dtypes():
    batch = masked(features(3))
    assert {name: (value.dtype.name, value.shape) for name, value in batch.items()} == {
        **dict.fromkeys(("token_ids", "padding_mask", "segment_ids"), ("int32", (3, 64))),
        **dict.fromkeys(("mlm_positions", "mlm_labels"), ("int32", (3, 10))),
        "mlm_weights": ("float32", (3, 10)),
        **dict.fromkeys(("next_label", "row"), ("int32", (3,))),
    }


def test_records_without_pairs_have_no_next_label():
    given = features(2)
    del given["next_label"]
    assert "next_label" not in masked(given)


def test_relations_of_labels_positions_and_tokens():
    lengths = np.random.default_rng(1).integers(8, 65, 300)
    given = features(300, lengths=lengths)
    batch = masked(given)
    ids = given["token_ids"].numpy()
    for row in range(300):
        chosen = batch["mlm_weights"][row] == 1
        positions = batch["mlm_positions"][row]
        assert chosen.sum() == min(10, max(1, round(0.15 * lengths[row])))
        assert len(set(positions[chosen])) == chosen.sum()
        np.testing.assert_array_equal(batch["mlm_labels"][row][chosen], ids[row, positions[chosen]])
        assert not np.isin(batch["mlm_labels"][row][chosen], SPECIAL).any()
        assert (positions[~chosen] == 0).all()
        assert (batch["mlm_labels"][row][~chosen] == 0).all()
        untouched = np.setdiff1d(np.arange(64), positions[chosen])
        np.testing.assert_array_equal(batch["token_ids"][row][untouched], ids[row][untouched])


def test_rows_that_hold_special_tokens_only_get_no_prediction():
    given = features(2)
    given["token_ids"] = tf.constant([[2] + [1] * 62 + [3]] * 2)
    batch = masked(given)
    assert batch["mlm_weights"].sum() == 0
    np.testing.assert_array_equal(batch["token_ids"], given["token_ids"])


@pytest.mark.parametrize("length", [3, 20, 64, 100, 512])
def test_counts_are_those_of_berts_code(length):
    settings = MaskedLM()
    assert settings.width(length) == math.ceil(round(0.15 * length, 6))
    expected = [min(settings.width(length), max(1, round(tokens * 0.15))) for tokens in range(length + 1)]
    assert settings.prediction_counts(length).tolist() == expected
    assert MaskedLM(predictions=7).width(length) == min(7, length)


def test_rates_of_80_10_10_are_within_3_sigma():
    given = features(4000)
    batch = masked(given)
    chosen = batch["mlm_weights"] == 1
    seen = np.take_along_axis(batch["token_ids"], batch["mlm_positions"], 1)[chosen]
    labels = batch["mlm_labels"][chosen]
    n = len(labels)
    assert n == 4000 * 10
    ordinary = TOKENIZER.size - len(SPECIAL)
    for share, expected in (
        ((seen == TOKENIZER.mask_id).mean(), 0.8),
        ((seen == labels).mean(), 0.1 + 0.1 / ordinary),
        (((seen != labels) & (seen != TOKENIZER.mask_id)).mean(), 0.1 * (1 - 1 / ordinary)),
    ):
        assert abs(share - expected) < 3 * (expected * (1 - expected) / n) ** 0.5
    others = seen[(seen != labels) & (seen != TOKENIZER.mask_id)]
    assert not np.isin(others, SPECIAL).any()
    counts = np.bincount(others, minlength=TOKENIZER.size)[5:]
    mean = counts.mean()
    chi_square = ((counts - mean) ** 2 / mean).sum()
    assert abs(chi_square - (ordinary - 1)) < 3 * (2 * (ordinary - 1)) ** 0.5  # uniform over the ordinary tokens


def test_every_position_and_every_pair_of_positions_is_as_likely():
    given = features(4000)
    batch = masked(given)
    hits = np.zeros((4000, 64), bool)
    np.put_along_axis(hits, batch["mlm_positions"], True, 1)
    eligible = np.setdiff1d(np.arange(64), [0, 2, 31, 63])
    assert hits.sum() == hits[:, eligible].sum() == 4000 * 10
    hits = hits[:, eligible].astype(float)
    m, p = len(eligible), 10 / len(eligible)
    z = (hits.mean(0) - p) / (p * (1 - p) / 4000) ** 0.5
    assert np.abs(z).max() < 4  # 60 of them
    assert abs((z**2).sum() / (m - 1) - 1) < 3 * (2 / (m - 1)) ** 0.5
    pairs = hits.T @ hits / 4000
    expected = 10 / m * 9 / (m - 1)
    z = (pairs[np.triu_indices(m, 1)] - expected) / (expected * (1 - expected) / 4000) ** 0.5
    assert abs((z**2).mean() - 1) < 0.15


def test_masks_of_rows_steps_and_seeds_are_independent():
    """Two masks of 10 of 60 positions share 10 * 10 / 60 positions on average."""
    given = features(2000)

    def hits(batch):
        table = np.zeros((2000, 64))
        np.put_along_axis(table, batch["mlm_positions"], 1, 1)
        return table

    one = hits(masked(given))
    rows = np.roll(one, 1, axis=0)
    steps = hits(masked(given | {"step": given["step"] + 1}))
    seeds = hits(masked(given, seed=2))
    m, n = 60, 10
    variance = n * (n / m) * (1 - n / m) * (m - n) / (m - 1)  # hypergeometric
    for other in (rows, steps, seeds):
        shared = (one * other).sum(1)
        assert abs(shared.mean() - n * n / m) < 3 * (variance / 2000) ** 0.5
        assert abs(shared.var() / variance - 1) < 0.15


def test_dynamic_masks_change_with_the_step_and_are_repeatable():
    given = features(8)
    assert_same(masked(given), masked(given))
    later = masked(given | {"step": given["step"] + 1})
    assert (later["mlm_positions"] != masked(given)["mlm_positions"]).any(1).all()
    # Neither the example nor the epoch counts.
    assert_same(masked(given | {"epoch": given["epoch"] + 1, "example": given["example"] + 5}), masked(given))


def test_static_masks_return_every_d_epochs_wherever_the_example_stands():
    settings = MaskedLM(static=3)
    by_epoch = [masked(features(8, epoch=epoch), settings) for epoch in range(6)]
    for epoch in range(3):
        assert_same(by_epoch[epoch], by_epoch[epoch + 3])
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert (by_epoch[one]["mlm_positions"] != by_epoch[two]["mlm_positions"]).any(1).all()
    moved = {name: value[::-1] for name, value in features(8, step=50).items()}
    there = masked(moved, settings)
    np.testing.assert_array_equal(there["token_ids"][::-1], by_epoch[0]["token_ids"])


@pytest.mark.parametrize("pieces", [2, 4, 16])
def test_a_batch_may_be_split_before_or_after_masking(pieces):
    given = features(16, lengths=np.random.default_rng(2).integers(8, 65, 16))
    parts = [masked({name: value[begin::pieces] for name, value in given.items()}) for begin in range(pieces)]
    whole = masked(given)
    for begin, part in enumerate(parts):
        assert_same(part, {name: value[begin::pieces] for name, value in whole.items()})


def test_it_runs_in_a_pipeline_with_the_same_result(tmp_path):
    source = corpus.write(tmp_path / "a.txt", corpus.documents(60))
    records = write_records([source], TOKENIZER, tmp_path / "out", length=32)
    plain = records.dataset(16, seed=1).take(3)
    piped = plain.map(masker(MaskedLM(), tokenizer=TOKENIZER, seed=5), num_parallel_calls=2)
    for one, two in zip(plain, piped, strict=True):
        assert_same(masked(one, seed=5), {name: value.numpy() for name, value in two.items()})
    assert all(spec.shape.is_fully_defined() for spec in tf.nest.flatten(piped.element_spec))


def test_the_unigram_baseline_is_that_of_the_maskable_tokens(tmp_path):
    source = corpus.write(tmp_path / "a.txt", corpus.documents(60))
    records = write_records([source], TOKENIZER, tmp_path / "out", length=32, packing="full", shards=2)
    ids = np.concatenate([records.rows(shard)[:, :32].ravel() for shard in records.shards])
    counts = np.unique(ids[~np.isin(ids, SPECIAL)], return_counts=True)[1]
    share = counts / counts.sum()
    baseline = Objective.baseline(records)
    assert baseline["entropy"] == pytest.approx(-(share * np.log(share)).sum(), abs=1e-6)
    assert baseline["accuracy"] == pytest.approx(share.max(), abs=1e-6)


def test_select_tokens_takes_all_where_there_are_fewer():
    eligible = tf.constant([[False, True, False, True, False], [False] * 5, [True] * 5])
    positions, chosen, _ = tokens(random.key(1, np.arange(3)), eligible, tf.constant([3, 2, 0]), 3)
    assert positions.numpy()[0][chosen.numpy()[0]].tolist() == [1, 3]
    assert chosen.numpy().sum(1).tolist() == [2, 0, 0]
    for row in positions.numpy():
        assert (np.diff(row) > 0).all()


def test_render_takes_and_adds():
    ids = tf.constant([[1, 2, 3], [4, 5, 6]])
    positions = tf.constant([[2, 0], [1, 2]])
    assert render.take(ids, positions).numpy().tolist() == [[3, 1], [5, 6]]
    assert render.add(ids, positions, tf.constant([[6, 7], [2, 0]])).numpy().tolist() == [[8, 2, 9], [4, 7, 6]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0.0}, r"masking rate 0\.0, expected a share between 0 and 1"),
        ({"mask": 0.9, "random": 0.2}, r"mask 0\.9 and random 0\.2, expected shares whose sum is at most 1"),
        ({"static": 0}, "static 0, expected None or a number of mask sets"),
        ({"predictions": 0}, "predictions 0, expected at least 1"),
        ({"select": "token"}, r"no select function 'token'\. Nearest: 'tokens'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        MaskedLM(**settings)


def test_select_by_name():
    assert select("tokens") is tokens
