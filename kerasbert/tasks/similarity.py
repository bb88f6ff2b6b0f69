"""Texts that are alike: cosines of their vectors, and the nearest texts to a query."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.answers.vector import cosines
from kerasbert.blanks import absent, blank
from kerasbert.errors import InputError
from kerasbert.options import checked
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.given import listed
from kerasbert.tasks.prompts import prompt_names
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    import os

    import keras

    from kerasbert.tasks.ensemble import Ensemble


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

    def to_json(self) -> Json:
        """A plain dict."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@checked
def similarity(
    model: "str | os.PathLike | keras.Model | Ensemble",
    texts: Sequence[str],
    others: Sequence[str],
    *,
    length: int | None = None,
    language: str | None = None,
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
    found = predict.encode(model, different, length=length, language=language).astype("float64")
    rows = {text: i for i, text in enumerate(different)}
    return cosines(found[[rows[text] for text in texts]], found[[rows[text] for text in others]])


def _texts(given: object, what: str) -> list[str]:
    """Texts of a call, each checked under its own number."""
    texts = listed(given, what=what)
    for i, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            told = repr(text) if absent(text) else f"a {type(text).__name__}"
            raise InputError(f"{what}: text {i} is {told}, expected str")
    return texts


@checked
def search(
    model: "str | os.PathLike | keras.Model | Ensemble",
    texts: Sequence[str],
    query: str,
    *,
    top: int = 5,
    length: int | None = None,
    language: str | None = None,
    prompt_name: str | None = None,
) -> list[Hit]:
    """The texts nearest to a query by the cosine of their vectors, nearest first; equals in their order.

    Args:
        model, length, language: as of `similarity`.
        texts: list of str; where the model has a prompt "document" or "passage" it is put before them.
        query: str. top: int, how many at most.
        prompt_name: str, of the prompt before the query; by default the model's "query" where it has one.

    Raises:
        InputError: what is no text, a query that holds nothing to read, no such prompt.
    """
    settings = {"length": length, "language": language, "prompt_name": prompt_name}
    return searched(model, texts, [query], top=top, **settings)[0]


def searched(
    model: "str | os.PathLike | keras.Model | Ensemble",
    texts: Sequence[str],
    queries: Sequence[str],
    *,
    top: int = 5,
    prompt_name: str | None = None,
    **settings: Any,
) -> list[list[Hit]]:
    """`search` of several queries; the texts are read once."""
    check_whole("top", top)
    texts, queries = _texts(texts, "texts"), _texts(queries, "queries")
    for number, query in enumerate(queries):
        if blank(query):
            raise InputError(f"query {number} holds nothing to read. Received: {query!r:.60}")
    model = predict.as_model(model)
    of_texts, of_query = prompt_names(model)
    held = predict.encode(model, texts, prompt_name=of_texts, **settings).astype("float64")
    hits = []
    asked = of_query if prompt_name is None else prompt_name
    for vector in predict.encode(model, queries, prompt_name=asked, **settings).astype("float64"):
        scores = cosines(held, vector)
        nearest = np.argsort(-scores, kind="stable")[:top]
        hits.append([Hit(int(i), texts[int(i)], float(scores[i])) for i in nearest])
    return hits
