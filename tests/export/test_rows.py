"""Rows of one call: those of like length run together, a single one in a graph of its own."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.export import signatures

SPEC = {name: tf.TensorSpec([None, None], tf.int32) for name in ("token_ids", "padding_mask")}


def packed(lengths) -> dict[str, np.ndarray]:
    """Row i holds i + 1 as often as its length says."""
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype("int32")
    return {"token_ids": mask * np.arange(1, len(lengths) + 1, dtype="int32")[:, None], "padding_mask": mask}


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
def test_groups_of_like_length_give_the_rows_in_their_order(count):
    widths = []

    def some(rows):
        tf.numpy_function(lambda ids: widths.append(ids.shape), [rows["token_ids"]], [])
        # an operator that is told how many rows there are
        own = tf.reshape(rows["token_ids"], [tf.shape(rows["token_ids"])[0], -1])
        return {"sum": tf.reduce_sum(own, axis=1), "first": own[:, 0]}

    run = tf.function(lambda given: signatures.one_or_more(some, given), [SPEC], autograph=False)
    lengths = np.random.default_rng(count).integers(1, 50, count)
    found = run({name: tf.constant(value) for name, value in packed(lengths).items()})
    numbers = np.arange(1, count + 1)
    np.testing.assert_array_equal(found["first"], numbers)
    np.testing.assert_array_equal(found["sum"], numbers * lengths)
    longest = np.sort(lengths)[::-1]
    groups = [longest[i : i + signatures.GROUP] for i in range(0, count, signatures.GROUP)]
    assert widths == [(len(group), group[0]) for group in groups]


def test_an_answer_as_wide_as_its_row_is_given_of_all_rows_at_once():
    run = tf.function(
        lambda given: signatures.one_or_more(lambda rows: {"twice": 2 * rows["token_ids"]}, given),
        [SPEC],
        autograph=False,
    )
    given = packed([*range(1, 20)])
    np.testing.assert_array_equal(run(given)["twice"], 2 * given["token_ids"])
