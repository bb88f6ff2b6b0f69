"""How good a search is: what it found for each query beside the texts that are relevant to it."""

import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from kerasbert.data import texts as reader
from kerasbert.data.numbers import number
from kerasbert.data.sources import TABLES, read_table
from kerasbert.errors import InputError, near
from kerasbert.inputs import listed

DEPTH = 100  # of MAP and of the longer recall
COLUMNS = ("query", "id")
BEIR = ("query-id", "corpus-id")  # of qrels/test.tsv (Thakur et al., 2021), whose queries stand in a file of their own
QUERIES = "queries.jsonl"

Relevant = Mapping[str, Mapping[str, float]]  # query -> {id of a text: its grade}


def read(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """The relevant texts of queries, of a table with a row for each: `query`, `id` and perhaps `score`, a grade (else 1).

    A file of BEIR has the numbers of queries; `queries.jsonl` stands beside it, or in the folder above.

    Raises:
        InputError: no such file or columns, a grade that is no number, no relevant text of a query, a pair that is there twice.
    """
    opened = reader.opened(path, COLUMNS[:1], default=BEIR[:1])
    if opened.kind not in TABLES:
        raise InputError(f"{path} is plain text, expected a table with the columns query, id and perhaps score")
    of_beir = opened.columns == BEIR[:1]
    queries, column = (_queries(Path(path)), BEIR[1]) if of_beir else ({}, COLUMNS[1])
    found: dict[str, dict[str, float]] = {}
    for line, row, query in opened:
        if column not in row:
            raise InputError(f"{path}, line {line}: no column {column!r}. {near(column, row)}")
        if of_beir and query not in queries:
            raise InputError(f"{path}, line {line}: {QUERIES} has no query {query!r:.80}")
        grades, name = found.setdefault(queries[query] if of_beir else query, {}), str(row[column])
        if name in grades:
            raise InputError(
                f"{path}, line {line}: the text {name!r:.80} is relevant to this query already, expected once"
            )
        grades[name] = _grade(row.get("score", 1), path, f"{path}, line {line}")
    return found


def _queries(path: Path) -> dict[str, str]:
    """Number -> query, of the file of queries that belongs to one of BEIR's.

    Raises:
        InputError: there is none, or it has other columns.
    """
    places = [folder / QUERIES for folder in (path.parent, path.absolute().parent.parent)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise InputError(f"{path} has the numbers of queries, expected {QUERIES} beside it or in the folder above")
    return {str(row["_id"]): row["text"] for row in read_table(file, columns=("_id", "text"))}


def _grade(value: object, path: str | os.PathLike, where: str) -> float:
    grade = number(value, path, where)
    if not 0 <= grade < np.inf:
        raise InputError(f"{where}: score is {value!r:.40}, expected a number of at least 0")
    return grade


def graded(relevant: object) -> dict[str, dict[str, float]]:
    """{query: {id: grade}} of what a caller gives: ids without grades have the grade 1, and one id may stand by itself.

    Raises:
        InputError: it is something else, or a grade is no number of at least 0.
    """
    if not isinstance(relevant, Mapping):
        raise InputError(f"relevant is a {type(relevant).__name__}, expected {{query: ids}} or the path of a table")
    found = dict[str, dict[str, float]]()
    for query, names in relevant.items():
        if not isinstance(names, Iterable):
            raise InputError(f"relevant[{query!r:.60}] is a {type(names).__name__}, expected a list of ids")
        given = names if isinstance(names, Mapping) else dict.fromkeys(listed(names), 1.0)
        own = {_id(query, name): grade for name, grade in given.items()}
        for name, grade in own.items():
            if not isinstance(grade, int | float | np.number) or not 0 <= grade < np.inf:
                where = f"relevant[{query!r:.60}][{name!r:.60}]"
                raise InputError(f"{where} is {grade!r:.40}, expected a number of at least 0")
        found[query] = own
    return found


def _id(query: object, name: object) -> str:
    """The id of a text, which an index keeps as text."""
    if not isinstance(name, str | numbers.Integral) or isinstance(name, bool):
        raise InputError(f"relevant[{query!r:.60}] holds {name!r:.40}, expected ids of texts")
    return str(name)


def check(relevant: Relevant, ids: Iterable[str]) -> None:
    """Refuse what cannot be judged by: no query, a query without a relevant text, or one that the index does not hold."""
    if not relevant:
        raise InputError("there is no query to judge by, expected at least one with the ids of its texts")
    known = set(ids)
    for query, grades in relevant.items():
        if not any(grade > 0 for grade in grades.values()):
            raise InputError(
                f"no text is relevant to the query {query!r:.60}, expected at least one with a score above 0"
            )
        strange = next((name for name in grades if name not in known), None)
        if strange is not None:
            raise InputError(f"the index holds no text {strange!r:.80}, which is to be relevant to {query!r:.60}")


def metrics(found: Sequence[Sequence[str]], relevant: Sequence[Mapping[str, float]], top: int = 10) -> dict[str, float]:
    """Means over the queries, as trec_eval computes them of the first texts (`-m ndcg_cut`, `recip_rank`, `map_cut`, `recall`).

    NDCG (Järvelin and Kekäläinen, 2002) takes the grades as gains; for the others a text with a grade above 0 is relevant.

    Args:
        found: ids of the texts of each query, best first. relevant: the grades of its texts.
        top: int k, how many texts NDCG, MRR and recall look at; MAP and a second recall at the first 100.

    >>> metrics([["a", "b", "c"]], [{"b": 1, "d": 1}], top=2)
    {'ndcg@2': 0.38685280723454163, 'mrr@2': 0.5, 'recall@2': 0.5, 'map@100': 0.25, 'recall@100': 0.5}
    """
    sums: dict[str, list[float]] = {}
    for names, grades in zip(found, relevant, strict=True):
        gains = np.array([grades.get(name, 0.0) for name in names], "float64")
        best = np.sort(np.array(list(grades.values()), "float64"))[::-1]
        hits, count = gains > 0, float((best > 0).sum())
        ranks = np.arange(1, len(names) + 1)
        first = ranks[:top][hits[:top]]
        precision = np.cumsum(hits) / ranks
        values = {
            f"ndcg@{top}": _discounted(gains[:top]) / _discounted(best[:top]),
            f"mrr@{top}": 1 / first[0] if len(first) else 0.0,
            f"recall@{top}": hits[:top].sum() / count,
            f"map@{DEPTH}": (precision * hits)[:DEPTH].sum() / count,
            f"recall@{DEPTH}": hits[:DEPTH].sum() / count,
        }
        for name, value in values.items():
            sums.setdefault(name, []).append(float(value))
    return {name: float(np.mean(values)) for name, values in sums.items()}


def _discounted(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
