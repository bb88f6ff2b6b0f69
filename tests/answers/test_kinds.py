"""Kinds of answers: rows, decoding, agreement, by hand."""

import numpy as np
import pytest

from kerasbert import answers, inputs
from kerasbert.answers import Classification, Regression, Vector
from kerasbert.errors import InputError
from tests import tiny


def decoded(kind, labels, values, truncated=False):
    return answers.find(kind).decode((), [inputs.row((), (), truncated)], [np.array(values)], labels)


def test_numbers_become_objects():
    answer = decoded("classification", ("no", "yes"), [0.25, 0.75])
    assert answer == Classification("yes", 0.75, {"no": 0.25, "yes": 0.75})
    assert decoded("regression", (), [1.5]) == Regression(1.5)
    assert decoded("vector", (), [1, 2]) == Vector([1.0, 2.0])
    assert decoded("vector", (), [1, 2], True).to_json() == {"values": [1.0, 2.0], "truncated": True}


def test_a_kind_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"no kind of answer 'vectors'. Nearest: 'vector'"):
        answers.find("vectors")


def test_a_row_knows_whether_its_text_lost_tokens():
    tokenizer, kind = tiny.tokenizer(), answers.find("classification")
    (whole,), (cut,) = kind.rows(tokenizer, ("the cat sees",), 5), kind.rows(tokenizer, ("the cat sees",), 4)
    assert (whole.length, whole.truncated, cut.length, cut.truncated) == (5, False, 4, True)
    (pair,) = kind.rows(tokenizer, ("the", "cat"), 8)
    assert list(pair.values["segment_ids"]) == [0, 0, 0, 1, 1]


def test_agreement_is_equal_labels_correlation_or_cosine():
    rows = [np.array([0.2, 0.8]), np.array([0.9, 0.1])]
    other = [np.array([0.4, 0.6]), np.array([0.3, 0.7])]
    assert answers.find("classification").agreement(rows, other) == 0.5
    tokens = [np.array([[1, 0], [0, 1], [1, 0], [0, 1]])]
    assert answers.find("classification").agreement(tokens, [tokens[0][::-1]]) == 0.0
    numbers = [np.array([1.0]), np.array([2.0]), np.array([3.0])]
    assert answers.find("regression").agreement(numbers, numbers[::-1]) == pytest.approx(-1)
    assert answers.find("vector").agreement([np.array([1.0, 0])], [np.array([1.0, 1])]) == pytest.approx(0.5**0.5)
    for kind in ("classification", "regression", "vector"):
        assert answers.find(kind).agreement(rows, [np.array([np.nan, 1.0]), rows[1]]) == 0.0


class Windows(answers.Kind):
    name, lists, defaults = "windows", (1,), {"stride": 128, "least": 0.5, "names": ()}


def test_options_are_those_of_the_kind_and_of_their_types():
    kind = Windows()
    assert kind.configured({}) is kind
    other = kind.configured({"stride": 64, "least": 1})
    assert (other.options["stride"], other.options["least"], kind.options["stride"]) == (64, 1, 128)
    with pytest.raises(InputError, match=r"no option of a windows 'strid'\. Nearest: 'stride'"):
        kind.configured({"strid": 64})
    for wrong in ("64", True, 6.4, None):
        with pytest.raises(InputError, match="windows's option 'stride' is .*, expected a whole number, such as 128"):
            kind.configured({"stride": wrong})


def test_an_option_may_be_a_number_of_numpy():
    assert Windows().configured({"stride": np.int64(64)}).options["stride"] == 64


def test_an_input_is_a_tuple_or_a_dict_of_its_parts_or_a_line():
    kind, names = Windows(), ("context", "choices")
    wanted = ("it rains", ("wet", "dry"))
    assert kind.parts(("it rains", ["wet", "dry"]), names, "text 0") == wanted
    assert kind.parts({"choices": ["wet", "dry"], "context": "it rains"}, names, "text 0") == wanted
    assert kind.from_line("it rains\twet\tdry", names, "line 1") == wanted
    assert kind.from_line('{"context": "it rains", "choices": ["wet", "dry"], "id": 7}', names, "line 1") == wanted
    for given, text in (
        ({"context": "it rains"}, "text 0 has the parts context, expected context, choices"),
        (("it rains",), r"text 0 has 1 parts, expected 2: \(context, choices\)"),
        ((["it", "rains"], "wet"), "text 0: context is a list, expected str"),
        (("it rains", [1, 2]), "text 0: choices is a tuple, expected str or a list of str"),
        (5, r"text 0 is a int, expected \(context, choices\)"),
    ):
        with pytest.raises(InputError, match=text):
            kind.parts(given, names, "text 0")
    for line, text in (
        ("it rains", "line 1 has 0 tabs, expected context<tab>choices"),
        ("{it rains", "line 1 is no json"),
    ):
        with pytest.raises(InputError, match=text):
            kind.from_line(line, names, "line 1")


def test_labels_may_have_other_outputs_than_a_score_each():
    """K - 1 thresholds stay as the model gives them; logits of the labels become probabilities."""

    class Thresholds(answers.Kind):
        labelled, label_scores = True, False

    class Scores(answers.Kind):
        labelled = True

    outputs, names = np.array([[0.0, np.log(3.0)]], "float32"), ["low", "middle", "high"]
    assert Thresholds().width(names) is None
    np.testing.assert_array_equal(Thresholds().probabilities(outputs), outputs)
    np.testing.assert_array_equal(Thresholds().signal(list(outputs)), outputs)
    assert Scores().width(names) == 3
    np.testing.assert_allclose(Scores().probabilities(outputs), [[0.25, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(Scores().signal([[0.25, 0.75]]), np.log([[0.25, 0.75]]), rtol=1e-6)
