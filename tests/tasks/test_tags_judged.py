"""What a report shows of tags beside counting in the plainest way."""

import random

import numpy as np
import pytest

from kerasbert.answers.schemes import entities_of
from kerasbert.tasks.tags_judged import judged, shown

SPANS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
NAMES = {"spans": SPANS, "parts of speech": ("NOUN", "VERB", "O")}


def drawn(names, count=30):
    """(own tags, answered tags) of inputs, one without words; nats of their words."""
    draw = random.Random(0)
    pairs = [([], [])]
    for _ in range(count):
        own = draw.choices(names, k=draw.randint(1, 9))
        pairs.append((own, [tag if draw.random() < 0.6 else draw.choice(names) for tag in own]))
    nats = np.array([[sum(draw.random() for _ in own), len(own)] for own, _ in pairs])
    return pairs, nats


@pytest.mark.parametrize("kind", NAMES)
def test_metrics_of_a_sample_are_those_of_its_inputs(kind):
    names = NAMES[kind]
    pairs, nats = drawn(names)
    found = judged(names, pairs, nats)
    for numbers in ([*range(31)], [3, 3, 5], [0], [7]):
        words = [tags for i in numbers for tags in zip(*pairs[i])]
        hits = sum(own == answered for own, answered in words)
        expected = {"accuracy": hits / max(1, len(words))}
        expected["loss"] = sum(nats[i, 0] for i in numbers) / max(1, sum(nats[i, 1] for i in numbers))
        if kind == "spans":
            gold, answered = (
                [(i, *span) for n, i in enumerate(numbers) for span in entities_of(pairs[i][side])] for side in (0, 1)
            )
            both = sum(len({*entities_of(pairs[i][0])} & {*entities_of(pairs[i][1])}) for i in numbers)
            expected["precision"] = both / len(answered) if answered else 0
            expected["recall"] = both / len(gold) if gold else 0
            expected["f1"] = 2 * both / (len(gold) + len(answered)) if both else 0
        assert found.sampled(numbers) == pytest.approx(expected)


def test_errors_are_spans_first_and_words_among_equals():
    pairs = [
        (["B-PER", "O"], ["B-PER", "O"]),
        (["B-PER", "O"], ["B-LOC", "O"]),
        (["O"], ["B-PER"]),
        (["O", "O"], ["I-X", "I-X"]),
    ]
    assert judged(SPANS, pairs, np.ones((4, 2))).errors == pytest.approx([0, 2.001, 1.001, 1.002])
    words = [(["NOUN", "VERB"], ["NOUN", "NOUN"]), (["O"], ["O"])]
    found = judged(NAMES["parts of speech"], words, np.ones((2, 2)))
    assert found.errors.tolist() == [1, 0]
    assert (found.answer(0), found.answer(1), dict(found.picture)) == ([["NOUN", 1, 1]], [], {})


@pytest.mark.parametrize(
    ("own", "answered", "bars"),
    [
        ("BIO", "BIO", {"found": 1}),
        ("BIO", "LJO", {"found with another type": 1}),
        ("BIO", "BOO", {"found with other ends": 1}),
        ("BIO", "OBI", {"found with other ends": 1}),
        ("BOO", "OOB", {"missed": 1, "answered where there is none": 1}),
        ("BOO", "OBO", {"missed": 1, "answered where there is none": 1}),
        ("OBB", "BIO", {"missed": 1, "found with other ends": 1}),
        ("OOO", "BBO", {"answered where there is none": 2}),
        ("OOO", "OOO", {}),
    ],
)
def test_bars_say_how_spans_are_missed(own, answered, bars):
    """B and I of a person, L and J of a place."""
    said = {"B": "B-PER", "I": "I-PER", "L": "B-LOC", "J": "I-LOC", "O": "O"}
    pairs = [([said[c] for c in own], [said[c] for c in answered])]
    found = judged(SPANS, pairs, np.ones((1, 2)))
    assert {name: count for name, count in found.picture["bars"].items() if count} == bars
    assert found.answer(0) == [list(span) for span in sorted(entities_of(pairs[0][1]), key=lambda span: span[1])]


def test_what_is_shown_are_the_words_of_spans():
    words, own = ["Zoe", "sees", "New", "York"], ["B-PER", "O", "B-LOC", "I-LOC"]
    assert shown(SPANS, words, own, [["LOC", 2, 2]]) == ("PER: Zoe; LOC: New York", "LOC: New")
    assert shown(SPANS, words, ["O"] * 4, []) == ("none", "none")
    assert shown(NAMES["parts of speech"], words, ["NOUN", "VERB", "O", "O"], [["NOUN", 1, 1]]) == (
        "VERB: sees",
        "NOUN: sees",
    )
