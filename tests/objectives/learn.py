"""Train a tiny model of each objective on the quickstart's books; in a process of its own for several replicas.

python -m tests.objectives.learn STRATEGY FOLDER OBJECTIVE ...
"""

import json
import sys
from pathlib import Path

import numpy as np

import kerasbert as kb
from kerasbert import registry
from kerasbert.objectives.base import Objective
from kerasbert.training.strategy import strategy as make_strategy
from tests.objectives import books

STEPS, LAST = 400, 100
CHAPTERS = 9  # of each book: 400 updates go over it six times
SIZE = {
    "hidden": 64,
    "attention.heads": 4,
    "feedforward.width": 128,
    "blocks.layers": 1,
    "dropout": 0.0,
}
TOKENS = ("mlm", "sbo", "wso", "lm")  # losses whose targets are tokens of the text


def family_of(objective: str) -> registry.Family | None:
    """The first family that is trained with it, or None."""
    return next((family for family in registry.families().values() if family.objective == objective), None)


def run(objective: str, strategy: str, folder: Path) -> dict:
    """Entropy of the targets, nats; mean losses of the last updates by name."""
    family = family_of(objective)
    records = books.records(folder, registry.objective(objective).packing, chapters=CHAPTERS)
    changes = SIZE | {"embeddings.positions": records.length + family.spec.embeddings.offset}
    if family.spec.embeddings.width:
        changes["embeddings.width"] = 32
    settings = {"steps": STEPS, "batch": 32, "learning_rate": 6e-3, "warmup": 20, "schedule": "linear", "log_every": 5}
    kb.pretrain(
        f"{family.name}/{next(iter(family.sizes))}",
        records.directory,
        out=folder / objective,
        changes=changes,
        strategy=strategy,
        save_every=STEPS,
        quiet=True,
        **settings,
    )
    logs = [json.loads(line) for line in (folder / objective / "metrics.jsonl").read_text().splitlines()]
    last = [log for log in logs if log["step"] > STEPS - LAST]
    losses = {name: float(np.mean([log[name] for log in last])) for name in TOKENS if name in last[0]}
    return {"entropy": Objective.baseline(records)["entropy"], "losses": losses}


def main(strategy: str, folder: Path, objectives: list[str]) -> None:
    """Print what each gave, a line of json each."""
    make_strategy(strategy)  # before TensorFlow is used
    for objective in objectives:
        print(json.dumps(run(objective, strategy, folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
