"""Does a pretrained LSTM classify 500 sentences of SST-2 better than the same from scratch? And what does it cost a phone?

    python -m tests.benchmarks.bench_recurrent DATA [--folder DIR] [--steps N] [--seeds N]

DATA: a folder with SST-2's train.tsv and dev.tsv. Pretraining reads its training sentences without labels, once. A seed draws the
500 sentences, the order of their batches, the head and, from scratch, the weights; the settings are the same.
"""

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import kerasbert as kb
from kerasbert.data import write_records
from kerasbert.mobile import compress
from kerasbert.mobile.runtime import load
from kerasbert.text.train import train as train_tokenizer

ROWS, VOCABULARY, LENGTH, RUNS = 500, 4000, 32, 300
SA = {"hidden": 128, "embeddings.width": 64}
AWD = {"hidden": 96, "recurrence.layers": 2, "recurrence.units": 160}
AWD |= {"rates.input": 0.2, "rates.between": 0.1, "rates.output": 0.1, "rates.weights": 0.2}
KINDS = {  # name -> model, objective, packing, length of records, Spec
    "SA-LSTM, language model": ("sa-lstm/base", "recurrent_lm", "stream", 4 * LENGTH, SA),
    "SA-LSTM, autoencoder": ("sa-lstm/base", "sequence_autoencoder", "doc", LENGTH, SA),
    "ULMFiT": ("ulmfit/base", "ulmfit", "stream", 4 * LENGTH, AWD),
}


def pretrained(kind: str, text: Path, tokenizer, folder: Path, steps: int) -> Path:
    """A run."""
    model, objective, packing, length, changes = KINDS[kind]
    records, run = folder / f"records-{packing}", folder / objective
    write_records([text], tokenizer, records, length=length, packing=packing, allow_loss=True)
    settings = {"steps": steps, "batch": 64 * LENGTH // length, "learning_rate": 3e-3, "clip": 0.25}
    settings |= {"weight_decay": 0.0, "evaluate_every": steps, "quiet": True}
    kb.pretrain(model, records, changes=changes, objective=objective, out=run, **settings)
    return run


def accuracy(begin, data: Path, few: Path, out: Path, seed: int) -> float:
    """Dev accuracy after 15 epochs of the 500 sentences."""
    settings = {"epochs": 15, "evaluate_every": 300, "batch": 25, "learning_rate": 2e-3, "length": 64, "quiet": True}
    kb.finetune(begin, "glue/sst2", {"train": few, "dev": data / "dev.tsv"}, out=out, seed=seed, **settings)
    return kb.evaluate(out, data)["metrics"]["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("bench_recurrent"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    folder, data = options.folder, options.data
    folder.mkdir(parents=True, exist_ok=True)
    header, *rows = (data / "train.tsv").read_text(encoding="utf-8").splitlines()
    texts = [row.split("\t")[0] for row in rows]
    text = folder / "text.txt"
    text.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    tokenizer = train_tokenizer("wordpiece", texts, VOCABULARY)
    print(
        f"{platform.machine()}, TensorFlow {tf.__version__}, {options.steps} steps, {ROWS} sentences, dev 436",
        flush=True,
    )
    for kind, (model, _, _, _, changes) in KINDS.items():
        found: dict[str, list[float]] = {"scratch": [], "pretrained": []}
        run = pretrained(kind, text, tokenizer, folder, options.steps)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        perplexity = [line["held_out/perplexity"] for line in lines if "held_out/perplexity" in line][-1]
        for seed in range(options.seeds):
            few = folder / f"few-{seed}.tsv"
            few.write_text("\n".join([header, *random.Random(seed).sample(rows, ROWS)]) + "\n", encoding="utf-8")
            keras.utils.set_random_seed(seed)
            raw = kb.build(model, **changes, **{"embeddings.vocabulary": tokenizer.size})
            raw.tokenizer = tokenizer
            for name, begin in (("scratch", raw), ("pretrained", run)):
                found[name].append(accuracy(begin, data, few, folder / f"{run.name}-{name}-{seed}", seed))
        told = "; ".join(
            f"{name} {statistics.mean(each):.3f} ({', '.join(f'{x:.3f}' for x in each)})"
            for name, each in found.items()
        )
        print(f"{kind}: perplexity {perplexity:.1f}; {told}", flush=True)
        measure(folder / f"{run.name}-pretrained-0", data, folder)


def measure(run: Path, data: Path, folder: Path) -> None:
    """Size and time on the phone's runtime, and whether it says what the model says."""
    rows = (data / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:201]
    texts = [row.split("\t")[0] for row in rows]
    expected = kb.predict(run, texts)
    for quantize in ("float32", "dynamic_int8"):
        out = folder / f"{run.name}-{quantize}.tflite"
        compress(run, quantize=quantize, out=out, min_agreement=0.9, overwrite=True)
        runtime = load(out)
        answers = runtime(texts)
        same = np.mean([a.label == b.label for a, b in zip(answers, expected, strict=True)])
        off = max(
            abs(a.scores[name] - b.scores[name]) for a, b in zip(answers, expected, strict=True) for name in a.scores
        )
        seconds = []
        for i in range(RUNS):
            began = time.perf_counter()
            runtime([texts[i % len(texts)]])
            seconds.append(time.perf_counter() - began)
        p50 = 1000 * statistics.median(seconds)
        print(
            f"  {quantize}: {out.stat().st_size:,} bytes, p50 {p50:.2f} ms, same label {same:.3f}, off {off:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
