"""A whole plan (distil, prune, int8) killed again and again, beside one that is left alone: the same bytes?

    python -m tests.mobile.plan_kills --kills 10 [--seed 0]

Each process is killed at a random moment after its first stage was announced; then the same command is run again.
"""

import argparse
import hashlib
import random
import signal
import tempfile
import time
from pathlib import Path

from tests import tiny
from tests.forks import Child
from tests.support import start

PLAN = """
model: {model}
data: {data}
stages:
  - distill: {{student: 1, steps: 40, batch: 16, length: 16, save_every: 4, unlabelled: [{texts}]}}
  - prune: {{sparsity: 0.5, steps: 40, batch: 16, length: 16, save_every: 4, frequency: 3}}
  - quantize: {{lengths: [12, 16], min_agreement: 0.5}}
"""


def prepare(folder: Path) -> Path:
    """A teacher, its data and a plan -> the plan's file."""
    import kerasbert as kb

    data = folder / "data"
    data.mkdir()
    tiny.labelled(data / "train.tsv", 100)
    tiny.labelled(data / "dev.tsv", 40, seed=1)
    (folder / "texts.txt").write_text("\n".join(tiny.sentences(100, 5)) + "\n")
    settings = {"steps": 4, "batch": 8, "learning_rate": 1e-3, "changes": tiny.SPEC, "quiet": True}
    kb.pretrain("bert/tiny", tiny.records(folder), out=folder / "pretrained", **settings)
    settings = {"steps": 60, "batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}
    kb.finetune(folder / "pretrained", "classification", str(data), out=folder / "teacher", **settings)
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.format(model=folder / "teacher", data=data, texts=folder / "texts.txt"))
    return plan


def command(plan: Path, out: Path) -> Child:
    """The plan's process."""
    return start("-m", "kerasbert.mobile.cli", "compress", "--plan", plan, "--out", out)


def until_begun(process: Child) -> str:
    """Wait until a stage or a row of the ledger is announced -> that line."""
    while True:
        ended, read = process.poll() is not None, process.stderr.read_text()
        for line in read.splitlines():
            if line.startswith(("stage ", "measure ")):
                return line
        assert not ended, f"nothing was left to do:\n{read}"
        time.sleep(0.01)


def run(folder: Path, kills: int, seed: int) -> dict:
    """Both plans; what was seen."""
    plan = prepare(folder)
    whole = command(plan, folder / "whole.tflite")
    until_begun(whole)
    begun = time.monotonic()
    assert whole.wait() == 0
    assert whole.stdout.read_text().strip()
    seconds = time.monotonic() - begun
    draw, done, begins = random.Random(seed), 0, []
    out = folder / "killed.tflite"
    while True:
        process = command(plan, out)
        first = until_begun(process)
        if done == kills:
            assert process.wait() == 0
            assert process.stdout.read_text()
            break
        time.sleep(draw.uniform(0, seconds / (kills + 1)))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the plan ended before it was killed"
        begins.append(first.split(":")[0].split(" /")[0].strip())
        done += 1
    digests = [hashlib.sha256((folder / f"{name}.tflite").read_bytes()).hexdigest() for name in ("whole", "killed")]
    return {"kills": done, "went on with": begins, "seconds": round(seconds), "same": digests[0] == digests[1]}


def main() -> None:
    """Print what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in run(Path(folder), options.kills, options.seed).items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
