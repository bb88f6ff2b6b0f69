"""A graph's values for rows of any lengths: each row's own, in the order of the rows, whatever the batch."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.graph_values import run
from tests import tiny

TEXTS = ["the cat", "a dog runs and sees the house", "old", "the very old cat", "a house"]


def own(arrays):
    """Of each token its id and half of it."""
    ids = tf.cast(arrays["token_ids"], tf.float32)
    return tf.stack([ids, ids / 2], -1)


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_values_are_those_of_each_row(batch):
    encoded = encode_texts(tiny.tokenizer(), TEXTS, 16)
    ids = [tiny.tokenizer().pack(text)[0] for text in TEXTS]
    found = run(lambda arrays: own(arrays)[:, 1], encoded, 16, batch)
    np.testing.assert_array_equal(found, [[row[1], row[1] / 2] for row in ids])
    for row, value in zip(ids, run(own, encoded, 16, batch, per_token=True)):
        np.testing.assert_array_equal(value, np.stack([row, np.array(row) / 2], -1))


def test_no_rows_have_no_values():
    encoded = encode_texts(tiny.tokenizer(), [], 16)
    assert run(own, encoded, 16, per_token=True) == []
    assert run(own, encoded, 16).shape == (0,)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("number", range(5))
def test_a_value_that_is_not_finite_is_refused_wherever_it_stands(wrong, number):
    encoded = encode_texts(tiny.tokenizer(), TEXTS, 16)
    token = tiny.tokenizer().pack(TEXTS[number])[0][-2]

    def damaged(arrays):
        return tf.where(arrays["token_ids"] == token, wrong, 1.0)

    with pytest.raises(InputError, match="the model answers with numbers that are not finite"):
        run(damaged, encoded, 16, 2)
