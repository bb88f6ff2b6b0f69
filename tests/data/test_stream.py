import itertools

import numpy as np
import pytest

from kerasbert.data import stream, write_records
from kerasbert.errors import InputError
from kerasbert.objectives.masked_lm import MaskedLM, masker
from tests.data import corpus


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """About 1,500 pairs in three shards, so that each ends with a block that is not full."""
    directory = tmp_path_factory.mktemp("stream")
    source = corpus.write(directory / "a.txt", corpus.documents(250))
    return write_records([source], corpus.tokenizer(), directory / "out", length=24, shards=3)


def batches(records, count, batch=100, **settings):
    settings = {"seed": 1} | settings
    return [{k: v.numpy() for k, v in item.items()} for item in records.dataset(batch, **settings).take(count)]


def joined(items, name):
    return np.concatenate([item[name] for item in items])


@pytest.fixture(scope="module")
def run(records):
    """Batches 0, 1, ... of more than two epochs."""
    items = batches(records, 40)
    assert items[-1]["epoch"][-1] >= 2
    return items


def test_a_batch(run):
    shapes = {name: (value.dtype.name, value.shape) for name, value in run[0].items()}
    assert shapes == {
        "token_ids": ("int32", (100, 24)),
        "segment_lengths": ("int32", (100, 2)),
        **dict.fromkeys(("next_label", "example", "epoch", "row", "step"), ("int32", (100,))),
    }
    for step, item in enumerate(run):
        assert item["row"].tolist() == list(range(100))
        assert set(item["step"]) == {step}


def test_features_are_those_of_the_example(records, run):
    table = np.concatenate([records.rows(shard) for shard in records.shards]).astype(int)
    for item in run:
        rows = table[item["example"]]
        np.testing.assert_array_equal(item["token_ids"], rows[:, :24])
        np.testing.assert_array_equal(item["segment_lengths"], rows[:, 24:26])
        np.testing.assert_array_equal(item["next_label"], rows[:, 26])


def test_every_epoch_has_every_example_once(records, monkeypatch):
    monkeypatch.setattr(stream, "RUN", 1)
    monkeypatch.setattr(stream, "WINDOW", 3)  # several windows, the last one not full
    n = records.examples
    items = batches(records, -(-3 * n // 100))
    examples, epochs = joined(items, "example")[: 3 * n], joined(items, "epoch")[: 3 * n]
    assert epochs.tolist() == [0] * n + [1] * n + [2] * n  # batches run across the ends of epochs
    orders = examples.reshape(3, n)
    for order in orders:
        assert sorted(order) == list(range(n))
    assert (orders[0] != orders[1]).mean() > 0.9


def test_the_order_is_mixed_across_shards(records, run):
    """In one window every example may stand anywhere: the mean step from one to the next is a third of all."""
    order = joined(run, "example")[: records.examples].astype(float)
    steps = np.abs(np.diff(order)) / records.examples
    assert abs(steps.mean() - 1 / 3) < 3 * steps.std() / len(steps) ** 0.5


@pytest.mark.parametrize(("blocks", "window"), [(4, 16), (1, 3)])
def test_seeking_equals_running(records, run, monkeypatch, blocks, window):
    monkeypatch.setattr(stream, "RUN", blocks)
    monkeypatch.setattr(stream, "WINDOW", window)
    items = run if window == 16 else batches(records, len(run))
    for start in (9, records.examples // 100, len(run) - 2):
        for one, two in zip(items[start:], batches(records, 2, start_step=start)):
            for name in one:
                np.testing.assert_array_equal(one[name], two[name])


def test_another_seed_is_another_order(records, run):
    one, two = joined(run[:5], "example"), joined(batches(records, 5, seed=2), "example")
    assert (one != two).mean() > 0.9


def test_without_shuffle_the_order_is_the_records(records):
    order = joined(batches(records, 3, shuffle=False), "example")
    assert order.tolist() == list(range(300))


def test_a_batch_larger_than_the_records(tmp_path):
    source = corpus.write(tmp_path / "a.txt", corpus.documents(2))
    small = write_records([source], corpus.tokenizer(), tmp_path / "out", length=64, packing="full", shards=5)
    assert {shard.examples for shard in small.shards} > {0}  # most shards are empty
    item, later = batches(small, 2, batch=4 * small.examples)
    assert "next_label" not in item
    for epoch in range(4):
        assert sorted(item["example"][item["epoch"] == epoch]) == list(range(small.examples))
    np.testing.assert_array_equal(
        batches(small, 1, batch=4 * small.examples, start_step=1)[0]["example"], later["example"]
    )


def test_pieces_of_the_batch_do_not_matter(records, run):
    """Two batches of 50 hold the examples of one batch of 100."""
    whole = joined(run[:4], "example")
    halves = joined(batches(records, 8, batch=50), "example")
    np.testing.assert_array_equal(whole, halves)


def test_seeking_far_is_cheap(records, monkeypatch):
    far = batches(records, 1, start_step=10_000_019)[0]
    assert set(far["step"]) == {10_000_019}
    assert far["epoch"][0] == 10_000_019 * 100 // records.examples
    near = next(itertools.islice(iter(records.dataset(100, seed=1, start_step=10_000_000)), 19, None))
    np.testing.assert_array_equal(far["example"], near["example"].numpy())


def test_bad_arguments(records):
    with pytest.raises(InputError, match="batch 0, start_step 0, seed 1: expected batch >= 1"):
        records.dataset(0, seed=1)
    with pytest.raises(InputError, match="start_step -1"):
        records.dataset(1, seed=1, start_step=-1)


@pytest.mark.slow
def test_preparing_several_batches_at_once_gives_what_one_by_one_gives(records, monkeypatch):
    prepare = masker(MaskedLM(), tokenizer=corpus.tokenizer(), seed=3)
    single = [prepare(features) for features in records.dataset(7, seed=1, start_step=5).take(9)]
    for places in (1, 3 * 7 * records.length, stream.PLACES):
        monkeypatch.setattr(stream, "PLACES", places)
        together = list(records.dataset(7, seed=1, start_step=5, prepare=prepare).take(9))
        assert len(together) == 9
        for one, other in zip(single, together):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[name], other[name]) for name in one)
