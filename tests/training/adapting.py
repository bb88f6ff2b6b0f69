"""Fine-tunings of four families with frozen embeddings, gradual unfreezing and a mix of the layers, in a process of its own.

python -m tests.training.adapting FOLDER whole|half|rest|two
"""

import contextlib
import sys
from pathlib import Path

import kerasbert as kb
from kerasbert.testing import world
from kerasbert.testing.battery import Subject, eagerly
from kerasbert.training.trainer import Trainer

FAMILIES = ("bert", "albert", "electra", "mobilebert")
STEPS, STOP = 3, 3
SETTINGS = {"layers": "mix", "freeze": ["^embeddings/"], "unfreeze": 1, "optimizer_options": {"ema": 0.5}}
SETTINGS |= {
    "steps": STEPS,
    "batch": 8,
    "length": 8,
    "learning_rate": 1e-2,
    "save_every": 2,
    "evaluate_every": 0,
    "quiet": True,
}


class Stopped(Exception):
    """Ends a run in the place of a signal."""


@contextlib.contextmanager
def stopping():
    """Within it a run ends after STOP updates, before they are saved."""
    tell = Trainer._tell

    def telling(self, step):
        if step == STOP:
            raise Stopped
        tell(self, step)

    Trainer._tell = telling
    try:
        with contextlib.suppress(Stopped):
            yield
    finally:
        Trainer._tell = tell


def work(folder: Path, part: str) -> None:
    """One part of every family's runs."""
    rows = {name: folder / f"{name}.tsv" for name in ("train", "dev")}
    for family in FAMILIES:
        start = folder / f"{family}-start"
        if part == "whole":
            world.labelled(rows["train"], 40), world.labelled(rows["dev"], 8, seed=1)
            kb.save(Subject(family, folder).encoder(), start)
        out = folder / f"{family}-{'half' if part == 'rest' else part}"
        strategy = "cpu:2" if part == "two" else "cpu"
        with eagerly(), stopping() if part == "half" else contextlib.nullcontext():
            kb.finetune(start, "classification", rows, out=out, strategy=strategy, log_every=1, **SETTINGS)


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
