"""Two updates of families' objectives under one strategy.

python -m kerasbert.testing.replicas STRATEGY FOLDER OUT.npz FAMILY[:OBJECTIVE] ...

One process for all of them, another for another number of replicas: they do not mix in one. Plain gradient descent, which hides
no difference and has a tenth of AdamW's tracing: tests/training/test_step.py asks the same of every optimizer.
"""

import sys
from pathlib import Path

import numpy as np


def main(name: str, folder: str | Path, out: str, families: list[str]) -> None:
    """Write the weights after the updates, `FAMILY[:OBJECTIVE] weight`.

    Args:
        name: str, of the strategy. folder: where records are made. out: file.
        families: names, each with ":OBJECTIVE" where it is not the family's own.
    """
    folder = Path(folder)
    from kerasbert.training.strategy import strategy as make_strategy

    strategy = make_strategy(name)  # before anything else touches the devices
    import keras

    from kerasbert import registry
    from kerasbert.layers.naming import values
    from kerasbert.testing.battery import BATCH, Subject, shallow
    from kerasbert.training.step import StepCore, distribute

    found = {}
    for asked in families:
        family, _, objective = asked.partition(":")
        subject = Subject(
            family, folder, objective=objective, **shallow(registry.family(family).spec)
        )  # half the tracing
        with strategy.scope():
            program = subject.program(subject.encoder())
            optimizer = keras.optimizers.SGD(0.1)
        core = StepCore(program, optimizer, strategy)
        if subject.pretrained:
            data = iter(subject.records().dataset(BATCH, seed=0))
            batches = [program.prepare(next(data)) for _ in range(2)]
        else:  # the next token of random ones
            batches = [subject.batch(program)] * 2
        for batch in batches:
            core.step(distribute({key: value.numpy() for key, value in batch.items()}, strategy))
        found |= {f"{asked} {name}": value for name, value in values(program.model).items()}
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
