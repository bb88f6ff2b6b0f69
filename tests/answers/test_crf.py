"""Best paths and marginals against all sequences written out, ties among them; the same in the graph."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import answers
from kerasbert.answers import crf
from kerasbert.answers.schemes import entities_of, illegal, mended, scheme_of
from kerasbert.errors import InputError
from kerasbert.tasks.tags_graph import best_paths
from tests import tiny
from tests.layers.test_crf import score

LABELS = ("B-PER", "I-PER", "O")


def first_best(emissions, table):
    """Of the sequences with the highest score the first, their last label compared first."""
    sequences = itertools.product(range(table.shape[1]), repeat=len(emissions))
    return max(sequences, key=lambda y: (score(emissions, y, table), tuple(-label for label in reversed(y))))


@pytest.mark.parametrize("seed", range(4))
def test_best_paths_and_marginals_equal_all_sequences(seed):
    draw = np.random.default_rng(seed)
    whole = seed % 2  # small whole numbers tie
    values = (lambda *shape: draw.integers(-1, 2, shape).astype(float)) if whole else (lambda *s: draw.normal(size=s))
    emissions, table, ties = values(5, 3), values(5, 3), 0
    assert crf.best_path(emissions, table).tolist() == list(first_best(emissions, table))
    weights = {y: np.exp(score(emissions, y, table)) for y in itertools.product(range(3), repeat=5)}
    wanted = [[sum(w for y, w in weights.items() if y[t] == label) for label in range(3)] for t in range(5)]
    np.testing.assert_allclose(crf.marginals(emissions, table), np.array(wanted) / sum(weights.values()), rtol=1e-10)
    ties = sum(np.isclose(w, max(weights.values())) for w in weights.values())
    assert (ties > 1) == bool(whole)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_loss_is_of_one_path_among_all(count):
    draw = np.random.default_rng(count)
    emissions, table = draw.normal(size=(count, 3)), draw.normal(size=(5, 3))
    weights = {y: np.exp(score(emissions, y, table)) for y in itertools.product(range(3), repeat=count)}
    for y, weight in weights.items():
        assert crf.nats(emissions, np.array(y), table) == pytest.approx(-np.log(weight / sum(weights.values())))
    assert crf.nats(emissions[:0], np.zeros(0, int), table) == 0


def _with(table, *arrays):
    return best_paths(*arrays, table)


def test_the_graph_finds_the_same_paths_of_many_texts_at_once():
    draw = np.random.default_rng(0)
    for whole in (False, True):
        values = (lambda *s: draw.integers(-1, 2, s).astype(float)) if whole else (lambda *s: draw.normal(size=s))
        counts = draw.integers(0, 12, 60)
        texts, table = np.repeat(np.arange(60), counts), values(6, 4)
        emissions, answered = np.float32(values(len(texts), 4)), draw.random(len(texts)) < 0.8
        arrays = tf.constant(emissions), tf.constant(answered), tf.constant(texts), tf.constant(60, tf.int64)
        graph = tf.function(functools.partial(_with, table), autograph=False)
        labels, scores = (each.numpy() for each in graph(*arrays))
        for text in range(60):
            at = np.flatnonzero((texts == text) & answered)
            wanted = crf.best_path(emissions[at], table)
            assert labels[at].tolist() == wanted.tolist()
            known = crf.marginals(emissions[at].astype(float), table)[np.arange(len(at)), wanted]
            np.testing.assert_allclose(scores[at], known, atol=1e-6)


def test_one_path_goes_through_all_windows():
    """Emissions that say nothing: the label of the first word is handed on through every window."""
    table = [[9.0, -9, -9], [-9, 9, -9], [-9, -9, 9], [0, 0, 0], [0, 0, 0]]
    kind = answers.find("tags").configured({"crf": True, "transitions": table, "stride": 2})
    text = "the cat \u200b sees " + "the old dog " * 9
    rows = kind.rows(tiny.tokenizer(), (text,), 8)
    assert len(rows) > 10
    outputs = [np.zeros((row.length, 3), "float32") for row in rows]
    outputs[0][1] = [0, 1, 0]
    found = kind.decode((text,), rows, outputs, LABELS)
    assert [(word, label) for word, label in zip(found.words, found.labels) if label != "I-PER"] == [("\u200b", "O")]
    assert sorted(found.scores)[1:] == pytest.approx([1 / (1 + 2 * np.exp(-1))] * 30, abs=1e-4)
    other = [each.copy() for each in outputs]
    other[0][1] = [1, 0, 0]
    assert kind.agreement(outputs, outputs, np.zeros(len(rows), int), rows) == 1.0
    assert kind.agreement(outputs, other, np.zeros(len(rows), int), rows) == 0.0
    with pytest.raises(InputError, match=r"transitions of shape \(5, 3\), expected \(4, 2\): 2 labels"):
        kind.decode((text,), rows, [each[:, :2] for each in outputs], LABELS[:2])
    assert kind.decode(("",), kind.rows(tiny.tokenizer(), ("",), 8), [np.zeros((2, 3))], LABELS).words == ()


def test_what_is_not_legal():
    assert illegal(LABELS).tolist() == [
        [False] * 3,
        [False] * 3,
        [False, True, False],
        [False, True, False],
        [False] * 3,
    ]
    wrong = illegal(("B-X", "E-X", "I-Y"))
    assert wrong[:-1].tolist() == [[False, False, True], [False, True, True], [False, True, False], [False, True, True]]
    assert not illegal(("INTJ", "NOUN")).any()  # no labels of spans


def written(scheme):
    """Nine words with four spans, two of them of one type side by side, by the papers' definitions."""
    texts = {
        "IOBES": "B-X E-X O S-Y B-X I-X E-X S-X O",
        "IOBE": "B-X E-X O B-Y B-X I-X E-X B-X O",
        "IOB2": "B-X I-X O B-Y B-X I-X I-X B-X O",
        "IOB1": "I-X I-X O I-Y I-X I-X I-X B-X O",
        "IOE2": "I-X E-X O E-Y I-X I-X E-X E-X O",
        "IOE1": "I-X I-X O I-Y I-X I-X E-X I-X O",
        "IO": "I-X I-X O I-Y I-X I-X I-X I-X O",
        "BILOU": "B-X L-X O U-Y B-X I-X L-X U-X O",
        "BMES": "B-X E-X O S-Y B-X M-X E-X S-X O",
    }
    return texts[scheme].split()


@pytest.mark.parametrize("name", ["IOBES", "IOBE", "IOB2", "IOB1", "IOE2", "IOE1", "IO", "BILOU", "BMES"])
def test_what_is_legal_follows_the_scheme_of_the_training_tags(name):
    """IOB1's spans begin with I: none of them was legal, and no entity could be answered."""
    labels, known = written(name), {"BILOU": "IOBES", "BMES": "IOBES"}.get(name, name)
    assert scheme_of([labels] * 3) == known
    assert mended(labels, known) == 0
    spans = [("X", 0, 1), ("Y", 3, 3), ("X", 4, 6), ("X", 7, 7)]
    assert entities_of(labels) == ([*spans[:2], ("X", 4, 7)] if name == "IO" else spans)
    names = sorted(set(labels))
    table = np.where(illegal(names, known), -1e4, 0.0)
    emissions = 3.0 * np.eye(len(names))[[names.index(label) for label in labels]]
    assert [names[i] for i in crf.best_path(emissions, table)] == labels
    assert crf.nats(emissions, np.array([names.index(label) for label in labels]), table) < 9 * np.log(len(names))


@pytest.mark.parametrize(
    ("labels", "scheme", "count"),
    [
        ("O I-X I-X B-Y", "IOB2", 1),
        ("O I-X I-X B-Y", "IOB1", 1),  # B alone behind a span of its type
        ("B-X O", "IOB1", 1),
        ("B-X O B-X I-X", "IOBES", 2),  # spans that do not end, the last one too
        ("S-X E-X", "IOBES", 1),
        ("I-X O", "IOE2", 1),
        ("E-X O", "IOE1", 1),
        ("E-X I-X", "IOE1", 0),
        ("B-X I-X O I-Y", "IO", 0),
        ("", "IOB2", 0),
    ],
)
def test_places_that_break_a_scheme_are_counted(labels, scheme, count):
    assert mended(labels.split(), scheme) == count


def test_a_scheme_is_found_in_spite_of_mistakes():
    assert scheme_of([["B-X", "I-X", "O"]] * 30 + [["I-X", "O"]] * 2) == "IOB2"
    assert scheme_of([["I-X", "I-X", "O"]] * 30 + [["B-X", "O"]] * 2) == "IOB1"
    assert scheme_of([["B-X", "O"], ["I-X", "O"]] * 9) == "IO"  # neither
    assert scheme_of([["NOUN", "INTJ"]]) == scheme_of([]) == scheme_of([[]]) == ""
