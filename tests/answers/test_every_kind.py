"""What holds of every kind of answer: rows at every length, agreement, scores by input, json, what is ranked."""

import itertools
import json
import re

import numpy as np
import pytest

from kerasbert.answers import (
    choice,
    classification,
    generation,
    multi_label,
    regression,
    span,
    tags,
    tokens,
    vector,
)
from kerasbert.answers.base import Kind, softmax
from kerasbert.errors import InputError
from tests import tiny

LABELS = ("B-PER", "I-PER", "O")
TEXTS = ("the cat sees the old house", "a dog runs", "the house of a happy dog and the very old cat")
# kind -> inputs of the kind
CASES: dict[str, tuple[Kind, list[tuple]]] = {
    "choice": (choice.KIND, [(text, ("a cat", "the old dog runs", "the house")) for text in TEXTS]),
    "classification": (classification.KIND, [(text,) for text in TEXTS]),
    "pair": (classification.KIND, [(text, "a cat") for text in TEXTS]),
    "generation": (generation.KIND.configured({"target_length": 5}), [(text,) for text in TEXTS]),
    "going on": (generation.KIND.configured({"target_length": 3, "start": "", "separator": ""}), [(t,) for t in TEXTS]),
    "at masks": (generation.KIND.configured({"target_length": 3, "masked": True}), [(text,) for text in TEXTS]),
    "multi_label": (multi_label.KIND, [(text,) for text in TEXTS]),
    "regression": (regression.KIND, [(text,) for text in TEXTS]),
    "span": (span.KIND, [("the dog", text) for text in TEXTS]),
    "tags": (tags.KIND, [(text,) for text in TEXTS]),
    "tokens": (tokens.KIND, [(f"{text} [MASK] and a [MASK] cat",) for text in TEXTS]),
    "vector": (vector.KIND, [(text,) for text in TEXTS]),
}


def outputs(kind, rows, draw):
    """Drawn outputs of rows, as a file gives them."""
    if isinstance(kind, generation.GenerationKind):
        return [np.append(-draw.random(), draw.integers(5, 30, kind.target_length)).astype("float32") for _ in rows]
    width = kind.width(LABELS) or (tiny.tokenizer().size if kind.name == "tokens" else 4)
    drawn = [draw.normal(size=(row.length, width) if kind.per_token else width).astype("float32") for row in rows]
    return [kind.probabilities(each) for each in drawn]


def flat(lists):
    return [*itertools.chain.from_iterable(lists)]


@pytest.fixture(params=CASES)
def case(request):
    """(kind, inputs, rows by input, their outputs)."""
    kind, texts = CASES[request.param]
    packed = [kind.rows(tiny.tokenizer(), parts, 40) for parts in texts]
    draw = np.random.default_rng(0)
    return kind, texts, packed, [outputs(kind, rows, draw) for rows in packed]


def test_a_length_is_refused_below_the_one_that_the_message_names(case):
    """From it on all rows fit, and as soon as one is shorter than the whole input this is said of it."""
    kind, texts, packed, _ = case
    for parts, whole in zip(texts, packed):
        assert not any(row.truncated for row in whole)
        most, refused = max(row.length for row in whole), []
        for length in range(1, 41):
            try:
                rows = kind.rows(tiny.tokenizer(), parts, length)
            except InputError as error:
                refused.append((length, str(error)))
                continue
            assert all(row.length <= length for row in rows)
            if kind.name == "generation" and kind.one_row:  # the target stands in the same row
                assert all(row.length <= length - kind.target_length for row in rows)
                continue
            lost = any(row.truncated for row in rows) or len(rows) > len(whole)
            assert lost == (length < most or (kind.name == "span" and lost)), length
            if not lost:
                assert [row.values["token_ids"] for row in rows] == [row.values["token_ids"] for row in whole]
        assert [length for length, _ in refused] == [*range(1, len(refused) + 1)]
        named = [int(number) for _, error in refused for number in re.findall(r"at least (\d+)", error)]
        assert named == [len(refused) + 1] * len(named), named
        assert refused or kind.name == "generation"


def test_agreement_is_whole_with_itself_and_none_where_a_number_is_not_finite(case):
    kind, _, packed, drawn = case
    rows, values = flat(packed), flat(drawn)
    owners = np.repeat(np.arange(len(packed)), [len(each) for each in packed])
    for ties in (False, True):
        assert kind.agreement(values, values, owners, rows, ties) == pytest.approx(1)
    for number in range(len(values)):
        for wrong in (np.nan, np.inf, -np.inf):
            damaged = [value.copy() for value in values]
            damaged[number][-1] = wrong
            with np.errstate(invalid="ignore"):
                assert kind.agreement(values, damaged, owners, rows) == 0.0


def test_scores_are_of_each_input_alone(case):
    kind, _, packed, drawn = case
    owners = np.repeat(np.arange(len(packed)), [len(each) for each in packed])
    found = kind.signal(flat(drawn), owners, flat(packed))
    alone = [kind.signal(each, np.zeros(len(rows), int), rows) for each, rows in zip(drawn, packed)]
    np.testing.assert_allclose(found, np.concatenate(alone), rtol=1e-6)
    assert np.isfinite(found).all()
    assert found.ndim == 2
    assert len(found) >= len(packed)


def test_an_answer_is_json_and_a_line(case, monkeypatch):
    kind, texts, packed, drawn = case
    for parts, rows, values in zip(texts, packed, drawn):
        answer = kind.decode(parts, rows, values, LABELS)
        outputs_of = dict(zip(map(id, rows), values))
        monkeypatch.setattr(type(kind), "rows", lambda *_, rows=rows: rows)
        assert kind.answer(lambda row, found=outputs_of: found[id(row)], tiny.tokenizer(), parts, 40, LABELS) == answer
        said = json.loads(json.dumps(answer.to_json()))
        assert {*said} >= {*kind.columns}
        assert "truncated" not in said
        lines = [kind.text(said), *kind.lines(said), kind.line(said, "text")]
        assert all(line and "\n" not in line for line in lines)
        assert kind.blocks == (kind.name == "tags")


def test_differences_are_those_of_all_numbers_that_both_have(case):
    kind, _, _, drawn = case
    if len({np.shape(value)[-1] for value in flat(drawn)}) > 1:
        return
    values = flat(drawn)
    assert not kind.differences(values, values).any()
    assert kind.differences(values, values).size == sum(value.size for value in values)
    assert kind.differences([], []).size == 0
    values = [value.astype("float64") for value in values]
    values[0].flat[0] += 3
    found = kind.differences([value.astype("float64") for value in flat(drawn)], values)
    assert (found.max(), np.count_nonzero(found)) == (pytest.approx(3), 1)
    if kind.per_token:  # a file's rows may end early
        assert kind.differences(values, [value[:-1] for value in values]).size == found.size - len(values) * len(
            values[0][0]
        )


def test_an_example_of_a_made_text_is_an_input(case):
    kind, *_ = case
    two = kind.name in ("choice", "span")
    made = kind.example(("the cat", "a dog") if two else "the cat sees")
    names = ("first", "second")[: 1 + two]
    rows = kind.rows(tiny.tokenizer(), kind.parts(made, names, "x"), 40)
    assert rows
    row = {"first": "a", "second": "b"}
    assert kind.joined(names, row) is row


def ranked(answer):
    """Lists of the probabilities of what an answer ranks."""
    if isinstance(answer, span.Span):
        return [[each.score for each in answer.alternatives]]
    if isinstance(answer, tags.Tags):
        return [sorted((entity.score for entity in answer.entities), reverse=True)]
    if isinstance(answer, tokens.FillMask):
        return [[filling.score for filling in mask] for mask in answer.tokens]
    return [[*answer.scores.values()]]


@pytest.mark.parametrize("top", [None, 1, 2])
def test_top_and_threshold_keep_the_best(case, top):
    """In the order of their probabilities, one that equals the threshold among them."""
    kind, texts, packed, drawn = case
    if type(kind).limited is Kind.limited or (top and kind.name == "tags"):
        with pytest.raises(InputError, match="top is . and tags rank nothing|ranks nothing: leave them out"):
            kind.ranking(top or 1, None)
        return
    for parts, rows, values in zip(texts, packed, drawn):
        every = [sorted(each, reverse=True) for each in ranked(kind.decode(parts, rows, values, LABELS))]
        for threshold in (0.0, 1.0, *every[0], *([] if kind.name == "tags" else [None])):
            other = kind.ranking(top, threshold)
            answer = other.limited(other.decode(parts, rows, values, LABELS), top, threshold)
            most = top if top is None or kind.name != "span" else top - 1  # the answer itself is one
            kept = [[each for each in some[:most] if threshold is None or each >= threshold] for some in every]
            assert [sorted(each, reverse=True) for each in ranked(answer)] == kept
            assert kind.name == "tags" or top is None or ranked(answer) == kept


@pytest.mark.parametrize(
    ("top", "threshold"), [(0, None), (-1, None), (True, None), (1.0, None), (None, 1.01), (None, -0.01)]
)
def test_no_such_top_or_threshold(top, threshold):
    with pytest.raises(InputError, match="expected a whole number of at least 1|expected a probability from 0 to 1"):
        classification.KIND.ranking(top, threshold)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_probabilities_of_logits_without_end(shape):
    logits = np.random.default_rng(0).normal(size=shape) * 1000
    for found in (softmax(logits), multi_label.sigmoid(logits)):
        assert np.isfinite(found).all()
    np.testing.assert_allclose(softmax(logits).sum(-1), 1)
