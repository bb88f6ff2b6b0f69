"""Order what was found by a model that reads the query and the text together (a cross-encoder: Nogueira and Cho, 2019)."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kerasbert.tasks import early_checks, predict
from kerasbert.tasks.similarity import Hit

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble


def reranked(model: "keras.Model | Ensemble", query: str, hits: Sequence[Hit], top: int) -> list[Hit]:
    """The hits in the order of the scores that a model of pairs gives, which replace the cosines: the best first.

    Args:
        model: as of `scored`.

    Raises:
        InputError: a model of something else.
    """
    check(model, "rerank")
    scores = scored(model, [(query, hit.text) for hit in hits])
    found = [dataclasses.replace(hit, score=score) for hit, score in zip(hits, scores)]
    return sorted(found, key=lambda hit: -hit.score)[:top]


def check(model: "keras.Model | Ensemble", what: str) -> None:
    """Refuse a model that gives pairs of texts no single score; `what` it is given as."""
    early_checks.judging(getattr(model, "task", None), len(getattr(model, "labels", None) or ()), what)


def scored(model: "keras.Model | Ensemble", pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The scores of pairs: the number of a regression, of a classification of two labels the probability of the second."""
    return [_score(answer) for answer in predict.predict(model, pairs)]


def _score(answer: object) -> float:
    """The number that is answered, or the probability of the second of two labels."""
    if isinstance(value := getattr(answer, "value", None), float):
        return value
    return float([*getattr(answer, "scores").values()][1])  # noqa: B009 (`check` has seen the model)
