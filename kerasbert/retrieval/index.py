"""An index: texts, their vectors and what made them in a folder, and the nearest of them to a query."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.blanks import blank
from kerasbert.errors import InputError
from kerasbert.inputs import listed
from kerasbert.retrieval import exact, forms, graph, judging, lexical
from kerasbert.retrieval.building import build
from kerasbert.retrieval.encoding import identity
from kerasbert.retrieval.folder import INDEX, VECTORS, about, damaged
from kerasbert.retrieval.judging import Relevant
from kerasbert.retrieval.passages import Kept, Source, mapped
from kerasbert.retrieval.reranking import reranked
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.similarity import Hit

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble


HOW = ("vectors", "words", "both")


class Index:
    """Texts to search in. `kb.Index.build` makes one.

    Args:
        path: folder that `build` (or `kerasbert index`) wrote. model: directory or loaded model of the vectors; by default
            the directory that the index was built by.

    Attributes:
        model: the loaded model. vectors: [n, H] as stored, read from the disk. about: what index.json says.
        told: lines of what a user cannot see in an index that was just built.

    Raises:
        InputError: no index, a damaged one, or another model than it was built by.
    """

    def __init__(
        self, path: str | os.PathLike, model: "str | os.PathLike | keras.Model | Ensemble | None" = None
    ) -> None:
        self.path, self.about = Path(path), about(path)
        self.told: list[str] = []
        self.dtype, self.width = self.about["dtype"], self.about["width"]
        self._open()
        model = self._found() if model is None else model
        on_disk = isinstance(model, str | os.PathLike)
        self.model = predict.as_model(model, self.about["model"]["precision"]) if on_disk else model
        predict.check_ours(self.model)
        if identity(self.model) != self.about["model"]["digest"]:
            raise InputError(
                f"{path} was built by another model ({self.about['model']['path']}), whose vectors say nothing beside this "
                "one's: give that one, or build the index again"
            )

    def _open(self) -> None:
        """Map the files, which must be whole."""
        columns, kind = forms.columns(self.width, self.dtype), np.dtype(forms.DTYPES[self.dtype])
        self.vectors = mapped(self.path, VECTORS)
        if self.vectors.shape != (self.about["count"], columns) or self.vectors.dtype != kind:
            raise damaged(self.path, f"{VECTORS} has the shape {self.vectors.shape}")
        self._texts = Kept(self.path, self.about["count"])
        try:
            self._graph = graph.opened(self.path, self.about) if "graph" in self.about else None
            self._words = lexical.opened(self.path, self.about) if "words" in self.about else None
        except OSError as error:
            raise damaged(self.path, f"{os.path.basename(error.filename or '')}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(self.path, str(error) if type(error) is ValueError else INDEX) from error

    def _found(self) -> str:
        """The directory of the model, as the index tells it."""
        place = self.about["model"]["path"]
        if place is None:
            raise InputError(f"{self.path} was built by a model in memory: give it (model=, --by RUN)")
        return place

    def __len__(self) -> int:
        return len(self.vectors)

    def search(
        self,
        queries: str | Sequence[str],
        top: int = 5,
        *,
        exact_search: bool = False,
        prompt_name: str | None = None,
        rerank: "str | os.PathLike | keras.Model | None" = None,
        candidates: int = 100,
        how: str | None = None,
    ) -> list[Any]:
        """The texts that a query finds, best first; equal ones in their order.

        Args:
            queries: str, or a list of them. top: int, how many texts of each at most.
            exact_search: bool, compare with every vector, where the index has a graph too.
            prompt_name: str, of the prompt before a query; by default the model's "query" where it has one.
            rerank: directory or loaded model of pairs (a cross-encoder) that orders the `candidates` first.
            how: "vectors", by the cosine; "words", by BM25; "both", by the reciprocal rank fusion of the first 100 of either
                (Cormack et al., 2009). None for both, of an index that has words, else vectors.

        Returns:
            a list of Hit (`index`, `text`, `score`, `id`); of a list of queries a list of such lists.
        """
        given = [queries] if isinstance(queries, str) else list(queries)
        for name, value in (("top", top), ("candidates", candidates)):
            if type(value) is not int or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1. Received: {value!r}")
        for number, query in enumerate(given):
            if not isinstance(query, str) or blank(query):
                raise InputError(f"query {number} holds nothing to read. Received: {query!r:.60}")
        if not given:
            return []
        first = min(top if rerank is None else max(top, candidates), len(self))
        hits = self._ranked(given, first, self._way(how), (prompt_name, exact_search))
        if rerank is not None:
            judge = predict.as_model(rerank)
            hits = [reranked(judge, query, found, top) for query, found in zip(given, hits)]
        return hits[0] if isinstance(queries, str) else hits

    def evaluate(self, relevant: "str | os.PathLike | Relevant", *, top: int = 10, **settings: Any) -> Json:
        """How well queries find the texts that are relevant to them.

        Args:
            relevant: {query: ids of its texts, or {id: grade}}, or a table with the columns `query`, `id` and perhaps `score`.
            top: int k, of NDCG@k, MRR@k and recall@k. settings: of `search`.

        Returns:
            {"queries": int, "texts": int, "metrics": {name: mean over the queries}}, as `judging.metrics` says.

        Raises:
            InputError: no query, one without a relevant text, or an id that the index does not hold.
        """
        if isinstance(relevant, str | os.PathLike):
            relevant = judging.read(relevant)
        graded = {
            query: dict(names) if isinstance(names, Mapping) else dict.fromkeys(listed(names), 1.0)
            for query, names in relevant.items()
        }
        judging.check(graded, self._texts.ids())
        hits = self.search(list(graded), max(top, judging.DEPTH), **settings)
        found = [[str(hit.id) for hit in each] for each in hits]
        return {
            "queries": len(graded),
            "texts": len(self),
            "metrics": judging.metrics(found, list(graded.values()), top),
        }

    def _way(self, how: str | None) -> str:
        """`how`, or the usual one."""
        if how is None:
            return "vectors" if self._words is None else "both"
        if how not in HOW:
            raise InputError(f"how must be one of {', '.join(HOW)}. Received: {how!r}")
        if how != "vectors" and self._words is None:
            raise InputError(f"{self.path} has vectors alone: build it with words (words=True, --words)")
        return how

    def _ranked(self, queries: Sequence[str], top: int, how: str, at: tuple[str | None, bool]) -> list[list[Hit]]:
        """The first hits of each query, before any other order."""
        prompt_name, exact_search = at
        wanted = top if how != "both" else lexical.most(len(self), top)
        vectors = None if how == "words" else self.encode(queries, prompt_name)
        worded = [] if how == "vectors" else lexical.nearest(self._words, queries, wanted)
        if vectors is None:
            return [[self._hit(*each) for each in found] for found in worded]
        scores, numbers = self._nearest(vectors, wanted, exact_search)
        if how == "vectors":
            return [[self._hit(*each) for each in zip(*row)] for row in zip(numbers, scores)]
        rankings = zip(numbers.tolist(), ([number for number, _ in found] for found in worded))
        return [[self._hit(*each) for each in lexical.fused(pair, top)] for pair in rankings]

    def nearest(self, vectors: np.ndarray, top: int) -> list[list[Hit]]:
        """The texts nearest to each vector of length 1, compared with all: float32 [q, H] -> q lists of hits, best first."""
        scores, numbers = self._nearest(vectors, top, True)
        return [[self._hit(*each) for each in zip(*row)] for row in zip(numbers, scores)]

    def _nearest(self, vectors: np.ndarray, top: int, exact_search: bool) -> tuple[np.ndarray, np.ndarray]:
        if self._graph is not None and not exact_search:
            return graph.nearest(self._graph, vectors, min(top, len(self)))
        try:
            return exact.nearest(self.vectors, self.dtype, vectors, min(top, len(self)))
        except exact.NotFinite as error:
            raise damaged(self.path, f"{VECTORS}: {error}") from error

    def _hit(self, number: int, score: float) -> Hit:
        passage = self._texts[int(number)]
        return Hit(int(number), passage.text, float(score), passage.id)

    def encode(self, queries: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Vectors of queries, of length 1: float32 [q, H]."""
        name = self.about["query_prompt"] if prompt_name is None else prompt_name
        settings: dict[str, Any] = {**self.about["settings"], "prompt_name": name}
        return forms.unit(predict.encode(self.model, list(queries), **settings))

    @staticmethod
    def build(
        model: "str | os.PathLike | keras.Model | Ensemble",
        texts: "str | os.PathLike | Source | Iterable[str]",
        out: str | os.PathLike,
        **options: Any,
    ) -> "Index":
        """Build an index and open it; see `building.build` for the options, `told` for what it says."""
        told, model = build(model, texts, out, **options)
        index = Index(out, model)
        index.told = told
        return index
