"""A few updates of a distillation under one strategy: python -m tests.mobile.distill.replicas STRATEGY OUT.npz.

In a process of its own: another number of replicas does not go into the same one.
"""

import sys

import numpy as np


def main(name: str, out: str) -> None:
    """Write the student's weights after the updates."""
    from kerasbert.training.strategy import strategy as make_strategy

    strategy = make_strategy(name)  # before anything else touches the devices
    from kerasbert.layers.naming import values
    from kerasbert.mobile.distill.program import LabelImitation
    from kerasbert.training.optimizers import AdamW, LinearSchedule
    from kerasbert.training.step import StepCore, distribute
    from tests.mobile.distill import worlds
    from tests.mobile.distill.test_program import ALL

    with strategy.scope():
        student, teacher = worlds.model("bert", 8, dropout=0.1), worlds.model("bert", seed=2)
        program = LabelImitation(student, teacher, ALL)
        # the older form: in the other a gradient that is rounding alone makes a step of its own at the first updates
        optimizer = AdamW(LinearSchedule(1e-3, 10), weight_decay=0.01, **{**AdamW.defaults, "epsilon_hat": True})
    core = StepCore(program, optimizer, strategy)
    for seed in range(3):
        batch = {key: value.numpy() for key, value in worlds.batch(seed=seed).items()}
        core.step(distribute(batch, strategy))
    np.savez(out, **values(program.model))


if __name__ == "__main__":
    main(*sys.argv[1:])
