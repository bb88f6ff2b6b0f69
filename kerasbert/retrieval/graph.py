"""A graph of neighbours (HNSW: Malkov and Yashunin, 2018) by faiss: the nearest of a million vectors without looking at each."""

from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.progress import Progress
from kerasbert.retrieval import exact, forms
from kerasbert.retrieval.folder import GRAPH, damaged
from kerasbert.storage.json_view import Json, JsonMap

FROM = 50_000  # texts from which an index has a graph by default
LINKS, BUILD_WIDTH = 32, 100  # neighbours of a vector, and candidates while it is added
WIDTHS = (32, 64, 128, 256, 512, 1024)  # candidates of a search, the least that reaches RECALL is taken
RECALL, TOP, SAMPLE = 0.98, 10, 200


def library() -> Any:
    """faiss, or None."""
    try:
        import faiss  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return faiss


def build(vectors: np.ndarray, dtype: str, width: int, path: Path) -> Json:
    """Write the graph of stored vectors; -> what index.json says of it: `width` of a search and its `recall`.

    The recall is measured: of SAMPLE vectors, spread over all, the share of their TOP nearest others that the graph finds.
    """
    faiss = library()
    graph = faiss.IndexHNSWFlat(width, LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = BUILD_WIDTH
    with Progress(len(vectors), "vectors", "graph") as progress:
        for start, block in exact.blocks(vectors, dtype, width, 8192):
            graph.add(np.ascontiguousarray(block))
            progress.to(start + len(block))
    faiss.write_index(graph, str(path))
    chosen, recall = _tuned(graph, vectors, dtype, width)
    return {"width": chosen, "recall": round(recall, 4)}


def _tuned(graph: Any, vectors: np.ndarray, dtype: str, width: int) -> tuple[int, float]:
    """The least width of a search that reaches RECALL, else the largest, and its recall."""
    chosen = np.linspace(0, len(vectors) - 1, min(SAMPLE, len(vectors))).astype("int64")
    queries = np.ascontiguousarray(forms.read(np.asarray(vectors[chosen]), dtype, width))
    expected = exact.nearest(vectors, dtype, queries, TOP + 1)[1]
    wanted = [{*row} - {own} for row, own in zip(expected.tolist(), chosen.tolist())]
    recall = 0.0
    for search_width in WIDTHS:
        graph.hnsw.efSearch = search_width
        found = graph.search(queries, TOP + 1)[1].tolist()
        recall = float(np.mean([len(each & {*row}) / max(1, len(each)) for each, row in zip(wanted, found)]))
        if recall >= RECALL:
            return search_width, recall
    return WIDTHS[-1], recall


def opened(folder: Path, about: JsonMap) -> Any:
    """The graph of an index.

    Raises:
        InputError: faiss is not installed, or cannot read it.
    """
    faiss = library()
    if faiss is None:
        raise InputError(f"{folder} has a graph of neighbours: pip install 'kerasbert[search]', which brings faiss")
    try:
        graph = faiss.read_index(str(folder / GRAPH))
    except (RuntimeError, MemoryError) as error:
        raise damaged(folder, GRAPH) from error
    if not isinstance(graph, faiss.IndexHNSWFlat):
        raise damaged(folder, GRAPH)
    graph.hnsw.efSearch = about["graph"]["width"]
    return graph


def nearest(graph: Any, queries: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """As `exact.nearest`, of the vectors that the graph finds."""
    width = graph.hnsw.efSearch
    graph.hnsw.efSearch = max(width, top)
    scores, numbers = graph.search(np.ascontiguousarray(queries), top)
    graph.hnsw.efSearch = width
    return scores, numbers
