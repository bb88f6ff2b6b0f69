"""Every quantization after training on genuine weights: what it costs in labels, bytes and time.

    python -m tests.benchmarks.bench_quantize --work DIR [--seeds 0 1 2] [--kinds NAME ...] [--pair] [--max-drop 0.5]

DIR is that of bench_sst2; a `seed0` is fine-tuned if it is not there (a quarter of an hour on 2 cores). With more seeds the
medians stand in the last table. --pair measures QNLI too: MiniLM fine-tuned on the slice of 2,700 rows (`DIR/qnli`, one
seed), 906 dev rows. Agreement with float and the mean |difference
of probability| are over dev and 2,000 further sentences (for QNLI: dev), calibration on 200 train rows. Times are one thread,
text to label, p50 of dev; on a shared machine compare them within a run only. `plain` is the converter's own recipe, every
operator in int8, with ranges of the same texts.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

import kerasbert as kb
from kerasbert import mobile
from kerasbert.data import read_table
from kerasbert.mobile.runtime import load
from kerasbert.tasks.task import Task, read_rows
from tests.benchmarks.bench_sst2 import SHARED, further_sentences, minilm, run

KINDS = ("float32", "fp16", "dynamic_int8", "int8_embeddings", "static_int8", "full_int8")


def sst2(work: Path, seed: int = 0) -> tuple[Path, list, np.ndarray, list, list]:
    """Run, dev texts, their labels, further texts, calibration texts."""
    if not (work / f"seed{seed}" / "weights.safetensors").exists():
        run(seed, work)
    dev = list(read_table(SHARED / "glue" / "SST-2" / "dev.tsv"))
    train = [row["sentence"] for row in read_table(SHARED / "glue" / "SST-2" / "train.tsv")]
    labels = np.array([int(row["label"]) for row in dev])
    return (
        work / f"seed{seed}",
        [row["sentence"] for row in dev],
        labels,
        further_sentences(),
        train[:: len(train) // 200][:200],
    )


def qnli(work: Path) -> tuple[Path, list, np.ndarray, list, list]:
    """The same for a pair task."""
    folder = SHARED / "glue" / "QNLI"
    labels = {"entailment": "entailment", "not_entailment": "not_entailment"}
    task = Task("qnli", text="question", text_b="sentence", labels=labels)
    data = (folder / "train_slice.tsv", folder / "dev_slice.tsv")
    if not (work / "minilm").exists():
        kb.import_checkpoint(minilm(), "hf", out=work / "minilm")
    # goes on with a killed run, and leaves a finished one alone
    kb.finetune(work / "minilm", task, data, out=work / "qnli", epochs=3, batch=32, learning_rate=5e-5)
    train, dev = (read_rows(task, path) for path in data)
    return work / "qnli", dev.texts, dev.targets, [], train.texts[:: len(train.texts) // 200][:200]


def measure(
    path: Path, dev: list, labels: np.ndarray, further: list, expected: np.ndarray | None
) -> tuple[list[float], np.ndarray]:
    """Accuracy, agreement, difference, MB and ms, and the file's probabilities."""
    model = load(path, cache=False)
    found = model.outputs(dev + further)
    times = []
    for text in dev:
        begin = time.perf_counter()
        model([text])
        times.append((time.perf_counter() - begin) * 1e3)
    expected = found if expected is None else expected
    accuracy = (found[: len(dev)].argmax(1) == labels).mean()
    same = (found.argmax(1) == expected.argmax(1)).mean()
    difference = np.abs(found - expected)[:, 1].mean()
    return [accuracy, same, difference, path.stat().st_size / 1e6, statistics.median(times)], found


def line(values: list[float]) -> str:
    """What `measure` or medians of it say."""
    return "{:8.4f} {:9.4f} {:10.5f} {:7.2f} {:7.2f}".format(*values)


def table(
    name: str, kinds: list[str], trained: Path, dev: list, labels: np.ndarray, further: list, calibration: list
) -> dict[str, list[float]]:
    """Print the table of a task; its files lie beside the run."""
    print(f"{name}: {len(dev)} dev rows, {len(further)} further texts, {len(calibration)} to calibrate", flush=True)
    print(f"{'':22} accuracy agreement difference      MB  p50 ms   compress cpu s")
    expected, measured = None, {}
    for kind in kinds:
        out = trained.parent / f"{name}_{kind}.tflite"
        settings = {"min_agreement": 0, "texts": dev[:50], "overwrite": True}
        begin = time.process_time()
        report = mobile.compress(
            trained,
            kind,
            out,
            **settings,
            **({"calibration": calibration} if kind in ("static_int8", "full_int8") else {}),
        )
        spent = time.process_time() - begin
        measured[kind], found = measure(out, dev, labels, further, expected)
        expected = found if expected is None else expected
        called = f"{kind} (plain)" if kind == "full_int8" else kind
        print(f"{called:22} {line(measured[kind])}   {spent:6.0f}", flush=True)
        if kind == "static_int8":
            print(f"{'':22} in float: {report['float_operators']}; dynamic: {', '.join(report['dynamic'])}", flush=True)
    return measured


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser()
    options.add_argument("--work", type=Path, required=True)
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="the first is what others are held to"
    )
    options.add_argument("--pair", action="store_true")
    options.add_argument("--max-drop", type=float, help="points: print the table of a budget on SST-2 dev too")
    options = options.parse_args()
    found = [table(f"sst2-{seed}", options.kinds, *sst2(options.work, seed)) for seed in options.seeds]
    if len(found) > 1:
        print(f"sst2, medians of {len(found)} seeds (accuracies by seed)")
        for kind in options.kinds:
            columns = list(zip(*(measured[kind] for measured in found), strict=True))
            accuracies = " ".join(f"{accuracy:.4f}" for accuracy in columns[0])
            print(f"{kind:22} {line([statistics.median(column) for column in columns])}   ({accuracies})")
    if options.pair:
        table("qnli", options.kinds, *qnli(options.work))
    if options.max_drop is not None:
        data, out = SHARED / "glue" / "SST-2" / "dev.tsv", options.work / "budget.tflite"
        report = mobile.compress(options.work / "seed0", out=out, data=data, max_drop=options.max_drop, overwrite=True)
        mobile.quantize.show(report)


if __name__ == "__main__":
    main()
