"""Every objective learns: within 400 updates its losses are below the entropy of its targets, on one replica and on two.

A tiny model (one layer of 64), rows of 64 tokens of the quickstart's books, batches of 32; the mean of the last 100 updates.
A new objective joins by being registered.
"""

import json

import pytest

from kerasbert import registry
from tests.objectives import learn
from tests.support import python

OBJECTIVES = [name for name in registry.objectives() if learn.family_of(name)]


@pytest.fixture(scope="module", params=["cpu", "cpu:2"])
def found(request, tmp_path_factory):
    """(strategy, objective -> what it gave)."""
    folder = tmp_path_factory.mktemp("learning")
    done = python("-m", "tests.objectives.learn", request.param, folder, *OBJECTIVES, timeout=3000)
    return request.param, dict(zip(OBJECTIVES, map(json.loads, done.stdout.splitlines()[-len(OBJECTIVES) :])))


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_go_below_the_entropy_of_their_targets(objective, found):
    strategy, entropy, losses = found[0], found[1][objective]["entropy"], found[1][objective]["losses"]
    print(f"{objective} on {strategy}: unigram entropy {entropy:.3f}, losses {losses}")
    assert losses
    for name, loss in losses.items():
        assert loss < entropy, name
