"""How fast are the nearest of many vectors found? Exact and by a graph, beside faiss and hnswlib alone, in one run.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_nearest [--vectors 100000] [--width 384] [--queries 200]

Needs faiss-cpu and hnswlib. The vectors are synthetic: groups of 100 around a point drawn at random, of length 1; queries lie
in the same groups. A graph has 32 links and 100 candidates while it is built; faiss and hnswlib search with as many candidates
as ours chose by its recall. Printed are the CPU-seconds of building, milliseconds of CPU time for a query alone (median) and in
one call of all, the recall of the ten nearest, and MB of what is stored.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.retrieval import exact, forms, graph

TOP = 10
Search = Callable[[np.ndarray], np.ndarray]  # queries [q, H] -> numbers [q, TOP]


def drawn(count: int, width: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [count, width] and queries [queries, width] of the same groups, of length 1."""
    random = np.random.default_rng(0)
    groups = random.standard_normal((max(1, count // 100), width), "float32")
    found = []
    for number in (count, queries):
        own = groups[random.integers(len(groups), size=number)]
        found.append(forms.unit(own + random.standard_normal(own.shape, "float32")))
    return found[0], found[1]


def contenders(vectors: np.ndarray, folder: Path) -> dict[str, Callable[[], tuple[Search, float]]]:
    """Name -> what builds it: its search, and MB of what is stored."""
    import faiss
    import hnswlib

    count, width = vectors.shape
    faiss.omp_set_num_threads(1)
    settings: dict[str, Any] = {}

    def exactly(dtype: str) -> tuple[Search, float]:
        stored = forms.stored(vectors, dtype)
        return lambda queries: exact.nearest(stored, dtype, queries, TOP)[1], stored.nbytes / 1e6

    def flat() -> tuple[Search, float]:
        index = faiss.IndexFlatIP(width)
        index.add(vectors)
        return lambda queries: index.search(queries, TOP)[1], vectors.nbytes / 1e6

    def ours() -> tuple[Search, float]:
        path = folder / graph.GRAPH
        settings.update(graph.build(vectors, "float32", width, path))
        print(f"kerasbert graph: {settings['width']} candidates, recall of texts {settings['recall']:.4f}", flush=True)
        opened = graph.opened(folder, {"graph": settings})
        return lambda queries: graph.nearest(opened, queries, TOP)[1], path.stat().st_size / 1e6

    def theirs() -> tuple[Search, float]:
        index = faiss.IndexHNSWFlat(width, graph.LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = graph.BUILD_WIDTH
        index.add(vectors)
        index.hnsw.efSearch = settings["width"]
        return lambda queries: index.search(queries, TOP)[1], (folder / graph.GRAPH).stat().st_size / 1e6

    def hnsw() -> tuple[Search, float]:
        index = hnswlib.Index(space="ip", dim=width)
        index.init_index(max_elements=count, ef_construction=graph.BUILD_WIDTH, M=graph.LINKS)
        index.set_num_threads(1)
        index.add_items(vectors)
        index.set_ef(settings["width"])
        path = folder / "hnswlib.bin"
        index.save_index(str(path))
        return lambda queries: index.knn_query(queries, k=TOP)[0].astype("int64"), path.stat().st_size / 1e6

    forms_of_ours = {f"kerasbert exact {dtype}": lambda dtype=dtype: exactly(dtype) for dtype in forms.DTYPES}
    return forms_of_ours | {"faiss exact": flat, "kerasbert graph": ours, "faiss graph": theirs, "hnswlib": hnsw}


def timed(search: Search, queries: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Milliseconds of CPU time for a query alone (median of 20) and in one call of all, and the numbers found."""
    alone = []
    for query in queries[:20]:
        began = time.process_time()
        search(query[None])
        alone.append(time.process_time() - began)
    began = time.process_time()
    found = search(queries)
    return statistics.median(alone) * 1e3, (time.process_time() - began) * 1e3 / len(queries), found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    vectors, queries = drawn(options.vectors, options.width, options.queries)
    expected = [{*row} for row in exact.nearest(vectors, "float32", queries, TOP)[1].tolist()]
    print(f"{options.vectors:,} vectors of {options.width} numbers, {options.queries} queries")
    print(f"{'':<26}{'build s':>9}{'ms alone':>10}{'ms of all':>11}{'recall@10':>11}{'MB':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, build in contenders(vectors, Path(folder)).items():
            began = time.process_time()
            search, size = build()
            built = time.process_time() - began
            alone, together, found = timed(search, queries)
            recall = np.mean([len(own & {*row}) / TOP for own, row in zip(expected, found.tolist())])
            print(f"{name:<26}{built:>9.1f}{alone:>10.2f}{together:>11.3f}{recall:>11.4f}{size:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
