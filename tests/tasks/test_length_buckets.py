"""Lengths of training batches: the cheapest of all choices, kept with the run, and kept as they were by older runs."""

import functools
import itertools
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.layers.encoder import Encoder
from kerasbert.tasks import length_buckets
from kerasbert.tasks.length_buckets import GRAPH, STEP, chosen
from kerasbert.testing import battery
from kerasbert.training import finetune
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.finetune import FineTuning


def cost(some, longest, work):
    return sum(min(each for each in some if each >= one) * work for one in longest) + GRAPH * len(some)


@pytest.mark.parametrize("seed", range(8))
def test_no_other_choice_is_cheaper(seed):
    draw = np.random.default_rng(seed)
    longest = np.minimum(draw.geometric(0.1, 40) + 2, 37).tolist()
    rows, weights = float(draw.integers(10, 10**6)), int(draw.integers(10**6, 10**8))
    found = chosen(longest, rows=rows, weights=weights, most=37)
    possible = sorted({min(-(-one // STEP) * STEP, 37) for one in longest})
    choices = [
        (*some, possible[-1]) for count in range(len(possible)) for some in itertools.combinations(possible[:-1], count)
    ]
    least = min(cost(some, longest, rows * weights) for some in choices)
    assert cost(found, longest, rows * weights) == pytest.approx(least)


def test_there_are_not_too_many(monkeypatch):
    monkeypatch.setattr(length_buckets, "MOST", 3)
    found = chosen(range(4, 100), rows=1e6, weights=10**9, most=128)
    assert len(found) == 3
    assert found[-1] == 100


@pytest.fixture(autouse=True)
def eagerly():
    """No graph of any length is traced."""
    with battery.eagerly():
        yield


def settings_of(run) -> dict:
    return json.loads((run / "run.json").read_text())["settings"]


def texts() -> dict:
    rows = [(" ".join(["cat"] * count), "01"[count % 2]) for count in (3, 5, 6, 9, 10, 15, 17, 20) * 4]
    return {"train": rows, "dev": rows[:8]}


@pytest.mark.slow
def test_a_run_keeps_its_lengths(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(Encoder, "open_lengths", False)  # of such an encoder no length costs a graph
    data, how = texts(), {"batch": 4, "length": 24, "quiet": True, "strategy": "cpu"}
    monkeypatch.setattr(finetune, "chosen", functools.partial(chosen, graph=0.0))
    kb.finetune(pretrained, "classification", data, out=tmp_path / "run", epochs=1, **how)
    kept = settings_of(tmp_path / "run")["lengths"]
    assert len(kept) > 2
    assert kept[-1] == 24
    monkeypatch.setattr(finetune, "chosen", functools.partial(chosen, graph=1e20))
    kb.finetune(pretrained, "classification", data, out=tmp_path / "run", epochs=2, **how)
    assert settings_of(tmp_path / "run")["lengths"] == kept
    kb.finetune(pretrained, "classification", data, out=tmp_path / "other", epochs=1, **how)
    assert settings_of(tmp_path / "other")["lengths"] == [24]


def widths(pretrained, data, config) -> set[int]:
    """Of the batches of a run's first two epochs."""
    job = FineTuning(pretrained, "classification", data, config)
    with job.devices.scope():
        program = job.build()
    batches = itertools.islice(job.feed(program, None).arrays(0), 16)
    return {batch["token_ids"].shape[1] for batch in batches}


def test_other_devices_pad_to_multiples_of_16(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "chosen", functools.partial(chosen, graph=0.0))
    data, run = texts(), tmp_path / "run"
    config = FinetuneConfig(out=run, batch=4, length=24, epochs=2, quiet=True, strategy="cpu")
    assert len(widths(pretrained, data, config)) == 4
    monkeypatch.setattr(finetune, "on_one_machine", lambda kind, strategy: "gpu:1")
    monkeypatch.setattr(finetune, "find_strategy", lambda name: kb.training.strategy.strategy("cpu"))
    assert widths(pretrained, data, config) == {16, 24}


@pytest.mark.full
def test_each_of_several_tasks_has_its_own(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "chosen", functools.partial(chosen, graph=0.0))
    data = texts()
    short = {part: [(text[:20], label) for text, label in rows] for part, rows in data.items()}
    how = {"batch": 4, "length": 24, "quiet": True, "strategy": "cpu", "out": tmp_path / "run"}
    kb.finetune_tasks(pretrained, {"classification": data, "glue/sst2": short}, epochs=1, **how)
    kept = {name: told["lengths"] for name, told in settings_of(tmp_path / "run")["tasks"].items()}
    assert len(kept) == 2
    first, second = kept.values()
    assert first[-1] == 24
    assert second[-1] < 16
    monkeypatch.setattr(finetune, "chosen", functools.partial(chosen, graph=1e20))
    kb.finetune_tasks(pretrained, {"classification": data, "glue/sst2": short}, epochs=2, **how)
    assert {name: told["lengths"] for name, told in settings_of(tmp_path / "run")["tasks"].items()} == kept
