"""An index: texts, their vectors and what made them in a folder, and the nearest of them to a query."""

import inspect
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.blanks import blank
from kerasbert.errors import InputError
from kerasbert.options import check_names, checked
from kerasbert.retrieval import exact as exhaustive
from kerasbert.retrieval import forms, graph, judging, lexical
from kerasbert.retrieval.building import build
from kerasbert.retrieval.encoding import identity
from kerasbert.retrieval.folder import VECTORS, about, check_files, damaged, is_written
from kerasbert.retrieval.judging import Relevant
from kerasbert.retrieval.passages import Kept, Source, mapped
from kerasbert.retrieval.reranking import reranked
from kerasbert.storage import steady
from kerasbert.storage.json_view import Json
from kerasbert.storage.overwritten import Mapped
from kerasbert.tasks import predict
from kerasbert.tasks.given import listed
from kerasbert.tasks.similarity import Hit
from kerasbert.value_types import check_whole

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

    @checked
    def __init__(
        self, path: str | os.PathLike, model: "str | os.PathLike | keras.Model | Ensemble | None" = None
    ) -> None:
        self.path, self.told = Path(path), list[str]()
        with steady.unchanged(path):
            self.about = about(path)
            self.dtype, self.width = self.about["dtype"], self.about["width"]
            self._open()
        model = self._found() if model is None else model
        on_disk = isinstance(model, str | os.PathLike)
        self.model = predict.as_model(model, self.about["model"]["precision"]) if on_disk else model
        predict.check_one(self.model)
        if identity(self.model) != self.about["model"]["digest"]:
            raise InputError(
                f"{path} was built by another model ({self.about['model']['path']}), whose vectors say nothing beside this "
                "one's: give that one, or build the index again"
            )

    def _open(self) -> None:
        """Map the files, which must be whole."""
        check_files(self.path, self.about)
        self.vectors = mapped(self.path, VECTORS)
        self._texts = Kept(self.path, self.about["count"])
        self._graph = graph.opened(self.path, self.about) if "graph" in self.about else None
        self._words = lexical.opened(self.path) if "words" in self.about else None
        place, written = Path(os.path.abspath(self.path)), self.about["files"]
        self._mapped = [Mapped(self.path / name, partial(is_written, place, name, written[name])) for name in written]

    def _check_mapped(self) -> None:
        """Refuse files that something wrote over since they were mapped; an index that is built again has others."""
        for file in self._mapped:
            file.check()

    def _found(self) -> str:
        """The directory of the model, as the index tells it."""
        place = self.about["model"]["path"]
        if place is None:
            raise InputError(f"{self.path} was built by a model in memory: give it (model=, --by RUN)")
        return place

    def __len__(self) -> int:
        return len(self.vectors)

    @checked
    def search(
        self,
        queries: str | Sequence[str],
        top: int = 5,
        *,
        exact: bool = False,
        prompt_name: str | None = None,
        rerank: "str | os.PathLike | keras.Model | None" = None,
        candidates: int = 100,
        how: str | None = None,
    ) -> list[Any]:
        """The texts that a query finds, best first; equal ones in their order.

        Args:
            queries: str, or a list of them. top: int, how many texts of each at most.
            exact: bool, compare with every vector, where the index has a graph too.
            prompt_name: str, of the prompt before a query; by default the model's "query" where it has one.
            rerank: directory or loaded model of pairs (a cross-encoder) that orders the `candidates` first.
            how: "vectors", by the cosine; "words", by BM25; "both", by the reciprocal rank fusion of the first 100 of either
                (Cormack et al., 2009). None for both, of an index that has words, else vectors.

        Returns:
            a list of Hit (`index`, `text`, `score`, `id`); of a list of queries a list of such lists.
        """
        given = [queries] if isinstance(queries, str) else listed(queries, what="queries")
        check_whole("top", top)
        check_whole("candidates", candidates)
        for number, query in enumerate(given):
            if not isinstance(query, str):
                raise InputError(f"query {number} is a {type(query).__name__}, expected str")
            if blank(query):
                raise InputError(f"query {number} holds nothing to read. Received: {query!r:.60}")
        if not given:
            return []
        first = min(top if rerank is None else max(top, candidates), len(self))
        hits = self._ranked(given, first, self._way(how), prompt_name, exact)
        if rerank is not None:
            judge = predict.as_model(rerank)
            predict.check_ours(judge)
            hits = [reranked(judge, query, found, top) for query, found in zip(given, hits)]
        return hits[0] if isinstance(queries, str) else hits

    @checked
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
        check_whole("top", top)
        check_names("Index.evaluate", settings, {*inspect.signature(self.search).parameters} - {"queries"})
        if isinstance(relevant, str | os.PathLike):
            relevant = judging.read(relevant)
        graded = judging.graded(relevant)
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
            raise InputError(
                f"{self.path} has vectors alone: build it with words (words=True, kerasbert index --words)"
            )
        return how

    def _ranked(
        self, queries: Sequence[str], top: int, how: str, prompt_name: str | None, exact: bool
    ) -> list[list[Hit]]:
        """The first hits of each query, before any other order."""
        self._check_mapped()
        wanted = top if how != "both" else lexical.most(len(self), top)
        vectors = None if how == "words" else self.encode(queries, prompt_name)
        worded = [] if how == "vectors" else lexical.nearest(self._words, queries, wanted)
        if vectors is None:
            return [[self._hit(*each) for each in found] for found in worded]
        near = self._nearest(vectors, wanted, exact)
        if how == "vectors":
            return [[self._hit(*each) for each in found] for found in near]
        rankings = ([[number for number, _ in found] for found in pair] for pair in zip(near, worded))
        return [[self._hit(*each) for each in lexical.fused(pair, top)] for pair in rankings]

    @checked
    def nearest(self, vectors: np.ndarray, top: int) -> list[list[Hit]]:
        """The texts nearest to each vector of length 1, compared with all: float32 [q, H] -> q lists of hits, best first.

        Raises:
            InputError: other vectors, or a number in them that is not finite.
        """
        check_whole("top", top)
        self._check_mapped()
        try:
            vectors = np.asarray(vectors, "float32")
        except (TypeError, ValueError) as error:
            raise InputError(f"vectors are no numbers, expected the shape (n, {self.width}): {error}") from error
        if vectors.ndim != 2 or vectors.shape[1] != self.width or not np.isfinite(vectors).all():
            raise InputError(f"expected finite vectors of the shape (n, {self.width}). Received: {vectors.shape}")
        return [[self._hit(*each) for each in found] for found in self._nearest(vectors, top, True)]

    def _nearest(self, vectors: np.ndarray, top: int, exact: bool) -> list[list[tuple[int, float]]]:
        """Number and cosine of the nearest texts of each vector, best first."""
        top = min(top, len(self))
        if self._graph is not None and not exact:
            scores, numbers = graph.nearest(self._graph, vectors, top)
        else:
            try:
                scores, numbers = exhaustive.nearest(self.vectors, self.dtype, vectors, top)
            except exhaustive.NotFinite as error:
                raise damaged(self.path, f"{VECTORS}: {error}") from error
        # a graph says -1 where it reaches no other text
        return [[each for each in zip(*row) if each[0] >= 0] for row in zip(numbers.tolist(), scores.tolist())]

    def _hit(self, number: int, score: float) -> Hit:
        passage = self._texts[number]
        return Hit(number, passage.text, score, passage.id)

    @checked
    def encode(self, queries: str | Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Vectors of queries, of length 1: float32 [q, H]."""
        name = self.about["query_prompt"] if prompt_name is None else prompt_name
        settings: dict[str, Any] = {**self.about["settings"], "prompt_name": name}
        return forms.unit(predict.encode(self.model, listed(queries, what="queries"), **settings))

    @staticmethod
    @checked
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
