"""Windows and the choice of a span in the graph = in Python, on real questions in five languages, with numbers for a network."""

import numpy as np
import pytest

from kerasbert.answers.span import SpanKind
from tests.answers.test_span import TOKENIZERS, questions, words

LENGTHS = (40, 256)
PAIRS = [("", ""), ("where", ""), ("", "a b"), (" ", "a b"), ("where", " \n "), ("where", "x"), ("w " * 100, "a b c")]
BYTES = (b"where\xff?", "café ".encode() + b"\xff\xfe is here \xe2\x82 and there")


def numbers():
    """What a network would say of a token at its place."""
    return np.random.default_rng(0).normal(0, 3, (40_000, 2)).astype("float32")


def asked():
    pairs = list(PAIRS)
    for name in (
        "squad/dev_slice-v1.1.json",
        *(f"xquad/xquad.{language}.json" for language in ("ar", "de", "es", "zh")),
    ):
        pairs += [(question, context) for question, context, _ in list(questions(name, 1))[::120]]
    long = " ".join(context for _, context, _ in list(questions("xquad/xquad.de.json", 1))[::9])
    return [*pairs, ("where is it?", long), BYTES]


TINY = [
    *PAIRS,
    ("where ?", "a b c d e f g h"),
    ("where", "  a  b\tc \n d "),
    ("where ? " * 9, "abc def gh " * 9),
    ("a", "e\u0301 a\u00a0b c"),
    ("where", "a b c d e f g h " * 12),
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unanswerable": True, "null_threshold": 0.5, "stride": 3, "max_answer": 2},
        {"max_answer": 1, "stride": 1, "question": 3},
        {"unanswerable": True, "null_threshold": -3.0, "max_answer": 9, "stride": 5},
    ],
)
@pytest.mark.parametrize("length", [6, 12])
def test_the_graph_answers_as_python_on_a_few_letters(options, length):
    import tensorflow as tf

    from kerasbert.tasks import span_graph
    from kerasbert.text.graph import graph_tokenizer

    tokenizer, kind, table = words(), SpanKind().configured(options), numbers()

    def run(packed):
        places = packed["token_ids"] * 31 + tf.range(tf.shape(packed["token_ids"])[1]) * 7
        return {"logits": tf.gather(table, places % 40_000)}

    strings = [tf.constant(part) for part in zip(*TINY)]
    numbers_of = [
        (1 + i % 7, float(i % 5) - 2) for i in range(len(TINY))
    ]  # how many answers each asks for, and its threshold
    asked = span_graph.Asked(*map(tf.constant, zip(*numbers_of)))
    served = span_graph.served(kind, run, graph_tokenizer(tokenizer), strings, length)
    ranked = span_graph.served(kind, run, graph_tokenizer(tokenizer), strings, length, asked)
    served, ranked = ({name: value.numpy().tolist() for name, value in each.items()} for each in (served, ranked))
    for i, pair in enumerate(TINY):
        rows = kind.rows(tokenizer, pair, length)
        values = [table[(np.array(row.token_ids) * 31 + np.arange(row.length) * 7) % 40_000] for row in rows]
        answer = kind.decode(pair, rows, values, ())
        found = served["text"][i].decode(), served["start"][i], served["end"][i]
        assert found == (answer.text, answer.start, answer.end), pair
        assert abs(served["score"][i] - answer.score) < 1e-5, pair
        check_ranked(served, i, answer)
        n_best, threshold = numbers_of[i]
        own = kind.configured({"n_best": n_best, "null_threshold": threshold})
        check_ranked(ranked, i, own.decode(pair, rows, values, ()))
        if "null_odds" in served and pair[0].strip() and answer.score:
            scores, null = kind.scores(rows, values)
            assert served["null_odds"][i] == pytest.approx(null - scores.max(), abs=1e-4)


def check_ranked(served, i, answer):
    """The answer and all its alternatives in their order, and nothing behind them."""
    wanted = [answer, *answer.alternatives]
    count = served["answer_counts"][i]
    names = ("texts", "starts", "ends", "scores")
    found = list(zip(*(served[name][i] for name in names)))
    assert count == len(wanted)
    assert [(text.decode(), start, end) for text, start, end, _ in found[:count]] == [
        (each.text, each.start, each.end) for each in wanted
    ]
    np.testing.assert_allclose([each[3] for each in found[:count]], [each.score for each in wanted], atol=1e-5)
    assert set(found[count:]) <= {(b"", 0, 0, 0.0)}


def test_each_token_has_the_window_of_most_context():
    """Windows of six tokens every three, as in answers/test_span: e has more context in the first one."""
    import tensorflow as tf

    from kerasbert.tasks import span_graph
    from kerasbert.text.graph import graph_tokenizer

    kind = SpanKind().configured({"stride": 3, "max_answer": 1})
    graph = graph_tokenizer(words())
    ids, asked = graph.encode(["a b c d e f g h", "", "a b c d e f g"]), graph.encode(["where ?"] * 3)
    counts = tf.cast(ids.row_lengths(), tf.int32)
    room = kind.room(graph, 11) - tf.cast(asked.row_lengths(), tf.int32)
    windows = span_graph._windows(kind, graph, asked, ids, counts, room)
    assert windows.owner.numpy().tolist() == [0, 0, 1, 2, 2]
    assert windows.begin.numpy().tolist() == [0, 3, 0, 0, 3]
    assert windows.size.numpy().tolist() == [6, 5, 0, 6, 4]
    assert windows.place.numpy().tolist() == [4] * 5
    assert windows.null.numpy().tolist() == [0] * 5
    assert windows.chosen.numpy().tolist() == [0] * 5 + [1] * 3 + [3] * 5 + [4] * 2


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"unanswerable": True, "null_threshold": 0.5, "stride": 20, "max_answer": 7}])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_graph_answers_as_python(name, options):
    import tensorflow as tf

    from kerasbert.tasks import span_graph
    from kerasbert.text.graph import graph_tokenizer

    tokenizer, kind, table = TOKENIZERS[name](), SpanKind().configured(options), numbers()
    graph, pairs = graph_tokenizer(tokenizer), asked()

    def run(packed):
        places = packed["token_ids"] * 31 + tf.range(tf.shape(packed["token_ids"])[1]) * 7
        return {"logits": tf.gather(table, places % 40_000)}

    for length in LENGTHS:
        strings = [
            tf.constant([each if isinstance(each, bytes) else each.encode() for each in part]) for part in zip(*pairs)
        ]
        served = span_graph.served(kind, run, graph, strings, length)
        served = {name: value.numpy().tolist() for name, value in served.items()}
        windows = 0
        for i, pair in enumerate(pairs):
            rows = kind.rows(tokenizer, pair, length)
            windows = max(windows, len(rows))
            values = [table[(np.array(row.token_ids) * 31 + np.arange(row.length) * 7) % 40_000] for row in rows]
            answer = kind.decode(pair, rows, values, ())
            assert (served["text"][i].decode(), served["start"][i], served["end"][i]) == (
                answer.text,
                answer.start,
                answer.end,
            )
            assert abs(served["score"][i] - answer.score) < 1e-5
        assert windows > 50
        empty = span_graph.served(kind, run, graph, [tf.constant([], tf.string)] * 2, length)
        assert all(value.shape == (0,) for value in empty.values())
