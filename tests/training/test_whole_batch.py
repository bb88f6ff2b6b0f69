"""GradCache: a loss that compares the whole batch is the same for any replicas and micro-batches, with dropout."""

import json

import numpy as np
import pytest

from kerasbert.testing.battery import eagerly
from tests.support import forked
from tests.training import whole_worker

LIMIT = 1e-6  # of the gradient's norm


def same(one: dict, other: dict) -> None:
    """The gradients of the first update, and what every update logs."""
    assert one.keys() == other.keys()
    first, second = (
        np.concatenate([g.ravel() for name, g in x.items() if name.startswith("gradient/")]) for x in (one, other)
    )
    assert np.linalg.norm(first) > 0.1
    assert np.linalg.norm(first - second) < LIMIT * np.linalg.norm(first)
    for name in (name for name in one if name.startswith("log/")):
        np.testing.assert_allclose(one[name], other[name], rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="module")
def whole():
    with eagerly():
        return whole_worker.run({"loss": "ranking", "steps": 2})


def test_cached_gradients_are_those_of_the_whole_batch(whole):
    """Negatives, an anchor twice, an input that fills up, dropout of .1."""
    with eagerly():
        same(whole, whole_worker.run({"loss": "ranking", "steps": 2, "accumulate": 4}))
        dry = whole_worker.run({"loss": "ranking", "steps": 1, "dropout": 0.0})
    assert abs(dry["log/loss"][0] - whole["log/loss"][0]) > 1e-3  # dropout was on


APART = {"padded": {"first": [16]}}


@pytest.mark.parametrize("accumulate", [1, 4])
def test_first_rows_that_are_read_apart_draw_what_they_draw_with_the_others(whole, accumulate):
    """An array of their own, of the same length: the dropout of a row is its own, whatever is read beside it."""
    with eagerly():
        same(whole, whole_worker.run({"loss": "ranking", "steps": 2, "accumulate": accumulate} | APART))


def test_first_rows_of_another_length_have_the_same_vectors():
    settings = {"loss": "ranking", "steps": 1, "dropout": 0.0}
    with eagerly():
        one, other = (whole_worker.run(settings | {"padded": each}) for each in ({}, {"first": [24], "longest": 24}))
    same(one, other)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "cosent", "accumulate": 2, "options": {"dims": [16, 8]}},
        {"loss": "ranking", "accumulate": 2, "scaling": True},
    ],
    ids=lambda settings: settings["loss"],
)
def test_each_loss_is_the_same_in_micro_batches(settings):
    with eagerly():
        one, other = (whole_worker.run(settings | {"accumulate": n, "steps": 1}) for n in (1, settings["accumulate"]))
    same(one, other)


@pytest.mark.slow
def test_two_replicas_gather_each_others_negatives(whole, tmp_path):
    """In a graph, two micro-batches each."""
    settings = {"loss": "ranking", "steps": 2, "strategy": "cpu:2", "accumulate": 2}
    forked("-m", "tests.training.whole_worker", tmp_path / "two.npz", json.dumps(settings))
    same(whole, dict(np.load(tmp_path / "two.npz")))


@pytest.mark.slow
def test_two_replicas_read_first_rows_apart(whole, tmp_path):
    settings = {"loss": "ranking", "steps": 2, "strategy": "cpu:2", "accumulate": 2} | APART
    forked("-m", "tests.training.whole_worker", tmp_path / "two.npz", json.dumps(settings))
    same(whole, dict(np.load(tmp_path / "two.npz")))


@pytest.mark.full
def test_two_replicas_without_micro_batches(whole, tmp_path):
    settings = {"loss": "ranking", "steps": 2, "strategy": "cpu:2"}
    forked("-m", "tests.training.whole_worker", tmp_path / "two.npz", json.dumps(settings))
    same(whole, dict(np.load(tmp_path / "two.npz")))
