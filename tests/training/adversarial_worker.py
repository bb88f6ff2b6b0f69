"""Updates of each way of adversarial training, whole and on two replicas with micro-batches; and SMART's run in two parts.

python -m tests.training.adversarial_worker MODEL FOLDER
prints the largest differences of the weights.
"""

import json
import sys
from pathlib import Path

import numpy as np

import kerasbert as kb
from kerasbert.layers.naming import values
from kerasbert.testing.battery import eagerly
from kerasbert.training import adversarial
from kerasbert.training.step import distribute
from kerasbert.training.strategy import strategy
from tests.training.adapted_worker import in_two_parts
from tests.training.test_adversarial import SPEC, made

DROPPED = SPEC.derive({"dropout": 0.1, "attention.dropout": 0.1})


def updates(name, devices, accumulate):
    """The weights after two updates, with dropout."""
    with devices.scope():
        program, core, batch = made(name, spec=DROPPED, rate=0.1, accumulate=accumulate)
    part = distribute({name: value.numpy() for name, value in batch.items()}, devices)
    with eagerly():
        for _ in range(2):
            core.step(part)
    return values(program.model)


def run(model, folder, out):
    """SMART's run of two updates, each saved."""
    settings = {"steps": 2, "batch": 8, "learning_rate": 1e-3, "length": 10, "save_every": 1, "quiet": True}
    with eagerly():
        return values(kb.finetune(model, "classification", folder, out=out, adversarial="smart", **settings))


def distance(one, other):
    """The largest difference of the weights."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def main():
    model, folder = sys.argv[1], Path(sys.argv[2])
    two, alone = strategy("cpu:2"), strategy("cpu")
    plain, found = updates(None, alone, 1), {}
    for name in adversarial.WAYS:
        whole = updates(name, alone, 1)
        found[name] = {"split": distance(whole, updates(name, two, 2)), "plain": distance(whole, plain)}
    parts = folder / "parts"
    found["stopped"] = distance(
        run(model, folder, folder / "whole"), in_two_parts(lambda: run(model, folder, parts), parts)
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
