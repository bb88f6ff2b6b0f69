"""What the report of a run shows of tags: intervals by sentence, spans by how they were missed, the worst sentences."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerasbert.answers.schemes import entities_of, has_spans
from kerasbert.tasks.judging import Judged, Numbers
from kerasbert.tasks.metrics import precision_recall_f1

Span = tuple[str, int, int]  # type, first and last word
FOUND, OTHER_TYPE, OTHER_ENDS = "found", "found with another type", "found with other ends"
MISSED, INVENTED = "missed", "answered where there is none"


def judged(names: Sequence[str], pairs: Iterable[tuple[list[str], list[str]]], nats: np.ndarray) -> Judged:
    """The tags of some inputs beside their own.

    Args:
        names: of the tags. pairs: (own tags, answered tags) of each input.
        nats: [n, 2], of all words of an input that have a token, and how many these are.
    """
    pairs = list(pairs)
    spans = has_spans(names)
    golds, answers = ([set(entities_of(each[i])) if spans else set() for each in pairs] for i in (0, 1))
    right = [sum(a == b for a, b in zip(*pair)) for pair in pairs]
    columns = [[len(pair[0]) for pair in pairs], right, [*map(len, golds)], [*map(len, answers)]]
    counts = np.array([*columns, [len(a & b) for a, b in zip(golds, answers)], *nats.T], "float64").T

    def sampled(numbers: Numbers) -> dict[str, float]:
        words, hits, gold, answered, both, total, known = counts[numbers].sum(0)
        found = {"accuracy": hits / max(1.0, words), "loss": total / max(1.0, known)}
        if spans:
            precision, recall, f1 = precision_recall_f1(both, answered, gold)
            found |= {"f1": f1, "precision": precision, "recall": recall}
        return {name: float(value) for name, value in found.items()}

    wrong = counts[:, 0] - counts[:, 1]
    errors = np.array([len(a ^ b) for a, b in zip(golds, answers)], "float64") + 1e-3 * wrong if spans else wrong

    def answer(number: int) -> list[list[str | int]]:
        if spans:
            return [list(span) for span in sorted(answers[number], key=lambda span: span[1:])]
        return [[tag, i, i] for i, (own, tag) in enumerate(zip(*pairs[number])) if own != tag]

    bars = _bars(golds, answers) if spans else {}
    return Judged(sampled, answer, errors, picture={"title": "Spans that are", "bars": bars} if bars else {})


def _bars(golds: Sequence[set[Span]], answers: Sequence[set[Span]]) -> dict[str, int]:
    """How many spans are found, or how they are not."""
    counts: dict[str, int] = dict.fromkeys((FOUND, OTHER_TYPE, OTHER_ENDS, MISSED, INVENTED), 0)
    for gold, answered in zip(golds, answers):
        for span in gold:
            counts[_kind(span, answered)] += 1
        counts[INVENTED] += sum(not any(_overlap(span, own) for own in gold) for span in answered)
    return counts


def _kind(span: Span, answered: set[Span]) -> str:
    if span in answered:
        return FOUND
    if any(span[1:] == other[1:] for other in answered):
        return OTHER_TYPE
    return OTHER_ENDS if any(_overlap(span, other) for other in answered) else MISSED


def _overlap(one: Span, other: Span) -> bool:
    return one[1] <= other[2] and other[1] <= one[2]


def shown(names: Sequence[str], words: Sequence[str], own: Sequence[str], answer: Sequence[Sequence[Any]]) -> tuple:
    """What a report prints as expected and as answered: the spans with their words, or the tags that differ."""
    answered: list[Span] = [(kind, first, last) for kind, first, last in answer]  # json knows no tuples
    if has_spans(names):
        expected = [*entities_of(own)]
    else:
        expected = [(own[first], first, last) for _, first, last in answered]
    return _said(words, expected), _said(words, answered)


def _said(words: Sequence[str], spans: Iterable[Span]) -> str:
    return "; ".join(f"{kind}: {' '.join(words[first : last + 1])}" for kind, first, last in spans) or "none"
