"""Texts to vectors: float32 and bfloat16, beside sentence-transformers with the same weights, in paired rounds.

    python -m tests.benchmarks.bench_encode MODEL TEXTS [--texts 2000] [--rounds 5]

MODEL: a folder of sentence-transformers. TEXTS: a sentence a line, or a tsv whose first column is taken. A round asks each
contender once, in turn; all have as many threads as there are cores and batches of 64, and sort by length. Printed are medians:
CPU-seconds, seconds, texts a second, and the smallest cosine with sentence-transformers' float32 vectors.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kerasbert as kb

Contender = Callable[[list[str]], np.ndarray]


def contenders(folder: str) -> dict[str, Contender]:
    """Name -> texts to vectors [n, H]."""
    import torch
    from sentence_transformers import SentenceTransformer

    found: dict[str, Contender] = {}
    for name, precision, dtype in (("float32", "float32", torch.float32), ("bfloat16", "bfloat16", torch.bfloat16)):
        model = kb.load(folder, precision=precision)
        theirs = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": dtype}, local_files_only=True)
        found[f"kerasbert {name}"] = lambda texts, model=model: kb.encode(model, texts)
        found[f"sentence-transformers {name}"] = lambda texts, theirs=theirs: theirs.encode(
            texts, batch_size=64, convert_to_numpy=True
        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = options.file.read_text("utf-8").splitlines()
    texts = [line.partition("\t")[0] for line in lines if line.strip()][1 : options.texts + 1]
    asked = contenders(options.model)
    vectors = {name: encode(texts).astype("float64") for name, encode in asked.items()}  # the first call compiles
    reference = vectors["sentence-transformers float32"]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(options.rounds):
        for name, encode in asked.items():
            cpu, wall = time.process_time(), time.perf_counter()
            encode(texts)
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    for name, measured in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*measured))
        norms = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(reference, axis=1)
        least = float(((vectors[name] * reference).sum(1) / norms).min())
        print(f"{name:<32}{cpu:7.2f} CPU-s{wall:7.2f} s{len(texts) / wall:8.0f} texts/s   cosine >= {least:.5f}")


if __name__ == "__main__":
    main()
