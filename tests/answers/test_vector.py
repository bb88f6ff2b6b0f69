"""Vectors: options, prompts, rows, the nearest of some texts, by hand."""

import types

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.answers import Vector
from kerasbert.answers.vector import (
    DOCUMENT,
    QUERY,
    Hit,
    Index,
    check_dense,
    check_width,
    cosines,
    prompt_tokens,
    quantized,
)
from kerasbert.errors import InputError
from tests import tiny
from tests.text.kinds import small_word_bpe

KIND = answers.find("vector")
PROMPTS = {"prompts": {"query": "the ", "none": ""}, "prompt_name": "query"}


def test_a_prompt_stands_before_each_text():
    kind, tokenizer = KIND.configured(PROMPTS), tiny.tokenizer()
    assert (kind.prompt, KIND.prompt) == ("the ", "")
    (row,), (plain,) = kind.rows(tokenizer, ("cat",), 8), KIND.rows(tokenizer, ("the cat",), 8)
    assert row.token_ids == plain.token_ids == kind.rows(tokenizer, (b"cat",), 8)[0].token_ids
    assert KIND.rows(tokenizer, ("cat",), 8)[0].length == 3
    assert (kind.carried, KIND.carried) == (PROMPTS, {})
    assert KIND.configured({**PROMPTS, "prompt_name": ""}).carried == {**PROMPTS, "prompt_name": ""}
    fixed = {**PROMPTS, "include_prompt": False, "prompt_tokens": {"query": 2}}  # pooling begins behind this one alone
    assert KIND.configured(fixed).carried == {"prompts": {"query": "the "}, "prompt_name": "query"}
    assert KIND.configured({**fixed, "prompt_name": ""}).carried == {}


def test_another_prompt_is_named_and_a_name_that_is_none_is_refused_with_those_there_are():
    kind = KIND.configured(PROMPTS)
    assert (kind.with_prompt(None).prompt, kind.with_prompt("none").prompt, kind.with_prompt("").prompt) == (
        "the ",
        "",
        "",
    )
    assert (kind.prompt_among(QUERY), kind.prompt_among(DOCUMENT), KIND.prompt_among(QUERY)) == ("query", None, None)
    with pytest.raises(InputError, match="no prompt 'passage'.*All: query, none; without one"):
        kind.with_prompt("passage")
    with pytest.raises(InputError, match="prompt_name is 'query', and a classification has no prompts: leave it out"):
        answers.find("classification").with_prompt("query")
    assert answers.find("classification").with_prompt(None) is answers.find("classification")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": {"query": 1}}, "prompts must be texts by name"),
        ({**PROMPTS, "prompt_name": "quer"}, "no prompt 'quer'. Nearest: 'query'"),
        ({"prompt_name": "query"}, "no prompt 'query'.*none; without one"),
        ({**PROMPTS, "include_prompt": False}, "the prompt 'query' is to be left out of the pooling"),
        ({"dimensions": -1}, "dimensions must be at least 0. Received: -1"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(InputError, match=message):
        KIND.configured(options)
    KIND.configured({"include_prompt": False, "dimensions": 0})


def test_with_a_loss_each_text_is_a_row_and_else_a_pair_is_one():
    tokenizer, parts = tiny.tokenizer(), ("the cat", ("runs", "sees"), "a dog")
    kind = KIND.configured({**PROMPTS, "loss": "ranking"})
    assert (kind.lists, kind.asked, KIND.lists, KIND.asked) == ((1,), 1, (), None)
    rows = kind.rows(tokenizer, parts, 16)
    assert [row.about for row in rows] == [0, 1, 2, 3]
    texts = ["the the cat", "the runs", "the sees", "the a dog"]
    assert [row.token_ids for row in rows] == [tokenizer.pack(text)[0] for text in texts]
    assert [row.token_ids for row in kind.rows(tokenizer, ("cat",), 16)] == [tokenizer.pack("the cat")[0]]
    (pair,) = KIND.rows(tokenizer, ("the", "cat"), 16)
    assert list(pair.values["segment_ids"]) == [0, 0, 0, 1, 1]


def test_negatives_stand_behind_the_positive_in_the_order_of_their_columns():
    kind, names = KIND.configured({"loss": "ranking"}), ("anchor", "positive")
    row = {"negative_10": "d", "anchor": "a", "negatives": ["e", "f"], "negative_2": "c", "positive": "p", "note": "n"}
    assert kind.joined(names, row) == {**row, "positive": ["p", "e", "f", "c", "d"]}
    assert kind.joined(names, {**row, "positive": ["p", "q"]})["positive"][:3] == ["p", "q", "e"]
    plain = {"anchor": "a", "positive": "p", "negative note": "n"}
    assert kind.joined(names, plain) is plain
    assert KIND.joined(names, row) is row  # no loss ranks


@pytest.mark.parametrize("number", [*range(5)])
def test_numbers_at_the_edge_of_what_they_may_be(number):
    """The least that is right is taken, one less (or more) is refused: `dims`, `dimensions`, widths, prompts' tokens."""
    right, wrong, message = [
        (
            lambda: check_width({"dims": [8, 4], "dimensions": 8}, 8),
            lambda: check_width({"dims": [9, 4], "dimensions": 0}, 8),
            "dims is 9, 4, and a vector of this model has 8 numbers: lower dims",
        ),
        (
            lambda: check_width({"dims": [], "dimensions": 8}, 8),
            lambda: check_width({"dims": [], "dimensions": 9}, 8),
            "dimensions is 9, and a vector of this model has 8 numbers: lower dimensions",
        ),
        (lambda: check_dense(dense(1)), lambda: check_dense(dense(0)), "dense has"),
        (lambda: KIND.configured({"dims": (1, 2)}), lambda: KIND.configured({"dims": (0, 2)}), "dims must be"),
        (
            lambda: KIND.configured({"scale": 0.0, "margin": 0.0}),
            lambda: KIND.configured({"margin": -0.1}),
            "margin must be",
        ),
    ][number]
    right()
    with pytest.raises(InputError, match=message):
        wrong()


def dense(width):
    return {"width": width, "activation": "", "bias": True}


def test_how_many_tokens_a_prompt_is():
    """With what a row begins with, without what it ends with; one that ends without a special token has all."""
    bert, gpt = tiny.tokenizer(), small_word_bpe()
    prompts = {"query": "the cat ", "none": ""}
    assert prompt_tokens(bert, prompts) == {"query": 3, "none": 1}
    assert prompt_tokens(gpt, prompts) == {"query": len(gpt.encode("the cat ")), "none": 0}


def test_int8_is_a_share_of_each_vectors_largest_number():
    vectors = np.array([[1.0, -2, 0.5], [-4, 1, 0], [0, 0, 0], [0.25, 0.125, 0]], "float32")
    expected = [[64, -127, 32], [-127, 32, 0], [0, 0, 0], [127, 64, 0]]  # half to even
    assert quantized(vectors).tolist() == expected
    assert (quantized(vectors).dtype, quantized(vectors[:0]).shape, quantized(vectors[0]).tolist()) == (
        "int8",
        (0, 3),
        expected[0],
    )


def test_cosines_decoding_and_lines():
    np.testing.assert_allclose(cosines(np.array([[3.0, 4], [0, 0]]), np.array([4.0, 3])), [0.96, 0])
    answer = KIND.decode((), [inputs.row((), (), True)], [np.array([1.0, 2])], ())
    assert answer == Vector([1.0, 2.0], True)
    assert KIND.line({"values": [1.0, 0.12345678]}, "a film") == "1\t0.123457"
    assert KIND.agreement([np.array([1.0, 0]), np.array([0, 2.0])], [np.array([2.0, 0]), np.array([1.0, 0])]) == 0.5
    assert KIND.agreement([np.array([1.0, 0])], [np.array([np.inf, 0])]) == 0.0


class Runner:
    """A text is the vector of the letters a and b in it."""

    path, kind = "x.tflite", KIND

    def outputs(self, texts, prompt_name=None):
        return np.array([[text.count("a"), text.count("b")] for text in texts], "float32")


def test_the_nearest_texts():
    index = Index(Runner(), ["a", "b", "ab", "aa"])
    assert len(index) == 4
    assert index.nearest("a", 3) == [Hit(0, "a", 1.0), Hit(3, "aa", 1.0), Hit(2, "ab", pytest.approx(0.5**0.5))]
    assert len(index.nearest("a")) == 4
    assert [hit.index for hit in index.nearest("b", 1)] == [1]
    again = Index(Runner(), ["a", "b", "ab", "aa"], index.vectors.tolist())
    assert again.nearest("bba", 2) == index.nearest("bba", 2)


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_is_a_whole_number_of_at_least_1(k):
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        Index(Runner(), ["a"]).nearest("a", k)


def test_an_index_that_cannot_be():
    other = types.SimpleNamespace(path="x.tflite", kind=types.SimpleNamespace(name="regression"))
    with pytest.raises(InputError, match="x.tflite answers with a regression, expected vectors"):
        Index(other, ["a"])
    with pytest.raises(InputError, match="texts is empty"):
        Index(Runner(), [])
    for vectors in (np.zeros((1, 2)), np.zeros(2)):
        with pytest.raises(InputError, match=r"vectors have the shape .*, expected \(2, H\)"):
            Index(Runner(), ["a", "b"], vectors)
    with pytest.raises(InputError, match="vectors have 3 numbers, the file's 2: make them by this file"):
        Index(Runner(), ["a", "b"], np.zeros((2, 3))).nearest("a")


def test_an_index_of_no_list_of_texts_or_no_numbers_is_refused():
    """A table's column names were its texts, a generator was a TypeError, vectors that are no numbers a ValueError."""
    assert Index(Runner(), (each for each in ["a", "b"])).texts == ("a", "b")
    wrong = {
        "no order": lambda: Index(Runner(), {"a"}),
        "expected a list of texts": lambda: Index(Runner(), 3),
        "vectors are no numbers": lambda: Index(Runner(), ["a"], "x"),
        "not finite": lambda: Index(Runner(), ["a"], [[float("nan")]]),
        "Index has no option 'vector'. Nearest: 'vectors'": lambda: Index(Runner(), ["a"], vector=3),
        "Index.nearest has no option 'kk'": lambda: Index(Runner(), ["a"]).nearest("a", kk=3),
        "runner is a str": lambda: Index("a.tflite", ["a"]),
    }
    for told, call in wrong.items():
        with pytest.raises(InputError, match=told):
            call()
