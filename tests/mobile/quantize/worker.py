"""Train with rounding under one strategy: python -m tests.mobile.quantize.worker STRATEGY RUN TRAIN DEV OUT."""

import sys


def main(strategy: str, run: str, train: str, dev: str, out: str) -> None:
    """Five updates, rounded after the second."""
    from kerasbert.training.strategy import strategy as make_strategy

    make_strategy(strategy)  # before anything else touches the devices
    from kerasbert.mobile import quantize
    from tests.mobile.prune.conftest import SETTINGS

    settings = SETTINGS | {"learning_rate": 1e-3}
    data = {"train": train, "dev": dev}
    quantize.aware(run, data, out=out, per="tensor", delay=2, steps=5, strategy=strategy, **settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
