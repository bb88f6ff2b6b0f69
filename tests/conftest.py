"""Runs that many tests need, made once: a pretrained tiny BERT and a fine-tuned classifier."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

from kerasbert.testing import world
from tests import tiny
from tests.forks import uncollected
from tests.support import once

# Two workers take file after file: the ones that take minutes come first, so that none of them is the last. Before them the one
# that forks a worker a hundred times, which takes twice as long where the worker has trained models.
LONG = (
    "test_replacing.py",
    "test_docs.py",
    "test_learning.py",
    "test_battery.py",
    "test_trainer.py",
    "test_parity_kinds.py",
    "test_journey.py",
    "test_step.py",
    "test_plan.py",
    "test_electra.py",
    "test_aware.py",
    "test_ernie.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """A worker keeps what it imports."""
    with uncollected():
        return (yield)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory):
    """Run directory of a tiny BERT after a few updates."""

    def make(folder):
        import kerasbert as kb

        settings = {"steps": 4, "batch": 8, "learning_rate": 1e-3, "changes": world.SPEC, "quiet": True}
        kb.pretrain("bert/tiny", tiny.records(folder), out=folder / "run", **settings)

    return once(tmp_path_factory, "pretrained", make)[0] / "run"


@pytest.fixture(scope="session")
def classifier(pretrained, tmp_path_factory):
    """Run directory of a classifier that has learnt to tell `pos` from `neg`."""

    def make(folder):
        import kerasbert as kb

        train, dev = tiny.labelled(folder / "train.tsv", 400), tiny.labelled(folder / "dev.tsv", 80, seed=1)
        settings = {"epochs": 6, "batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}
        kb.finetune(pretrained, "classification", {"train": train, "dev": dev}, out=folder / "run", **settings)

    return once(tmp_path_factory, "classifier", make)[0] / "run"
