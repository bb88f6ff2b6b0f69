"""Every objective learns: within 160 to 400 updates its losses are below the entropy of its targets, on one replica and on two.

A tiny model (one layer of 64), rows of 64 tokens of the quickstart's books, batches of 32; the mean of the last 60 or 100.
A new objective joins by being registered; a family whose layers make draws of their own (Reformer) is trained too. CI trains
one of each kind, on one replica; `-m full` all of them, on two as well: that every objective's losses fall and that two replicas
make the updates of one is in the battery (tests/models/test_battery.py).
"""

import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest

from kerasbert import registry
from tests.benchmarks import bench_learning
from tests.objectives import books, learn
from tests.support import forked

OBJECTIVES = [*registry.objectives()]
KINDS = ("causal_lm", "span_corruption")  # left to right, two stacks; two networks: tests/models/test_electra.py
CASES = [
    *(pytest.param("cpu", name, marks=pytest.mark.slow if name in KINDS else pytest.mark.full) for name in OBJECTIVES),
    *(pytest.param("cpu:2", name, marks=pytest.mark.full) for name in OBJECTIVES),
    *(pytest.param(strategy, name, marks=pytest.mark.full) for strategy in ("cpu", "cpu:2") for name in learn.OWN),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Strategy -> the folder of its runs; objectives that pack alike share records."""
    return {name: tmp_path_factory.mktemp("learning") for name in ("cpu", "cpu:2")}


@pytest.mark.parametrize(("strategy", "objective"), CASES)
def test_losses_go_below_the_entropy_of_their_targets(strategy, objective, folders):
    done = forked("-m", "tests.objectives.learn", strategy, folders[strategy], objective, timeout=3000)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{objective} on {strategy}: unigram entropy {found['entropy']:.3f}, losses {found['losses']}")
    assert found["losses"]
    for name, loss in found["losses"].items():
        assert loss < found["entropy"], name


def test_kept_rows_are_of_lines_of_the_benchmark():
    file = Path(bench_learning.__file__).with_name("measured") / "learning.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    arms = bench_learning.arms(bench_learning.trained())
    found = [{name: row[name] for name in ("family", "settings", "seed")} for row in rows]
    assert all(arm in arms for arm in found)
    assert all(found.count(arm) == 1 for arm in found)


@pytest.mark.parametrize("family", [*bench_learning.OTHERWISE])
def test_what_a_family_is_trained_with_reaches_both_trainings(monkeypatch, tmp_path, family):
    settings, pretraining, tuning = bench_learning.OTHERWISE[family][0], {}, {}
    common = {*inspect.signature(learn.run).parameters} & {*settings}
    monkeypatch.setattr(learn, "run", lambda *_, **given: pretraining.update(given) or {})
    monkeypatch.setattr(bench_learning.kb, "finetune", lambda *_, **given: tuning.update(given))
    monkeypatch.setattr(bench_learning.kb, "evaluate", lambda *_: {"metrics": {"accuracy": 1.0}})
    bench_learning.measure(tmp_path, family=family, settings=settings, seed=1)
    assert pretraining == {name: settings[name] for name in common} | {"seed": 1}
    assert tuning["learning_rate"] == settings.get("finetuning_rate", 1e-3)
    assert tuning.get("optimizer") == settings.get("optimizer")
    assert tuning["epochs"] == settings.get("epochs", 3)
    assert {*settings} <= common | {"finetuning_rate", "epochs"}


def test_replaced_tokens_are_told_beside_the_entropy_of_their_share():
    found = learn.replaced([{"rtd": 0.5, "rtd/replaced": 0.4}, {"rtd": 0.7, "rtd/replaced": 0.6}])
    assert found == pytest.approx({"loss": 0.6, "entropy": math.log(2)})


def test_entropy_of_a_writer_counts_unknown_words(tmp_path):
    kind, family = registry.objective("bilm"), registry.family("elmo")
    records = books.records(tmp_path, kind.packing, 64, chapters=1, known=books.words(), **kind.records)
    counts = np.bincount(np.concatenate([records.rows(shard)[:, :64].ravel() for shard in records.shards]))
    counts[0] = 0  # padding
    share = counts[counts > 0] / counts.sum()
    assert learn.entropy(kind, family, records, {}) == pytest.approx(-(share * np.log(share)).sum(), abs=1e-6)
    assert learn.entropy(kind, family, records, {}) < records.manifest["unigram"]["entropy"]


def test_a_family_that_only_writes_has_no_accuracy():
    assert [name for name in bench_learning.trained() if not bench_learning.reads_texts(name)] == ["mass", "pegasus"]
