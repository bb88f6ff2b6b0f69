"""Every objective learns: within 300 updates its losses are below the entropy of its targets, on one replica and on two.

A tiny model (one layer of 64), rows of 64 tokens of the quickstart's books, batches of 32; the mean of the last 100 updates.
A new objective joins by being registered.
"""

import json

import pytest

from kerasbert import registry
from tests.objectives import learn
from tests.support import python

OBJECTIVES = [name for name in registry.objectives() if learn.family_of(name)]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cpu", "cpu:2"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_go_below_the_entropy_of_their_targets(objective, strategy, tmp_path):
    done = python("-m", "tests.objectives.learn", objective, strategy, tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{objective} on {strategy}: unigram entropy {found['entropy']:.3f}, losses {found['losses']}")
    assert found["losses"]
    for name, loss in found["losses"].items():
        assert loss < found["entropy"], name
