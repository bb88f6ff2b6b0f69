"""Windows over a context and the span that is chosen: by hand, and on every question beside the project."""

import json
import sys

import numpy as np
import pytest

from kerasbert.answers import span
from kerasbert.answers.span import BLANKS, IMPOSSIBLE, SpanKind, owned, tokenized, windows
from kerasbert.errors import InputError
from kerasbert.tasks.span_metrics import compared
from kerasbert.text import WordPiece, load_tokenizer
from tests.support import shared
from tests.text import kinds

KIND = SpanKind()


def words(*more):
    return WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "where", "?", "##s", *more])


def outputs(rows, starts, ends, null=0.0):
    """Logits [S, 2] of rows: by token of the context, and of the empty answer."""
    result = []
    for row in rows:
        window = row.about
        output = np.full((row.length, 2), -50, "float32")
        at = slice(window.place, window.place + window.count)
        output[at, 0], output[at, 1] = (values[window.begin : window.begin + window.count] for values in (starts, ends))
        output[window.null] = null / 2
        result.append(output)
    return result


def test_windows_by_hand():
    """Eleven tokens of room, two of a question: windows of six tokens every three."""
    tokenizer = words()
    kind = KIND.configured({"stride": 3, "max_answer": 1})
    rows = kind.rows(tokenizer, ("where ?", "a b c d e f g h"), 11)
    pieces = [[tokenizer.vocabulary[i] for i in row.token_ids] for row in rows]
    assert pieces[0] == ["[CLS]", "where", "?", "[SEP]", "a", "b", "c", "d", "e", "f", "[SEP]"]
    assert pieces[1] == ["[CLS]", "where", "?", "[SEP]", "d", "e", "f", "g", "h", "[SEP]"]
    assert [row.values["segment_ids"] for row in rows] == [[0] * 4 + [1] * 7, [0] * 4 + [1] * 6]
    assert [(row.about.begin, row.about.count, row.about.place, row.about.null) for row in rows] == [
        (0, 6, 4, 0),
        (3, 5, 4, 0),
    ]
    # e has one token after it in the first window and one before it in the second, which is shorter
    assert [row.about.own for row in rows] == [slice(0, 5), slice(5, 8)]
    assert not any(row.truncated for row in rows)


def test_the_best_span_by_hand():
    rows = KIND.rows(words(), ("where", "a b c d"), 16)
    starts, ends = np.array([0, 3, 1, 0.0]), np.array([9, 0, 2, 1.0])
    answer = KIND.decode((), rows, outputs(rows, starts, ends), ())
    # a: 0 + 9 in one token; b c: 3 + 2, and an end before its start is none
    assert (answer.text, answer.start, answer.end) == ("a", 0, 1)
    assert (answer.alternatives[0].text, answer.alternatives[0].start) == ("b c", 2)
    sums = [s + e for i, s in enumerate(starts) for e in ends[i:]]
    assert answer.score == pytest.approx(np.exp(9) / np.exp(sums).sum())
    assert len(answer.alternatives) == 4
    short = KIND.configured({"max_answer": 1, "n_best": 1}).decode(
        (), rows, outputs(rows, starts, ends - [99, 0, 0, 0]), ()
    )
    assert (short.text, short.alternatives) == ("b", ())


def every_span(kind, rows, values, unanswerable, threshold):
    """(start, end, probability) of all answers, best first, by trying every span of every window."""
    context, found = rows[0].about.context, {}
    for row, value in zip(rows, values):
        window, logits = row.about, value.astype("float64")
        for first in range(window.own.start, window.own.stop):
            for last in range(first, min(first + kind.options["max_answer"], window.begin + window.count)):
                a, b = (logits[window.place + at - window.begin, i::2] for i, at in enumerate((first, last)))
                found[int(context.starts[first]), int(context.ends[last])] = (a + b).max()
    if unanswerable:
        found[0, 0] = min(float(value[row.about.null].astype("float64").sum()) for row, value in zip(rows, values))
    order = sorted(found, key=lambda place: -found[place])
    if unanswerable and len(order) > 1:
        best = next(place for place in order if place != (0, 0))
        first = (0, 0) if found[0, 0] - found[best] > threshold else best
        order = [first, *(place for place in order if place != first)]
    logs = np.array([found[place] for place in order])
    shares = np.exp(logs - logs.max())
    return [(*place, share) for place, share in zip(order, shares / shares.sum())]


@pytest.mark.parametrize(("scale", "starts"), [(1, 0), (1000, 0), (1, 1), (1, 4)])
@pytest.mark.parametrize("unanswerable", [False, True])
def test_answers_are_those_of_trying_every_span(unanswerable, scale, starts):
    draw = np.random.default_rng(0)
    for count, length, stride, longest, best in (
        (1, 9, 3, 1, 1),
        (3, 16, 9, 2, 2),
        (8, 10, 2, 3, 5),
        (29, 20, 5, 6, 3),
    ):
        threshold = scale * float(draw.normal())
        options = {"stride": stride, "max_answer": longest, "n_best": best, "unanswerable": unanswerable}
        kind = KIND.configured({**options, "null_threshold": threshold, "starts": starts})
        rows = kind.rows(words(), ("where", " ".join(draw.choice([*"abcdefgh"], count))), length)
        for _ in range(5):
            values = [scale * draw.normal(size=(row.length, kind.width(()))).astype("float32") for row in rows]
            answer = kind.decode((), rows, values, ())
            answers = [(each.start, each.end, each.score) for each in (answer, *answer.alternatives)]
            expected = every_span(kind, rows, values, unanswerable, threshold)
            assert len(answers) == min(best, len(expected))
            np.testing.assert_allclose(answers, expected[:best], rtol=1e-3, atol=1e-6)


def test_of_several_starts_no_other_begins_an_answer():
    """A row's likeliest starts are its first and its third token of the context; the second begins nothing."""
    kind = KIND.configured({"starts": 2, "n_best": 20})
    rows = kind.rows(words(), ("x", "a b c"), 9)
    values = np.zeros((rows[0].length, 4), "float32")
    values[:, ::2] = IMPOSSIBLE
    place = rows[0].about.place
    values[place, 0], values[place + 2, 2] = -1, -2
    values[place + 1, 1] = 3
    answer = kind.decode((), rows, [values], ())
    assert [(each.text) for each in (answer, *answer.alternatives)] == ["a b", "a", "a b c", "c"]
    assert np.isfinite(kind.signal([values])).all()


def test_the_context_may_stand_first():
    kind = KIND.configured({"context_first": True, "stride": 2, "max_answer": 1})
    tokenizer = words()
    rows = kind.rows(tokenizer, ("x", "a b c d"), 7)
    assert len(rows) > 1
    for row in rows:
        window = row.about
        assert window.place == 1
        assert row.token_ids[1 : 1 + window.count] == window.context.ids[window.begin : window.begin + window.count]
        assert row.token_ids[2 + window.count] == tokenizer.encode("x")[0]
    assert kind.focus == ""


@pytest.mark.parametrize("threshold", [0.0, 2.0])
@pytest.mark.parametrize(
    ("gap", "off", "same"), [(0.02, 0.03, True), (0.02, -0.01, True), (0.5, 0.03, False), (0.5, 0.6, False)]
)
def test_answers_tie_within_the_rounding_of_the_file(threshold, gap, off, same):
    """Of one context the best two are `gap` apart, and the file adds `off` to the second; elsewhere it is off by 0.02."""
    kind = KIND.configured({"unanswerable": True, "max_answer": 1, "null_threshold": threshold})
    rows = [kind.rows(words(), ("where", "a b c d"), 16)[0] for _ in range(40)]
    own, place = np.random.default_rng(0).normal(size=(40, 4)), rows[0].about.place
    own[:, 0] = 3 + np.arange(40) % 5
    own[0] = 4, 1, 0, 0
    expected = outputs(rows, np.zeros(4), np.zeros(4))
    for value, starts in zip(expected, own):
        value[place : place + 4, 0] = starts
    expected[0][rows[0].about.null] = (4 - gap + threshold) / 2  # the empty answer, less its threshold, comes second
    received = [
        value + 0.02 * (-1) ** i * (np.arange(len(value)) == place)[:, None] for i, value in enumerate(expected)
    ]
    received[0] = expected[0].copy()
    received[0][rows[0].about.null] += off / 2
    changed = off > gap
    owners = np.arange(40)
    assert kind.agreement(expected, received, owners, rows) == pytest.approx(1 - changed / 40)
    assert kind.agreement(expected, received, owners, rows, ties=True) == pytest.approx(1 - (changed and not same) / 40)


def test_no_answer_wins_by_more_than_the_threshold():
    kind = KIND.configured({"unanswerable": True, "stride": 2, "max_answer": 1})
    rows = kind.rows(words(), ("where", "a b c d e"), 7)
    assert len(rows) == 2
    values = outputs(rows, np.array([0, 1, 0, 0, 0.0]), np.zeros(5))
    values[0][0], values[1][0] = 4, 1  # the sums are 8 and 2, of which the least counts
    scores, null = kind.scores(rows, values)
    assert null == 2
    assert scores.max() == 1
    answer = kind.decode((), rows, values, ())
    assert (answer.text, answer.start, answer.end, answer.alternatives[0].text) == ("", 0, 0, "b")
    assert answer.score == pytest.approx(np.exp(2) / (np.exp(2) + np.exp(1) + 4))
    answer = kind.configured({**kind.options, "null_threshold": 1.0}).decode((), rows, values, ())
    assert (answer.text, answer.alternatives[0].text) == ("b", "")
    assert KIND.decode((), rows, values, ()).text == "b"


@pytest.mark.parametrize("count", [0, 1, 5, 37, 100])
def test_every_token_stands_in_a_window_and_belongs_to_one(count):
    for room in (1, 2, 7, 40):
        for step in range(1, room + 1):
            begins = windows(count, room, step)
            ends = [min(begin + room, count) for begin in begins]
            assert all(later <= end for later, end in zip(begins[1:], ends))
            assert ends[-1] == count
            assert all(end < count for end in ends[:-1])
            scores = np.full((len(begins), count), -1.0)
            for i, (begin, end) in enumerate(zip(begins, ends)):
                for token in range(begin, end):
                    scores[i, token] = min(token - begin, end - 1 - token) + 0.01 * (end - begin)  # as BERT counts
            number = np.zeros(count, int)
            for i, own in enumerate(owned(count, room, begins)):
                number[own] = i
                assert begins[i] <= own.start <= own.stop <= max(ends[i], own.start)
            assert sum(own.stop - own.start for own in owned(count, room, begins)) == count
            chosen = scores[number, np.arange(count)]
            np.testing.assert_allclose(chosen, scores.max(0, initial=-1) if count else [], atol=1e-9)


def test_short_windows_share_two_answers():
    """Long windows step by BERT's 128; of short ones two share twice the longest answer, or half of them."""
    assert [KIND.step(room) for room in (369, 241, 188, 150, 113, 20, 1)] == [128, 128, 128, 90, 57, 10, 1]


def test_a_question_has_at_most_its_tokens_and_half_of_the_room():
    tokenizer = words()
    (row,) = KIND.rows(tokenizer, ("a " * 80, "b"), 512)
    assert (row.about.place, row.truncated) == (66, True)
    rows = KIND.rows(tokenizer, ("a b c d e", "f g h a"), 8)
    assert [(row.about.place, row.truncated) for row in rows] == [(4, True)] * 2
    assert not KIND.rows(tokenizer, ("a " * 64, "b"), 512)[0].truncated
    with pytest.raises(
        InputError, match=r"length is 4, expected at least 5: the special tokens, a token of the question"
    ):
        KIND.rows(tokenizer, ("a", "b"), 4)


@pytest.mark.parametrize("parts", [("", "a b"), ("  ", "a b"), ("a", ""), ("a", " \n"), ("", "")])
def test_no_question_or_no_context_has_the_empty_answer(parts):
    rows = KIND.rows(words(), parts, 16)
    assert len(rows) == 1
    for kind in (KIND, KIND.configured({"unanswerable": True})):
        answer = kind.decode(parts, rows, [np.ones((rows[0].length, 2), "float32")], ())
        assert answer.to_json() == {"text": "", "start": 0, "end": 0, "score": 0.0}


def test_equal_scores_give_the_first_span():
    rows = KIND.rows(words(), ("where", "a b " * 60), 160)
    answer = KIND.decode((), rows, [np.zeros((row.length, 2), "float32") for row in rows], ())
    assert (answer.start, answer.end) == (0, 1)
    one = KIND.configured({"n_best": 1}).decode((), rows, [np.zeros((row.length, 2), "float32") for row in rows], ())
    assert (one.start, one.end) == (0, 1)


def test_what_a_file_is_judged_by_are_the_log_probabilities_of_its_rows():
    rows = [np.log(np.array([[1.0, 2.0], [3.0, 2.0]])), np.log(np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 6.0]]))]
    shares = np.array([[1 / 4, 1 / 2], [3 / 4, 1 / 2], [1 / 4, 1 / 8], [1 / 4, 1 / 8], [1 / 2, 3 / 4]])
    np.testing.assert_allclose(np.exp(KIND.signal(rows)), shares)
    assert KIND.signal([]).shape == (0, 2)


def test_agreement_is_the_overlap_of_the_answers():
    rows, owners = [], []
    for i, context in enumerate(["a b c", "d e f g", ""]):
        packed = KIND.rows(words(), ("where", context), 16)
        rows += packed
        owners += [i] * len(packed)
    expected = [np.zeros((row.length, 2), "float32") for row in rows]
    received = [value.copy() for value in expected]
    expected[0][3, 0] = expected[0][5, 1] = 5  # a b c
    received[0][4, 0] = received[0][5, 1] = 5  # b c: three of five characters
    assert KIND.agreement(expected, received, owners, rows) == pytest.approx((2 * 3 / 8 + 1 + 1) / 3)
    assert KIND.agreement(expected, expected, owners, rows) == 1.0
    received[1][0, 0] = np.nan
    assert KIND.agreement(expected, received, owners, rows) == 0.0


def test_blanks_are_those_of_strip():
    assert {chr(i) for i in BLANKS} == {chr(i) for i in range(sys.maxunicode + 1) if chr(i).isspace()}


def test_a_surrogate_is_replaced():
    context = "a \ud800 b"
    (row,) = KIND.rows(words(), ("where", context), 16)
    answer = KIND.decode((), [row], outputs([row], np.array([5, 0.0]), np.array([0, 5.0])), ())
    assert answer.text == "a \ufffd b" == row.about.context.text[answer.start : answer.end]


TOKENIZERS = {
    "wordpiece": lambda: load_tokenizer(shared("data/vocab/bert-base-uncased/vocab.txt")),
    "bpe": kinds.gpt2_bpe,
    "unigram": lambda: kinds.shared_unigram("t5-base"),
}
FILES = [
    *(f"squad/{split}_slice-v{version}.json" for split in ("train", "dev") for version in ("1.1", "2.0")),
    *(f"xquad/xquad.{language}.json" for language in ("ar", "de", "en", "es", "zh")),
]


def questions(name, every):
    """(question, context, golds as (text, start)); every so many paragraphs."""
    articles = json.loads(shared(f"data/{name}").read_text())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    for paragraph in paragraphs[::every]:
        for question in paragraph["qas"]:
            golds = [(each["text"], each["answer_start"]) for each in question["answers"]]
            yield question["question"], paragraph["context"], golds


def every_answer_stands_in_its_context(name, tokenizer, every, length):
    """Of random logits; returns the exact match of the tokens that cover the first answer, and the number of them."""
    kind, generator = KIND.configured({"n_best": 3}), np.random.default_rng(0)
    covering = KIND.configured({"max_answer": 500, "n_best": 1})
    answers, wanted = [], []
    for question, context, golds in questions(name, every):
        rows = kind.rows(tokenizer, (question, context), length)
        answer = kind.decode((), rows, [generator.normal(size=(row.length, 2)).astype("float32") for row in rows], ())
        for each in (answer, *answer.alternatives):
            assert each.text == context[each.start : each.end] == each.text.strip() != ""
        if golds:
            text, start = golds[0]
            rows = covering.rows(tokenizer, (question, context), 2048)
            first, last = rows[0].about.context.covering(start, start + len(text))
            values = outputs(
                rows, *(np.where(np.arange(len(rows[0].about.context.ids)) == at, 9.0, 0) for at in (first, last))
            )
            answers.append(covering.decode((), rows, values, ()).text)
            wanted.append([text for text, _ in golds])
    return compared(answers, wanted)[:, 0].mean(), len(answers)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_answers_stand_in_their_context(tokenizer):
    """Of a hundredth of the paragraphs; all of them under `full`."""
    tokenizer = TOKENIZERS[tokenizer]()
    for name in FILES:
        every_answer_stands_in_its_context(name, tokenizer, 100, 192)
    share, count = every_answer_stands_in_its_context("squad/dev_slice-v1.1.json", tokenizer, 9, 192)
    assert share >= 0.99
    assert count > 150


@pytest.mark.full
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_all_answers_stand_in_their_context(tokenizer):
    tokenizer = TOKENIZERS[tokenizer]()
    for name in FILES:
        share, _ = every_answer_stands_in_its_context(name, tokenizer, 1, 256)
        if name.startswith("squad"):
            assert share >= 0.99, name


def test_a_context_is_tokenized_once(monkeypatch):
    tokenizer, calls = words(), []
    whole = tokenizer.tokenize
    monkeypatch.setattr(tokenizer, "tokenize", lambda text: calls.append(text) or whole(text))
    for question in ("a", "b", "c"):
        KIND.rows(tokenizer, (question, "a b c d"), 16)
    assert calls == ["a b c d"]
    assert tokenized(tokenizer, "a").text == "a"
    assert span.tokenized(tokenizer, "a b c d").ids == tokenizer.encode("a b c d")
