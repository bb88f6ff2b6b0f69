"""What does a text cost on a phone by each family, beside BERT of the same size?

    python -m tests.benchmarks.bench_families --work DIR [--families deberta bigbird ...]

A classifier as large as BERT-mini (4 layers, 4 heads, H = 256, 1,024 neurons) with the vocabulary of the tiny world and random
weights: dynamic int8, one length of 64 tokens, texts that fill it, text to label on one thread. A round times a text with BERT's
file and with the family's, in CPU time; `ratio` is that of the fastest tenths, which other work on the machine changes least.
BigBird's blocks are of 4 tokens and Longformer's window is of 16, so that they are sparse; the rest of a family's Spec is kept.

DIR keeps families.jsonl, a row for each family: the same
command goes on. tests/benchmarks/measured/families.jsonl has the rows so far: copied into DIR they are not measured again.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import keras

from kerasbert import mobile, registry, report
from kerasbert import spec as specs
from kerasbert.mobile.runtime import load
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing.battery import Subject
from tests import tiny
from tests.benchmarks.kept_rows import measured

LENGTH, ROUNDS = 64, 400
SIZE = {"blocks.layers": 4, "attention.heads": 4, "feedforward.width": 1024, "embeddings.positions": 2 * LENGTH}
CHANGES: dict[str, dict[str, Any]] = {"bigbird": {"sparse.block": 4}, "longformer": {"window.size": 16}}
PEER, TIMES = "bert", ("p50_ms", "bert_p50_ms", "p10_ms", "bert_p10_ms", "ratio")


def answering() -> list[str]:
    """Families of encoders, BERT first."""
    every = registry.families().items()
    names = [name for name, family in every if family.kind == "encoder" and specs.maybe(family.spec, "blocks.layers")]
    return [PEER, *(name for name in names if name != PEER)]


def texts() -> list[str]:
    """Which fill the rows of every tokenizer."""
    words = " ".join(tiny.sentences(400, 0)).split()
    return [" ".join(words[i : i + LENGTH]) for i in range(0, 8 * LENGTH, LENGTH)]


def compressed(family: str, work: Path) -> dict[str, Any]:
    """The file of a family: its agreement with the float model and bytes."""
    keras.utils.set_random_seed(0)
    base = registry.family(family).spec
    changes = {path: value for path, value in SIZE.items() if specs.maybe(base, path) is not None}
    subject = Subject(family, work, 256, **changes, **CHANGES.get(family, {}))
    model = TaskModel(subject.encoder(scale=0.05), find_task("classification", labels={"a": "a", "b": "b"}))
    model.build()
    path = work / f"{family}.tflite"
    found = mobile.compress(
        model, "dynamic_int8", path, texts=texts(), lengths=[LENGTH], min_agreement=0.0, overwrite=True
    )
    return {"agreement": found["agreement"], "bytes": path.stat().st_size}


def timed(family: str, work: Path) -> dict[str, float]:
    """p50 and p10 of CPU-milliseconds a text, of the family and of BERT beside it, and the ratio of the p10."""
    files = {name: load(work / f"{name}.tflite", threads=1) for name in dict.fromkeys((PEER, family))}
    given, taken = texts(), {name: list[float]() for name in files}
    for number in range(ROUNDS + 10):
        for name, file in files.items():
            began = time.process_time()
            file([given[number % len(given)]])
            taken[name].append(1e3 * (time.process_time() - began))
    found = {}
    for name, values in (("", taken[family][10:]), ("bert_", taken[PEER][10:])):
        deciles = statistics.quantiles(values, n=10)
        found |= {f"{name}p50_ms": deciles[4], f"{name}p10_ms": deciles[0]}
    return {**found, "ratio": found["p10_ms"] / found["bert_p10_ms"]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--families", nargs="+", choices=answering(), default=answering())
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    def measure(family: str) -> dict[str, Any]:
        if not (options.work / f"{PEER}.tflite").exists():
            compressed(PEER, options.work)
        found = compressed(family, options.work)
        found |= {name: round(value, 3) for name, value in timed(family, options.work).items()}
        keras.backend.clear_session()
        return found

    found = measured(options.work / "families.jsonl", [{"family": name} for name in options.families], measure)
    rows = []
    for row in found:
        rest = [f"{row['agreement']:.4f}", f"{row['bytes'] / 1e3:.0f}"]
        rows.append([row["family"], *(f"{row[name]:.2f}" for name in TIMES), *rest])
    print(report.table(["family", "p50, CPU-ms", "BERT's", "p10", "BERT's", "ratio", "agreement", "kB"], rows))


if __name__ == "__main__":
    main()
