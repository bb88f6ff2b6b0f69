"""Words, windows, labels and entities in the graph = in Python, with numbers for a network; with and without a CRF."""

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.tasks import tags_graph
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.text.kinds import small_bpe

LABELS = ("B-PER", "I-PER", "O", "B-LOC", "I-LOC")
TEXTS = [
    "the cat sees zoe",
    "",
    " \t ",
    "New  York, Zoë and a very old house by the river stone " * 3,
    "\u200b cat",
    "a",
    "happy film " * 9,
    "the cat\ud800 sees".encode("utf-8", "replace").decode(),
]
TABLE = np.random.default_rng(1).normal(0, 2, (len(LABELS) + 2, len(LABELS)))
NUMBERS = np.random.default_rng(0).normal(0, 2, (997, len(LABELS))).astype("float32")


def places(token_ids):
    """Where a network's numbers for a token at its place stand."""
    return (token_ids * 31 + np.arange(np.shape(token_ids)[-1]) * 7) % len(NUMBERS)


LISTS = [
    ["the", "cat", "sees", "zoe"],
    [],
    ["", " ", "New York,", " Zo\u00eb\u2003", "and", "", "old"],
    ["\u200b", "cat", "na\u00efve\x1c", "\x85"],
    ["very old", "house"] * 12,
    ["a"],
]


@pytest.mark.parametrize("options", [{}, {"crf": True, "transitions": TABLE.tolist()}], ids=["plain", "crf"])
def test_lists_of_words_are_answered_as_python_answers_them(options):
    """With blanks, empty words and words of several; what stands behind the words of a row is another caller's."""
    import tensorflow as tf

    kind = answers.find("tags").configured({**options, "stride": 3})
    values = NUMBERS if options else softmax(NUMBERS).astype("float32")

    def run(packed):
        return {kind.output: tf.gather(values, places(packed["token_ids"].numpy()))}

    width = max(map(len, LISTS))
    padded = [[*words, *["the"] * (width - len(words))] for words in LISTS]
    sentences = tags_graph.listed(tf.constant(padded), tf.constant([len(words) for words in LISTS]))
    for tokenizer in (tiny.tokenizer(), small_bpe()):
        served = tags_graph.served(run, graph_tokenizer(tokenizer), sentences, 8, LABELS, kind)
        found = tags_graph.unserved({name: value.numpy() for name, value in served.items()})
        for words, got in zip(LISTS, found, strict=True):
            rows = kind.rows(tokenizer, (tuple(words),), 8)
            outputs = [values[places(np.array(row.token_ids))] for row in rows]
            wanted = kind.decode((tuple(words),), rows, outputs, LABELS).to_json()
            np.testing.assert_allclose(got.pop("scores"), wanted.pop("scores"), atol=1e-5)
            assert got == wanted, words


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


@pytest.mark.parametrize("options", [{}, {"crf": True, "transitions": TABLE.tolist()}], ids=["plain", "crf"])
@pytest.mark.parametrize(("length", "stride"), [(8, 0), (7, 2), (9, 100)])
def test_the_graph_answers_as_python(options, length, stride):
    import tensorflow as tf

    kind = answers.find("tags").configured({**options, "stride": stride})
    values = NUMBERS if options else softmax(NUMBERS).astype("float32")

    def run(packed):
        return {kind.output: tf.gather(values, places(packed["token_ids"].numpy()))}

    for tokenizer in (tiny.tokenizer(), *([small_bpe()] if options and stride == 2 else [])):
        served = tags_graph.served(run, graph_tokenizer(tokenizer), tf.constant(TEXTS), length, LABELS, kind)
        found = tags_graph.unserved({name: value.numpy() for name, value in served.items()})
        windows = 0
        for text, got in zip(TEXTS, found):
            rows = kind.rows(tokenizer, (text,), length)
            windows = max(windows, len(rows))
            wanted = kind.decode(
                (text,), rows, [values[places(np.array(row.token_ids))] for row in rows], LABELS
            ).to_json()
            np.testing.assert_allclose(got.pop("scores"), wanted.pop("scores"), atol=1e-5)
            assert got == wanted, text
        assert windows > 1


def test_labels_that_are_no_spans_have_no_entities():
    import tensorflow as tf

    kind, labels = answers.find("tags"), ("NOUN", "VERB")

    def run(packed):
        return {"probabilities": tf.gather(tf.constant([[0.25, 0.75], [0.6, 0.4]]), packed["token_ids"] % 2)}

    served = tags_graph.served(run, graph_tokenizer(tiny.tokenizer()), tf.constant(["the cat", ""]), 8, labels, kind)
    assert sorted(served) == ["ends", "labels", "lengths", "scores", "starts", "truncated", "words"]
    (one, none) = tags_graph.unserved({name: value.numpy() for name, value in served.items()})
    wanted = ["NOUN" if i % 2 else "VERB" for i in tiny.tokenizer().encode("the cat")[:1]]
    assert one["labels"][:1] == wanted
    assert one["entities"] == none["entities"] == none["words"] == []


@pytest.mark.parametrize("lengths", [[3, 1, 0, 2], [1], [0], [4, 4]])
def test_best_paths_of_several_texts(lengths):
    """Each text by itself, words without a token left out: `answers.crf` on what is left."""
    import tensorflow as tf

    from kerasbert.answers import crf

    count, generator = sum(lengths), np.random.default_rng(3)
    values = generator.normal(0, 3, (count, len(LABELS))).astype("float32")
    answered = generator.random(count) < 0.7
    texts = np.repeat(np.arange(len(lengths)), lengths)
    labels, scores = tags_graph.best_paths(
        tf.constant(values),
        tf.constant(answered),
        tf.constant(texts, tf.int64),
        tf.constant(len(lengths), tf.int64),
        TABLE,
    )
    for text in range(len(lengths)):
        own = np.flatnonzero((texts == text) & answered)
        if len(own):
            emissions = values[own].astype("float64")
            path = crf.best_path(emissions, TABLE)
            assert labels.numpy()[own].tolist() == path.tolist()
            marginals = crf.marginals(emissions, TABLE)[np.arange(len(own)), path]
            np.testing.assert_allclose(scores.numpy()[own], marginals, atol=1e-6)
    assert not labels.numpy()[~answered].any()
    assert not scores.numpy()[~answered].any()
