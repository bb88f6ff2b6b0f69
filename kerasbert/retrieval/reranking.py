"""Order what was found by a model that reads the query and the text together (a cross-encoder: Nogueira and Cho, 2019)."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.tasks import predict
from kerasbert.tasks.similarity import Hit

if TYPE_CHECKING:
    import os

    import keras

    from kerasbert.tasks.ensemble import Ensemble


def reranked(
    model: "str | os.PathLike | keras.Model | Ensemble", query: str, hits: Sequence[Hit], top: int
) -> list[Hit]:
    """The hits in the order of the scores that a model of pairs gives, which replace the cosines: the best first.

    Args:
        model: loaded, of pairs: a regression, whose number is the score, or a classification of two labels, whose score is the
            probability of the second.

    Raises:
        InputError: a model of something else.
    """
    task = getattr(model, "task", None)
    if task is None or not task.pair:
        raise _refusal("an encoder" if task is None else f"a {task.kind} of one text")
    answers = predict.predict(model, [(query, hit.text) for hit in hits])
    scores = [_score(answer, task.kind) for answer in answers]
    found = [dataclasses.replace(hit, score=score) for hit, score in zip(hits, scores)]
    return sorted(found, key=lambda hit: -hit.score)[:top]


def _score(answer: object, kind: str) -> float:
    """The number that is answered, or the probability of the second of two labels."""
    if isinstance(value := getattr(answer, "value", None), float):
        return value
    scores = getattr(answer, "scores", None)
    if isinstance(scores, dict) and len(scores) == 2:
        return float([*scores.values()][1])
    raise _refusal(f"a {kind}" + (f" of {len(scores)} labels" if isinstance(scores, dict) else ""))


def _refusal(received: str) -> InputError:
    return InputError(
        f"rerank needs a model of pairs with one score (a regression, or two labels), received {received}: "
        "kerasbert import CROSS_ENCODER --pair --out RUN"
    )
