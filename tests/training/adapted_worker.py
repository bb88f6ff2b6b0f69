"""Adapted models of some families, trained whole, in two parts and on two replicas.

python -m tests.training.adapted_worker FOLDER TRAIN DEV FAMILY...
prints for each family the largest differences, and the names of weights that are not as they should be.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.adapters import adapts
from kerasbert.checkpoints.directory import built
from kerasbert.layers.naming import values
from kerasbert.testing.battery import eagerly, tiny
from kerasbert.training.step import StepCore
from kerasbert.training.strategy import strategy
from tests import tiny as world

TEXTS = ["the happy cat", "a bad film"]


class Killed(Exception):
    """An update that was not made."""


def train(base, data, out, **settings):
    """Two updates without graphs, each saved."""
    settings = {"steps": 2, "batch": 10, "learning_rate": 1e-2, "length": 8, "save_every": 1, "quiet": True, **settings}
    with eagerly():
        return kb.finetune(base, "classification", data, out=out, lora=2, adapters=3, **settings)


def in_two_parts(run, out):
    """What `run()` gives that ended in front of its second update and was run again."""
    step, begun = StepCore.step, []

    def dying(self, batch):
        begun.append(batch)
        if len(begun) == 2:
            raise Killed
        return step(self, batch)

    StepCore.step = dying
    try:
        run()
    except Killed:
        pass
    finally:
        StepCore.step = step
    assert json.loads((out / "checkpoints/step_1/manifest.json").read_text())["step"] == 1
    return run()


def measured(name, folder, data):
    """What is asked of a family."""
    family, tokenizer = registry.family(name), world.tokenizer()
    keras.utils.set_random_seed(0)
    base = built(family, family.spec.derive(tiny(family.spec, tokenizer.size)), name)
    base.tokenizer = tokenizer
    kb.save(base, folder / "base")
    whole = train(folder / "base", data, folder / "whole")
    expected, before = values(whole), values(base)

    def distance(model):
        found = values(model)
        assert found.keys() == expected.keys()
        return max(float(np.abs(found[weight] - expected[weight]).max()) for weight in found)

    loaded = kb.load(folder / "whole/adapter", base=base)
    frozen = [weight for weight in before if weight in expected and not adapts(whole.spec, weight)]
    with eagerly():
        alone = kb.predict(loaded, TEXTS) == kb.predict(whole, TEXTS)
    moved = [weight for weight in expected if weight.endswith(("lora_b", "up/kernel"))]
    assert moved
    return {
        "resumed": distance(in_two_parts(lambda: train(folder / "base", data, folder / "again"), folder / "again")),
        "replicas": distance(train(folder / "base", data, folder / "two", strategy="cpu:2")),
        "frozen": [weight for weight in frozen if (before[weight] != expected[weight]).any()],
        "idle": [weight for weight in moved if not expected[weight].any()],
        "alone": alone,
    }


def main():
    folder, train_file, dev_file, *families = sys.argv[1:]
    strategy("cpu:2")
    data = {"train": train_file, "dev": dev_file}
    print(json.dumps({name: measured(name, Path(folder) / name, data) for name in families}))


if __name__ == "__main__":
    main()
