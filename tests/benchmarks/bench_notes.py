"""From a text to the ten nearest of 10,000 on a device: time, memory and files, and how near int8 is to the float model.

    python -m tests.benchmarks.bench_notes FILE.tflite NOTES.kbindex QUERIES [--model MODEL --texts TEXTS]

FILE is of `kerasbert-mobile compress`, NOTES of `kerasbert-mobile index FILE TEXTS`, QUERIES has a text a line. One thread, the
Python runner. `--model` compares with the float vectors of MODEL: how many of the ten are the same, and the rank correlation of
the ten that int8 finds with their float cosines.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from kerasbert.mobile.runtime import StoredIndex, load

TOP = 10


def peak() -> float:
    """MB that the process had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def found(file: Path, notes: Path, queries: list[str]) -> np.ndarray:
    """The numbers of the TOP nearest of each query [q, TOP]; prints what finding them takes."""
    runner = load(file)
    index = StoredIndex(runner, notes)
    for query in queries:
        runner([query])  # every length once
    numbers, vector, whole = [], [], []
    for query in queries:
        began = time.process_time()
        runner([query])
        vector.append((time.process_time() - began) * 1e3)
        began = time.process_time()
        numbers.append([hit.index for hit in index.nearest(query, TOP)])
        whole.append((time.process_time() - began) * 1e3)
    print(f"{len(index):,} texts, {len(queries)} queries; {file.stat().st_size / 1e6:.1f} MB of model, ", end="")
    print(f"{notes.stat().st_size / 1e6:.1f} MB of texts and vectors, {peak():.0f} MB of memory at most")
    for name, values in (("text to vector", vector), (f"text to the {TOP} nearest", whole)):
        tenths = statistics.quantiles(values, n=10)
        print(f"{name}: CPU ms p50 {statistics.median(values):.2f}, p90 {tenths[8]:.2f}")
    return np.array(numbers)


def compared(numbers: np.ndarray, model: str, texts: list[str], queries: list[str]) -> None:
    """Print how near what int8 found is to the model's float vectors."""
    import kerasbert as kb
    from kerasbert.retrieval import exact
    from kerasbert.tasks.metrics import spearman

    vectors, asked = (np.asarray(kb.encode(model, each, length=64)) for each in (texts, queries))
    nearest, cosines = exact.nearest(vectors, "float32", asked, TOP)[1], asked @ vectors.T
    same = [len({*row} & {*other}) / TOP for row, other in zip(nearest.tolist(), numbers.tolist())]
    ranks = [spearman(-np.arange(float(TOP)), own[row]) for own, row in zip(cosines, numbers)]
    print(
        f"of float's {TOP} {np.mean(same):.4f} are found, its first stands first in {np.mean(nearest[:, 0] == numbers[:, 0]):.4f}"
    )
    print(
        f"rank correlation with float cosines: mean {np.mean(ranks):.4f}, median {np.median(ranks):.4f}, least {min(ranks):.4f}"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("notes", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--texts", type=Path)
    options = parser.parse_args()
    queries = options.queries.read_text("utf-8").splitlines()
    numbers = found(options.file, options.notes, queries)
    if options.model:
        compared(numbers, options.model, options.texts.read_text("utf-8").splitlines(), queries)


if __name__ == "__main__":
    main()
