"""Prune under one strategy: python -m tests.mobile.prune.worker STRATEGY RUN TRAIN DEV OUT. Fails where a weight comes back."""

import sys


def main(strategy: str, run: str, train: str, dev: str, out: str) -> None:
    """Six updates; the masks are looked at after each."""
    from kerasbert.training.strategy import strategy as make_strategy

    make_strategy(strategy)  # before anything else touches the devices
    import tensorflow as tf

    from kerasbert.mobile import prune
    from kerasbert.training.step import StepCore
    from tests.mobile.prune.conftest import SETTINGS

    step, seen = StepCore.step, []

    def looked_at(self, batch):
        logs = step(self, batch)
        pruner = seen[0]
        for name, variable in pruner.weights.items():
            gone = ~tf.convert_to_tensor(pruner.masks[name]).numpy()
            for copy in self.strategy.experimental_local_results(variable.value):
                assert (copy.numpy()[gone] == 0).all(), name
        seen.append(1)
        return logs

    install = prune.Magnitude.install
    prune.Magnitude.install = lambda self, model, steps: seen.append(self) or install(self, model, steps)
    StepCore.step = looked_at
    settings = SETTINGS | {"learning_rate": 1e-3}
    data = {"train": train, "dev": dev}
    prune.magnitude(run, data, out=out, sparsity=0.6, frequency=2, steps=6, strategy=strategy, **settings)
    assert len(seen) == 7


if __name__ == "__main__":
    main(*sys.argv[1:])
