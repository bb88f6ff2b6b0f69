"""How far two answers to a question agree: those of a model and of its file."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kerasbert.answers.span import Span


def _ranked(span: "Span", null: float = 0.0) -> dict[tuple[int, int], float]:
    """Logs of the probabilities of an answer and of its alternatives, the empty one less its threshold."""
    logs = {(each.start, each.end): float(np.log(max(each.score, 1e-30))) for each in (span, *span.alternatives)}
    return {place: log - (null if place == (0, 0) else 0.0) for place, log in logs.items()}


def margin(one: "Span", other: "Span", null: float) -> float:
    """How much more the first prefers its own answer to the second's; without end where that is none of its best."""
    logs = _ranked(one, null)
    return logs[one.start, one.end] - logs.get((other.start, other.end), -np.inf)


def error(one: "Span", other: "Span") -> float | None:
    """How far apart both have the first's best two answers; None where the second has others."""
    own, theirs = _ranked(one), _ranked(other)
    best = list(own)[:2]
    if len(best) < 2 or not all(place in theirs for place in best):
        return None
    return (theirs[best[0]] - theirs[best[1]]) - (own[best[0]] - own[best[1]])


def overlap(one: "Span", other: "Span") -> float:
    """F1 of the characters of two answers."""
    if (one.start, one.end) == (other.start, other.end):
        return 1.0
    shared = max(0, min(one.end, other.end) - max(one.start, other.start))
    return 2 * shared / max(1, one.end - one.start + other.end - other.start)
