"""Rows of texts and their batches: by hand, on rows without a tokenizer."""

import dataclasses

import numpy as np
import pytest

from kerasbert import inputs, registry
from kerasbert.tasks import batches
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import Encoded, Lengths, epoch_order, ordered_batches, training_batches


def encoded(lengths, owners=None, kind="classification"):
    rows = [inputs.row([i + 1] * length, [0] * length, length > 8) for i, length in enumerate(lengths)]
    owners = np.arange(len(rows)) if owners is None else np.array(owners)
    return Encoded(rows, owners, 0, batches.TEXT, {}, [], find(kind).answers)


def test_rows_of_texts():
    several = encoded([3, 4, 5, 6], [0, 1, 1, 2])
    assert several.texts == 3
    assert several.of() == [slice(0, 1), slice(1, 3), slice(3, 4)]
    assert several.units().tolist() == [[0], [1], [2], [3]]
    assert several.units(together=True).tolist() == [[0, 0], [1, 2], [3, 3]]
    part = several.take([2, 1])
    assert [row.length for row in part.rows] == [6, 4, 5]
    assert part.owners.tolist() == [0, 1, 1]
    assert several.length_quantiles(4) == [3, 4, 5, 6]
    step = batches.LENGTH_STEP
    assert encoded([1, step, step + 1, 2 * step]).shapes() == 2


@pytest.mark.parametrize(("lengths", "width"), [([3], 8), ([8], 8), ([9], 16), ([3, 17], 24), ([25], 30)])
def test_batches_are_as_wide_as_their_longest_row(lengths, width, monkeypatch):
    monkeypatch.setattr(batches, "LENGTH_STEP", 8)
    arrays = encoded(lengths).arrays(range(len(lengths)), 30, rows=3)
    assert arrays["token_ids"].shape == (3, width)
    assert arrays["padding_mask"].sum(1).tolist() == [
        *lengths,
        *[1] * (3 - len(lengths)),
    ]  # a row of nothing has one place
    assert (arrays["token_ids"][0] == [1] * lengths[0] + [0] * (width - lengths[0])).all()


def test_given_lengths_come_first(monkeypatch):
    monkeypatch.setattr(batches, "LENGTH_STEP", 8)
    rows = encoded([3, 4, 5, 12])
    assert rows.arrays([0], 30, lengths=(4, 12))["token_ids"].shape == (1, 4)
    assert rows.arrays([1], 30, lengths=(4, 12))["token_ids"].shape == (1, 4)
    assert rows.arrays([2], 30, lengths=(4, 12))["token_ids"].shape == (1, 12)
    assert rows.arrays([3], 30, lengths=(4, 10))["token_ids"].shape == (1, 16)


def test_an_epoch_has_each_row_once_sorted_in_windows():
    lengths = np.random.default_rng(0).integers(1, 9, 70).tolist()
    rows = encoded(lengths)
    order = epoch_order(rows, 2, 5, 0)
    assert sorted(np.concatenate(order).tolist()) == list(range(70))
    assert [len(each) for each in order].count(2) == 35
    again, other, next_epoch = epoch_order(rows, 2, 5, 0), epoch_order(rows, 2, 6, 0), epoch_order(rows, 2, 5, 1)
    assert np.array_equal(order, again)
    assert not np.array_equal(order, other)
    assert not np.array_equal(order, next_epoch)
    # neighbours in length stand together: within windows of 32 rows at most 7 of 16 batches may differ
    assert sum(lengths[a] != lengths[b] for a, b in order) <= 3 * 7
    assert rows.longest_of_batches(2, 5).tolist() == [[max(lengths[a], lengths[b])] for a, b in order]
    assert [len(each) for each in epoch_order(encoded([1, 2, 3]), 2, 0, 0)].count(1) == 1


def test_first_rows_may_have_a_length_of_their_own():
    """Two inputs of three rows, the last of which is repeated where an input has two; an input that fills up."""
    rows = encoded([2, 7, 8, 3, 6], [0, 0, 0, 1, 1], kind="vector")
    for row, place in zip(rows.rows, [0, 1, 2, 0, 1], strict=True):
        row.about = place
    task = registry.task("pairs")
    settings = {"batch": 4, "longest": 12, "seed": 0, "task": task}
    one, apart = (
        next(training_batches(rows, np.ones(2, "float32"), **settings, **how))
        for how in ({"lengths": Lengths([9])}, {"lengths": Lengths([9], [4])})
    )
    assert one["token_ids"].shape == (12, 9)
    assert apart[f"{batches.FIRST}token_ids"].shape == (4, 4)
    assert apart["token_ids"].shape == (8, 9)
    for name in ("token_ids", "padding_mask", "segment_ids"):
        of_texts = one[name].reshape(4, 3, 9)
        np.testing.assert_array_equal(apart[f"{batches.FIRST}{name}"], of_texts[:, 0, :4])
        np.testing.assert_array_equal(apart[name], of_texts[:, 1:].reshape(8, 9))
    others = one.keys() - {"token_ids", "padding_mask", "segment_ids"}
    assert apart.keys() == one.keys() | {f"{batches.FIRST}{name}" for name in one.keys() - others}
    for name in others:
        np.testing.assert_array_equal(apart[name], one[name])


def test_training_goes_on_from_any_update_and_fills_up_with_weight_0():
    rows, targets = encoded([2, 3, 4, 5, 6]), np.array([0, 1, 0, 1, 1])
    settings = {"batch": 2, "longest": 8, "seed": 3}

    def take(start, count):
        made = training_batches(rows, targets, start=start, **settings)
        return [next(made) for _ in range(count)]

    first = take(0, 6)
    for one, other in zip(first[2:], take(2, 4)):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    epoch = first[:3]
    assert sorted(sum(each["label_weight"]) for each in epoch) == [1, 2, 2]
    assert [each["row"].tolist() for each in epoch] == [[0, 1]] * 3
    for epoch in (first[:3], first[3:]):
        assert sorted(np.concatenate([each["example"] for each in epoch]).tolist()) == [-1, *range(5)]
    for each in first:
        of = each["example"][each["example"] >= 0]
        assert each["example"].tolist() == [*of, *[-1] * (2 - len(of))]
        assert each["label_weight"].tolist() == [1] * len(of) + [0] * (2 - len(of))
        assert each["label"].tolist() == [*targets[of], *[0] * (2 - len(of))]
        assert each["padding_mask"].sum(1).tolist()[: len(of)] == [number + 2 for number in of]
    assert all(
        np.array_equal(a["label"], b["label"])
        for a, b in zip(take(0, 3), training_batches(rows, targets.tolist(), **settings))
    )


def test_rows_are_padded_to_the_next_of_the_lengths_that_are_asked_for():
    """Whatever rows stand beside them."""
    asked = dataclasses.replace(encoded([5, 3, 9, 3, 4]), lengths=(4, 6, 10))
    found = [(order.tolist(), arrays["token_ids"].shape) for order, arrays in ordered_batches(asked, 10, 2)]
    assert found == [([1, 3], (2, 4)), ([4], (1, 4)), ([0], (1, 6)), ([2], (1, 10))]
    every = dataclasses.replace(asked, lengths=range(1, 11))
    assert [arrays["token_ids"].shape[1] for _, arrays in ordered_batches(every, 10, 64)] == [3, 4, 5, 9]


def test_what_is_answered_is_padded_to_the_longest_row_of_its_batch():
    """A third of what MiniLM computed of 500 sentences of SST-2 was padding up to multiples of 16."""
    found = [arrays["token_ids"].shape for _, arrays in ordered_batches(encoded([5, 3, 17, 4, 9]), 30, 2)]
    assert found == [(2, 4), (2, 9), (1, 17)]


def test_ordered_batches_begin_with_the_shortest():
    found = [
        (order.tolist(), arrays["padding_mask"].sum(1).tolist())
        for order, arrays in ordered_batches(encoded([5, 3, 4, 3]), 8, 3)
    ]
    assert found == [([1, 3, 2], [3, 3, 4]), ([0], [5])]


def test_what_is_told_of_truncated_texts():
    assert encoded([3, 4]).told("train: ", 8) == []
    assert encoded([3, 9]).told("train: ", 8) == [
        "train: 1 of 2 texts (50.0%) have more than 8 tokens and are truncated (--length)"
    ]
