"""Lengths of training batches: the cheapest of all choices, kept with the run, and kept as they were by older runs."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.layers.encoder import Encoder
from kerasbert.tasks import length_buckets
from kerasbert.tasks.batches import FIRST
from kerasbert.tasks.length_buckets import GRAPH, STEP, chosen, parted
from kerasbert.testing import battery
from kerasbert.training import finetune, text_feed
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


@pytest.mark.parametrize("graph", [0.0, GRAPH])
def test_first_rows_get_lengths_of_their_own_where_that_is_cheaper(graph):
    draw = np.random.default_rng(0)
    columns = np.stack([draw.integers(6, 20, 40), draw.integers(90, 128, 40), draw.integers(90, 128, 40)], axis=1)

    def parts(columns, rows=1e5):
        return parted(columns, rows=rows, weights=10**7, most=128, graph=graph)

    others, first = parts(columns)
    assert max(first) <= 20
    assert (others, first) == (parts(columns[:, [0, 2, 1]])[0], first)  # the order of the others is none
    longer, shorter = parts(columns[:, ::-1][:, :2])  # first rows that are the longer ones
    assert min(shorter) > 80
    assert max(longer) == max(others)
    assert parts(columns, rows=2.0)[1] == ()  # two readings in a graph take longer to trace than this trains
    alike = columns[:, [1, 1]]
    assert parts(alike) == (chosen(alike[:, 0], rows=2e5, weights=10**7, most=128, graph=graph), ())
    assert parts(columns[:, :1]) == (chosen(columns[:, 0], rows=1e5, weights=10**7, most=128, graph=graph), ())


def test_where_one_graph_takes_all_lengths_they_are_any():
    about = {"weights": 10**7, "most": 512, "graph": 0.0}
    assert chosen([7, 9, 30, 31], rows=32e4, **(about | {"most": 128})) == (7, 9, 30, 31)
    few = chosen([7, 9, 30, 31], rows=8.0, **(about | {"most": 128}))
    assert few == (31,)  # the products of each length are compiled
    assert chosen([7, 9, 301], rows=32e4, **about) == (8, 12, 304)
    assert len(chosen(range(4, 128), rows=1e9, **(about | {"most": 128}))) == length_buckets.MOST_OPEN


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
    monkeypatch.setattr(Encoder, "open_lengths", False)
    data, how = texts(), {"batch": 4, "length": 24, "quiet": True, "strategy": "cpu"}
    monkeypatch.setattr(text_feed, "parted", functools.partial(parted, graph=1.0))
    kb.finetune(pretrained, "classification", data, out=tmp_path / "run", epochs=1, **how)
    kept = settings_of(tmp_path / "run")["lengths"]
    assert len(kept) > 2
    assert kept[-1] == 24
    monkeypatch.setattr(text_feed, "parted", functools.partial(parted, graph=1e20))
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
    monkeypatch.setattr(text_feed, "parted", functools.partial(parted, graph=0.0))
    monkeypatch.setattr(length_buckets, "OPEN", 0.0)
    data, run = texts(), tmp_path / "run"
    config = FinetuneConfig(out=run, batch=4, length=24, epochs=2, quiet=True, strategy="cpu")
    assert len(widths(pretrained, data, config)) == 8
    monkeypatch.setattr(finetune, "on_one_machine", lambda kind, strategy: "gpu:1")
    monkeypatch.setattr(finetune, "find_strategy", lambda name: kb.training.strategy.strategy("cpu"))
    assert widths(pretrained, data, config) == {16, 24}
    rows = [(" ".join(["cat"] * (2 + i % 3)), " ".join(["film"] * (20 + i % 3))) for i in range(8)]
    job = FineTuning(pretrained, "pairs", {"train": rows, "dev": rows}, dataclasses.replace(config, length=32))
    with job.devices.scope():
        program = job.build()
    batch = next(job.feed(program, None).arrays(0))
    assert (batch[f"{FIRST}token_ids"].shape, batch["token_ids"].shape) == ((4, 16), (4, 32))


@pytest.mark.full
def test_each_of_several_tasks_has_its_own(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(text_feed, "parted", functools.partial(parted, graph=0.0))
    monkeypatch.setattr(length_buckets, "OPEN", 0.0)
    data = texts()
    short = {part: [(text[:20], label) for text, label in rows] for part, rows in data.items()}
    how = {"batch": 4, "length": 24, "quiet": True, "strategy": "cpu", "out": tmp_path / "run"}
    kb.finetune_tasks(pretrained, {"classification": data, "glue/sst2": short}, epochs=1, **how)
    kept = {name: told["lengths"] for name, told in settings_of(tmp_path / "run")["tasks"].items()}
    assert len(kept) == 2
    first, second = kept.values()
    assert first[-1] == 22
    assert second[-1] < 16
    monkeypatch.setattr(text_feed, "parted", functools.partial(parted, graph=1e20))
    kb.finetune_tasks(pretrained, {"classification": data, "glue/sst2": short}, epochs=2, **how)
    assert {name: told["lengths"] for name, told in settings_of(tmp_path / "run")["tasks"].items()} == kept


@pytest.mark.slow
def test_questions_are_padded_apart_from_their_paragraphs_and_stay_so(pretrained, tmp_path, monkeypatch):
    rows = [
        (" ".join(["cat"] * (2 + i % 3)), " ".join(["film", "cat"] * (6 + i % 5) + [*"abcd"[: i % 4]]))
        for i in range(16)
    ]
    data, how = {"train": rows, "dev": rows[:8]}, {"batch": 4, "length": 24, "quiet": True, "strategy": "cpu"}

    def cheap_graphs():
        monkeypatch.setattr(Encoder, "open_lengths", False)
        monkeypatch.setattr(text_feed, "parted", functools.partial(parted, graph=1e-9))

    cheap_graphs()
    kb.finetune(pretrained, "pairs", data, out=tmp_path / "run", epochs=1, **how)
    kept = settings_of(tmp_path / "run")
    assert max(kept["first_lengths"]) <= 8
    assert max(kept["lengths"]) > 16
    monkeypatch.undo()
    kb.finetune(pretrained, "pairs", data, out=tmp_path / "run", epochs=2, **how)
    assert settings_of(tmp_path / "run")["first_lengths"] == kept["first_lengths"]
    kb.finetune(pretrained, "pairs", data, out=tmp_path / "other", epochs=1, **how)
    assert "first_lengths" not in settings_of(tmp_path / "other")  # so few updates are not worth it
    cheap_graphs()
    for adversarial, apart in ((None, True), ("vat", False)):  # what perturbs a batch reads all of it at once
        config = FinetuneConfig(out=tmp_path / "new", epochs=2, adversarial=adversarial, **how)
        job = FineTuning(pretrained, "pairs", data, config)
        with job.devices.scope():
            job.load()
            job.config = config.settled(job.encode())
        assert bool(job.lengths[1]) == apart
