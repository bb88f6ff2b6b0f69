"""Rows of one call: those of like length run together, a single one in a graph of its own."""

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import inputs
from kerasbert.export import graphs, signatures
from kerasbert.tasks.base import kind_of
from kerasbert.testing import battery
from tests.support import by_hand
from tests.tasks.test_every_kind import KINDS, check_served, made

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


def test_answers_as_wide_as_their_rows_are_filled_up():
    """In a graph with a weight TensorFlow computes every group, also where nobody asks: a list of labels failed there."""
    weight = tf.Variable(2)

    def some(rows):
        ids = weight * rows["token_ids"]
        of_two = tf.stack([ids, -ids], axis=2)  # as the logits of spans: [rows, W, 2]
        return {
            "of_two": of_two,
            "twice": ids,
            "texts": tf.strings.as_string(ids),
            "deep": ids[:, :, None] + tf.zeros_like(ids)[:, None],
        }

    run = tf.function(lambda given: signatures.one_or_more(some, given), [SPEC], autograph=False)
    given = packed([*range(1, 40)])
    twice, widths = 2 * given["token_ids"], given["padding_mask"].sum(1)
    found = run({name: tf.constant(value) for name, value in given.items()})
    np.testing.assert_array_equal(found["twice"], twice)
    np.testing.assert_array_equal(found["of_two"], np.stack([twice, -twice], axis=2))
    for texts, row, width in zip(found["texts"].numpy().tolist(), twice.tolist(), widths):
        assert texts[:width] == [str(each).encode() for each in row[:width]]
        assert {*texts[width:]} <= {b"0", b""}
    assert found["deep"].shape == (39, 39, 39)
    np.testing.assert_array_equal(found["deep"][:, :, 0], twice)


def test_tokens_that_a_network_does_not_know_are_refused():
    """What stands behind the first `lengths` of a row is a stranger's, and no matter."""
    bounds = signatures.Bounds({"token_ids": 9, "segment_ids": 2}, 4)
    names = ("token_ids", "segment_ids", "lengths")
    specs = {name: tf.TensorSpec([None] if name == "lengths" else [None, None], tf.int32) for name in names}
    taken = signatures.counted(inputs.TEXT)
    serve = signatures.traced(lambda given: signatures.masked(taken, given, 7, bounds), specs)

    def read(*rows):
        return {name: value.numpy().tolist() for name, value in serve(*map(tf.constant, rows)).items()}

    found = read([[8, -1], [3, 4]], [[1, 5], [0, 0]], [1, 2])
    assert found == {"token_ids": [[8, 7], [3, 4]], "segment_ids": [[1, 0], [0, 0]], "padding_mask": [[1, 0], [1, 1]]}
    for rows, message in (
        (([[9]], [[0]], [1]), r"the input token_ids holds numbers of 0 to 8. Received\] \[9\] \[to\] \[9"),
        (([[0, -1]], [[0, 0]], [2]), r"the input token_ids holds numbers of 0 to 8. Received\] \[-1\] \[to\] \[0"),
        (([[0]], [[2]], [1]), "the input segment_ids holds numbers of 0 to 1. Received"),
        (([[0] * 5], [[0] * 5], [1]), r"the input token_ids has at most 4 tokens a row. Received\] \[5"),
        (
            ([[0]], [[0]], [0]),
            r"lengths says how many of each row of token_ids count: 1 to all of them. Received\] \[0\]",
        ),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            read(*rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi_label", *by_hand(["classification", "regression", "vector"])])
def test_more_rows_than_run_at_once_are_answered_as_predict_answers(kind, tmp_path):
    model = made("bert", kind, battery.tokenizer("wordpiece"), tmp_path)
    texts = [*KINDS[kind][2]] * 8
    if kind == "vector":
        wanted = [{"values": row.tolist()} for row in kb.encode(model, texts)]
    else:
        wanted = [answer.to_json() for answer in kb.predict(model, texts)]
    serve = tf.saved_model.load(str(kb.export(model, tmp_path / "serving"))).signatures["serving_default"]
    given = signatures.given(kind_of(model), graphs.text_names(model), texts)
    check_served(model, wanted, {name: value.numpy() for name, value in serve(**given).items()}, texts)
