"""Texts that are alike: cosines of their vectors, and the nearest texts to a query."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasbert.answers.vector import cosines
from kerasbert.blanks import absent
from kerasbert.errors import InputError
from kerasbert.tasks import predict
from kerasbert.tasks.given import listed


@dataclasses.dataclass(frozen=True)
class Hit:
    """A text that was found.

    Args:
        index: int, its number from 0. text: str. score: float, the cosine of its vector and the query's.
        id: str, its name in an index; None without one.
    """

    index: int
    text: str
    score: float
    id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def vectors(model: Any, texts: Sequence[str], *, length: int | None = None, language: str | None = None) -> np.ndarray:
    """A vector of each text, float32 [n, H]: as its task pools and normalizes; of another model as `kb.encode`.

    Args:
        model: a directory or a loaded model. length: int, tokens a text may have. language: str, for XLM.
    """
    model = predict.as_model(model)
    predict.check_ours(model)
    return predict.encode(model, texts, length=length, language=language)


def similarity(
    model: Any, texts: Sequence[str], others: Sequence[str], *, length: int | None = None, language: str | None = None
) -> np.ndarray:
    """Cosines of the vectors of texts and others, one by one: float64 [n], 1 for the same direction.

    Args:
        model: a run's directory or a loaded model: a vector's (`--task sts`, an import from sentence-transformers), or one
            whose encoder's are taken, as by `kb.encode`.
        texts, others: lists of str, as long as each other.
        length: int, tokens a text may have; that of the task's training by default.
        language: str, of the texts, for a model that reads it (XLM).

    Raises:
        InputError: lists of different lengths.
    """
    texts, others = _texts(texts, "texts"), _texts(others, "others")
    if len(texts) != len(others):
        raise InputError(f"similarity received {len(texts)} texts and {len(others)} others, expected as many")
    different = list(dict.fromkeys([*texts, *others]))
    found = vectors(model, different, length=length, language=language).astype("float64")
    rows = {text: i for i, text in enumerate(different)}
    return cosines(found[[rows[text] for text in texts]], found[[rows[text] for text in others]])


def _texts(given: Any, what: str) -> list[Any]:
    """Texts of a call, each checked under its own number."""
    texts = listed(given, what=what)
    for i, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            told = repr(text) if absent(text) else f"a {type(text).__name__}"
            raise InputError(f"{what}: text {i} is {told}, expected str")
    return texts


def search(
    model: Any,
    texts: Sequence[str],
    query: str,
    *,
    top: int = 5,
    length: int | None = None,
    language: str | None = None,
) -> list[Hit]:
    """The texts nearest to a query by the cosine of their vectors, nearest first; equals in their order.

    Args:
        model, length, language: as of `similarity`.
        texts: list of str. query: str. top: int, how many at most.
    """
    return searched(model, texts, [query], top=top, length=length, language=language)[0]


def searched(
    model: Any, texts: Sequence[str], queries: Sequence[str], *, top: int = 5, **settings: Any
) -> list[list[Hit]]:
    """`search` of several queries; the texts are read once."""
    if type(top) is not int or top < 1:
        raise InputError(f"top must be a whole number of at least 1. Received: {top!r}")
    texts, queries = _texts(texts, "texts"), _texts(queries, "queries")
    model = predict.as_model(model)
    held = vectors(model, texts, **settings).astype("float64")
    hits = []
    for vector in vectors(model, queries, **settings).astype("float64"):
        scores = cosines(held, vector)
        nearest = np.argsort(-scores, kind="stable")[:top]
        hits.append([Hit(int(i), texts[int(i)], float(scores[i])) for i in nearest])
    return hits
