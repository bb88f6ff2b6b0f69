"""Two updates of every family's own objective under one strategy: python -m tests.models.replicas STRATEGY FOLDER OUT.npz.

Of families that are one encoder with one objective the first is taken. One process for all of them, another for another
number of replicas: they do not mix in one.
"""

import sys
from pathlib import Path

import numpy as np


def main(name: str, folder: Path, out: str) -> None:
    """Write the weights after the updates, `family weight`."""
    from kerasbert.training.strategy import strategy as make_strategy

    strategy = make_strategy(name)  # before anything else touches the devices
    from kerasbert import registry
    from kerasbert.layers.naming import values
    from kerasbert.testing.battery import BATCH, Subject, different
    from kerasbert.training.optimizers import adamw
    from kerasbert.training.step import StepCore, distribute

    found = {}
    for family in different("objective", "tokenizer"):
        if not registry.family(family).objective:
            continue
        subject = Subject(family, folder, **{"blocks.layers": 1})  # one is enough, and half the tracing
        with strategy.scope():
            program = subject.program(subject.encoder())
            optimizer = adamw(learning_rate=1e-3, steps=10)
        core = StepCore(program, optimizer, strategy)
        data = iter(subject.records().dataset(BATCH, seed=0))
        batches = [program.prepare(next(data)) for _ in range(2)]
        for batch in batches:
            core.step(distribute({key: value.numpy() for key, value in batch.items()}, strategy))
        found |= {f"{family} {name}": value for name, value in values(program.model).items()}
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
