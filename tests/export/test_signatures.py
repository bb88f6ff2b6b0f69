"""What a signature takes and refuses, part by part; `test_rows` has the rows of one call."""

import types

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import inputs
from kerasbert.export import signatures
from kerasbert.inputs import PAD, Input


def call(function, ranks, values):
    """What a function gives in a graph where the inputs have the ranks of a signature, whatever came."""

    @tf.function
    def graph():
        given = {}
        for name, value in values.items():
            given[name] = tf.raw_ops.PlaceholderWithDefault(input=tf.constant(value), shape=None)
            given[name].set_shape([None] * ranks[name])
        return function(given)

    return {name: each.numpy().tolist() for name, each in graph().items()}


RANKS = {"a": 1, "b": 2, "c": 1}


def test_a_call_of_as_many_rows_passes_as_it_is():
    rows = {"a": ["x", "y"], "b": [[1], [2]], "c": [0.5, 1.0]}
    assert call(signatures.checked, RANKS, rows) == {"a": [b"x", b"y"], "b": [[1], [2]], "c": [0.5, 1.0]}
    assert call(signatures.checked, {"a": 1}, {"a": ["x"]}) == {"a": [b"x"]}
    empty = {"a": np.zeros([0], np.int32), "b": np.zeros([0, 3], np.int32)}
    assert call(signatures.checked, RANKS, empty) == {"a": [], "b": []}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"a": [["x"]]}, r"the input a is a list of strings \[B\]. Received the shape.* \[1 1\]"),
        ({"a": "x"}, r"the input a is a list of strings \[B\]"),
        ({"a": ["x"], "b": [1]}, r"the input b is a list of int32 \[B, C\]. Received the shape.* \[1\]"),
        ({"b": [["x"]], "a": [[1]]}, r"the input a is a list of int32 \[B\]"),
        ({"a": ["x"], "b": [[1], [2]]}, r"the inputs a and b have as many rows in a call. Received\] \[1\] \[2\]"),
        ({"a": ["x", "y"], "c": [0.5]}, r"the inputs a and c have as many rows in a call. Received\] \[2\] \[1\]"),
        ({"a": [1, 2], "b": [[1], [2]], "c": [0.5]}, r"the inputs a and c have as many rows"),
    ],
)
def test_other_shapes_and_numbers_of_rows_are_one_sentence(rows, said):
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        call(signatures.checked, RANKS, rows)


OPTIONS = {
    "top": types.SimpleNamespace(own=3, expected="a number above 0", fits=lambda values: values > 0),
    "share": types.SimpleNamespace(own=0.5, expected="a number up to 1", fits=lambda values: values <= 1),
}
KIND = types.SimpleNamespace(call_options=OPTIONS)


def test_options_of_a_call_fit_or_are_named():
    given = {"text": ["x", "y"], "top": [1, 2], "share": [0.25, 1.0]}
    found = call(lambda rows: signatures.checked_options(KIND, rows), dict.fromkeys(given, 1), given)
    assert found == {"text": [b"x", b"y"], "top": [1, 2], "share": [0.25, 1.0]}
    for name, values, said in (
        ("top", [1, 0], r"the input top is a number above 0. Received\] \[1 0\]"),
        ("share", [1.5, 0.5], r"the input share is a number up to 1. Received\] \[1.5 0.5\]"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=said):
            call(lambda rows: signatures.checked_options(KIND, rows), dict.fromkeys(given, 1), given | {name: values})


def test_own_options_are_those_of_the_model_for_each_row():
    found = signatures.own_options(KIND, tf.constant(2))
    assert {name: each.numpy().tolist() for name, each in found.items()} == {"top": [3, 3], "share": [0.5, 0.5]}
    assert [each.dtype for each in found.values()] == [tf.int32, tf.float32]


def test_rows_as_tf_examples():
    found = signatures.examples({"text": tf.constant(["a", "é"]), "other": tf.constant(["b", ""])})
    features = dict.fromkeys(("text", "other"), tf.io.FixedLenFeature([], tf.string))
    read = {name: each.numpy().tolist() for name, each in tf.io.parse_example(found, features).items()}
    assert read == {"text": [b"a", "é".encode()], "other": [b"b", b""]}
    assert signatures.examples({"text": tf.zeros([0], tf.string)}).dtype == tf.string


@pytest.mark.parametrize(
    ("names", "texts", "expected"),
    [
        (["text"], ["a", "b"], {"text": [b"a", b"b"]}),
        (["text"], [["a", "b"], "c"], {"text": [b"a b", b"c"]}),
        (["text"], [("a", "b")], {"text": [b"a"]}),
        (["a", "b"], [("x", "y"), ("z", "w")], {"a": [b"x", b"z"], "b": [b"y", b"w"]}),
        (["a", "b"], [("x", ["1"]), ("y", ["2", "3"])], {"a": [b"x", b"y"], "b": [[b"1", b""], [b"2", b"3"]]}),
    ],
)
def test_texts_of_predict_as_inputs(names, texts, expected):
    kind = types.SimpleNamespace(numbers=lambda texts: {"count": [len(text) for text in texts]})
    found = signatures.given(kind, names, texts)
    assert found.pop("count").dtype == tf.int32
    assert {name: each.numpy().tolist() for name, each in found.items()} == expected


def test_the_tokens_that_a_signature_takes():
    makers = [Input(name, axes, "int32", filled_by="maker") for name, axes in (("made", "BS"), ("letters", "BSW"))]
    others = [Input("language_ids", "BS", "int32", filled_by="setting", setting="language")]
    taken = [each.name for each in signatures.counted([*inputs.TEXT, *makers, *others])]
    assert taken == ["token_ids", "segment_ids", "letters", "language_ids"]


def test_what_stands_behind_the_counted_tokens_is_padding():
    taken = [
        Input("token_ids", "BS", "int32", PAD),
        Input("segment_ids", "BS", "int32", 3),
        Input("letters", "BSW", "int32", 5),
        Input("mark", "BP", "int32"),
    ]
    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    given = {"token_ids": ids, "segment_ids": ids, "letters": np.stack([ids, ids], 2), "mark": ids[:, :1]}
    given = {name: tf.constant(value) for name, value in given.items()} | {"lengths": tf.constant([1, 3])}
    found = signatures.masked(taken, given, 9, signatures.Bounds({"token_ids": 10, "absent": 1}, 3))
    found = {name: each.numpy().tolist() for name, each in found.items()}
    assert found == {
        "token_ids": [[0, 9, 9], [3, 4, 5]],
        "segment_ids": [[0, 3, 3], [3, 4, 5]],
        "letters": [[[0, 0], [5, 5], [5, 5]], [[3, 3], [4, 4], [5, 5]]],
        "mark": [[0], [3]],
        "padding_mask": [[1, 0, 0], [1, 1, 1]],
    }
    signatures.masked(taken, given, 9, signatures.Bounds({}, None))
    for bounds, lengths, said in (
        (
            signatures.Bounds({"token_ids": 9}, None),
            [1, 3],
            r"token_ids holds numbers of 0 to 8. Received'\n0\nb'to'\n9",
        ),
        (signatures.Bounds({}, 2), [1, 3], "at most 2 tokens a row"),
        (signatures.Bounds({}, None), [0, 3], "1 to all of them"),
        (signatures.Bounds({}, None), [1, 4], "1 to all of them"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=said):
            signatures.masked(taken, given | {"lengths": tf.constant(lengths)}, 9, bounds)


def test_names_of_a_setting_are_its_numbers_where_there_are_tokens():
    declared = Input("language_ids", "BS", "int32", setting="language", choices=lambda _: {"en": 4, "fr": 0})
    table = signatures.Choices(declared, None)
    mask = tf.constant([[1, 1, 0], [1, 0, 0]])
    assert table(tf.constant(["en", "fr"]), mask).numpy().tolist() == [[4, 4, 0], [0, 0, 0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="language: expected one of en, fr"):
        table(tf.constant(["en", "de"]), mask)


def test_prompts_stand_before_their_texts():
    prompts = signatures.Prompts({"query": "Q: ", "passage": "P: "})
    found = prompts(tf.constant(["query", "", "passage"]), tf.constant(["a", "b", "c"]))
    assert found.numpy().tolist() == [b"Q: a", b"b", b"P: c"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected one of query, passage, or none of them"):
        prompts(tf.constant(["other"]), tf.constant(["a"]))


def rows(mask, **more):
    return {"padding_mask": tf.constant(mask, tf.int32), **{name: tf.constant(each) for name, each in more.items()}}


def test_rows_are_as_wide_as_the_longest_of_them():
    ids = np.arange(8, dtype=np.int32).reshape(2, 4)
    found = signatures.trimmed(rows([[1, 0, 0, 0], [1, 1, 0, 0]], token_ids=ids, number=[5, 6], deep=ids[..., None]))
    found = {name: each.numpy().tolist() for name, each in found.items()}
    assert found == {
        "padding_mask": [[1, 0], [1, 1]],
        "token_ids": [[0, 1], [4, 5]],
        "number": [5, 6],
        "deep": [[[0], [1]], [[4], [5]]],
    }
    bare = signatures.trimmed(rows([[0, 0]], token_ids=[[7, 8]]))
    assert bare["token_ids"].numpy().tolist() == [[7]]


@pytest.mark.parametrize("shape", [(0, 3), (0, 0)])
def test_no_row_becomes_one_of_one_token(shape):
    ids = np.zeros(shape, np.int32)
    found = signatures.trimmed(rows(ids, token_ids=ids, number=ids[:, 0] if shape[1] else np.zeros(0, np.int32)))
    assert {name: each.numpy().tolist() for name, each in found.items()} == {
        "padding_mask": [[1]],
        "token_ids": [[0]],
        "number": [0],
    }


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_chunks_cover_every_row_once(count):
    sizes = []

    def run(packed):
        sizes.append(int(packed["token_ids"].shape[0]))
        return {"twice": 2 * packed["token_ids"], "first": packed["token_ids"][:, 0]}

    ids = tf.reshape(tf.range(2 * count), [count, 2])
    found = signatures.in_chunks(run, {"token_ids": ids}, most=2)
    np.testing.assert_array_equal(found["twice"], 2 * ids)
    np.testing.assert_array_equal(found["first"], ids[:, 0])
    assert sizes == [min(2, count - at) for at in range(0, count, 2)]
    assert signatures.GROUP == 16
    assert signatures.ROWS == 64


def test_a_signature_names_its_inputs():
    specs = {"b": tf.TensorSpec([None], tf.int32), "a": tf.TensorSpec([None], tf.int32)}
    traced = signatures.traced(lambda given: {"difference": given["a"] - given["b"]}, specs)
    assert traced(a=tf.constant([5]), b=tf.constant([3]))["difference"].numpy().tolist() == [2]
