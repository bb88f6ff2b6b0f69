"""Kill one pretraining run many times, at random moments and during saves, and compare it with one left alone.

python -m tests.training.kills --kills 50 [--family t5]

BERT's run has two phases, that of another family, from its tiny model, has one. A process is killed after a random number of its
updates, by SIGKILL or SIGTERM; every third time as soon as a checkpoint is being written. The processes are forks of one that
has imported TensorFlow.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests import tiny
from tests.forks import Child
from tests.support import start

STEPS, SAVE_EVERY = 400, 4


def records(folder: Path, family: str) -> list[dict]:
    """The run's phases, BERT's on records of 16 and of 32 tokens."""
    from kerasbert.data import write_records

    if family != "bert":
        import kerasbert as kb
        from kerasbert.testing.battery import Subject

        subject = Subject(family, folder)
        kb.save(subject.encoder(), folder / "model")
        return [{"data": str(subject.records().directory), "batch": 8, "accumulate": 2}]
    for name, length in (("short", 16), ("long", 32)):
        write_records(
            [tiny.corpus(folder / f"{name}.txt", seed=length)], tiny.tokenizer(), folder / name, length=length
        )
    return [
        {"steps": STEPS // 2, "data": str(folder / "short"), "batch": 8},
        {"data": str(folder / "long"), "batch": 4, "accumulate": 2},
    ]


def begin(folder: Path, out: Path) -> Child:
    """A process that begins a run, or goes on with it."""
    return start("-m", "tests.training.kills", "--worker", folder, out)


def work(folder: Path, out: Path) -> None:
    """What a process does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))  # as the command line does
    train(json.loads((folder / "phases.json").read_text()), out)


def train(phases: list[dict], out: Path) -> None:
    """The run, which notes down at which update each process began."""
    import kerasbert as kb
    from kerasbert.training.trainer import Trainer

    restore = Trainer._restore

    def noting(self):
        step = restore(self)
        with (out / "began.txt").open("a") as file:
            file.write(f"{step}\n")
        return step

    Trainer._restore = noting
    settings = {"steps": STEPS, "learning_rate": 1e-3, "quiet": True, "log_every": 1, "save_every": SAVE_EVERY}
    own = out.parent / "model"
    if own.exists():
        kb.pretrain(own, out=out, **phases[0], **settings)
    else:
        kb.pretrain("bert/tiny", phases[0]["data"], out=out, phases=phases, changes=tiny.SPEC, **settings)


def checkpoint(out: Path) -> int:
    """Update of the newest complete checkpoint."""
    return max((int(path.name[5:]) for path in out.glob("checkpoints/step_*")), default=0)


def logged(out: Path) -> list[int]:
    """Updates in metrics.jsonl."""
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line)["step"])
        except ValueError:
            continue
    return found


def newest(out: Path) -> int:
    """The last update in metrics.jsonl."""
    path = out / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines[-2:] if line.endswith(b"\n")]
    return json.loads(whole[-1])["step"] if whole else 0


def kill(folder: Path, out: Path, kills: int, draw: random.Random) -> dict:
    """Go on with the run until it ends, killed `kills` times on the way; what was seen.

    Raises:
        AssertionError: a process began elsewhere than at the newest complete checkpoint, or ended by itself with an error.
    """
    seen = {"SIGKILL": 0, "SIGTERM": 0, "during a save": 0, "status 75": 0, "updates made again": 0}
    seen["before the first update"] = 0
    done, processes, status = 0, 0, None
    while status != 0:
        begins, before = checkpoint(out), len(_began(out))
        process = begin(folder, out)
        processes += 1
        if done == kills:
            status = process.wait()
            assert status == 0, status
        else:
            name, early, saving = draw.choice(("SIGKILL", "SIGTERM")), done % 10 == 9, done % 3 == 2
            if early:
                time.sleep(draw.random() * 2)  # while the process builds its model
                status = process.poll()
            else:
                budget = 2 * (STEPS - begins) / (kills - done + 1)
                status = _wait(process, out, begins + draw.randint(1, max(1, int(budget))), saving, before)
            if status is None:
                during = bool(list(out.glob("checkpoints/.step_*")))
                process.send_signal(getattr(signal, name))
                status = process.wait()
                done += 1
                seen[name] += 1
                seen["during a save"] += during and not early
                seen["before the first update"] += early
                seen["status 75"] += status == 75
                assert status in (0, 75, -signal.SIGKILL, *([-signal.SIGTERM] if early else [])), status
                lost = newest(out) - checkpoint(out)
                if not early:
                    # SIGTERM loses nothing, SIGKILL at most what came after the save in flight was begun
                    assert lost <= (0 if name == "SIGTERM" else 2 * SAVE_EVERY), (name, lost)
                    seen["updates made again"] += lost
        began = _began(out)
        if len(began) > before:
            assert began[-1] == begins, f"began at {began[-1]}, the newest checkpoint was {begins}"
    assert logged(out) == list(range(1, STEPS + 1)), "every update is logged once"
    return seen | {"kills": done, "processes": processes}


def _began(out: Path) -> list[int]:
    path = out / "began.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _wait(process: Child, out: Path, until: int, saving: bool, before: int) -> int | None:
    """Wait for an update, and for a save to be under way if `saving`; the status if the process ends before."""
    while (status := process.poll()) is None:
        # what an older process logged is there until this one has begun
        ready = len(_began(out)) > before and newest(out) >= until
        if ready and (not saving or list(out.glob("checkpoints/.step_*"))):
            return None
        time.sleep(0.003)
    return status


def run(folder: Path, kills: int, seed: int = 0, family: str = "bert") -> dict:
    """Both runs in a folder; what was seen, and the largest difference of a weight at the end."""
    import numpy as np

    from kerasbert.checkpoints import read_tensors

    (folder / "phases.json").write_text(json.dumps(records(folder, family)))
    assert begin(folder, folder / "whole").wait() == 0
    seen = kill(folder, folder / "killed", kills, random.Random(seed))
    one, other = read_tensors(folder / "whole"), read_tensors(folder / "killed")
    assert one.names() == other.names()
    return seen | {"difference": max(float(np.abs(one.read(n) - other.read(n)).max()) for n in one.names())}


def main() -> None:
    """Print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default="bert")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*map(Path, options.worker))
        return
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        seen = run(Path(folder), options.kills, options.seed, options.family)
    print(f"{STEPS} updates, a checkpoint every {SAVE_EVERY}, {time.monotonic() - began:.0f} s")
    for name, value in seen.items():
        print(f"  {name}: {value}")
    assert seen["difference"] == 0.0


if __name__ == "__main__":
    main()
