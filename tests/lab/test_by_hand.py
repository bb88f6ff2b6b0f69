"""The lab's figures are what numpy computes of the same files: the test over seeds, and one run of every kind of metric."""

import json

import numpy as np
import pytest
from scipy import stats

from kerasbert.lab import plan, recipes, results, work
from tests.lab import by_hand


@pytest.mark.parametrize("name", recipes.names())
def test_every_comparison_is_numpys(name):
    """Made figures of five seeds through the summary of each recipe; scipy gives the quantile."""
    experiment, rng, seeds = recipes.find(name), np.random.default_rng(0), 5
    lines = [
        {"arm": arm, "seed": seed, "figure": float(rng.uniform(0.2, 0.9)), "parameters": 10**number * 3, "seconds": 1.0}
        for number, arm in enumerate(experiment.arms, 3)
        for seed in range(seeds)
    ]
    found = results.summary(experiment, lines, seeds)
    for arm in found["arms"]:
        expected = by_hand.interval(list(arm["figures"].values()), stats.t.ppf(0.975, seeds - 1))
        assert {key: arm[key] for key in expected} == pytest.approx(expected, rel=1e-9)
    sign, share = (1 if experiment.figure["higher"] else -1), 0.05 / len(experiment.compare)
    for each, row in zip(experiment.compare, found["comparisons"], strict=True):
        values = by_hand.differences(lines, each)
        np.testing.assert_allclose(row["by_seed"], values, rtol=1e-9)
        expected = by_hand.interval(values, stats.t.ppf(1 - share / 2, seeds - 1))
        assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-9)
        p = stats.ttest_1samp(values, 0.0).pvalue
        side = "seen" if sign * values.mean() > 0 else "opposite"
        assert row["verdict"] == (side if p < share else "not seen")
        assert row["agree"] == (sign * values > 0).sum()


RUNS = {  # a recipe and an arm for every kind of figure
    "loss": ("size", "2 x 32"),
    "loss of shared layers": ("sharing", "all"),
    "accuracy": ("masking", "static 80/10/10"),
    "accuracy of a student": ("students", "copied layers, answers to more text"),
    "accuracy in the second language": ("cross-lingual", "another script"),
    "f1": ("units", "spans, SBO"),
    "exact_match": ("transformer", "1 layer"),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", RUNS)
def test_a_run_is_numpys(kind, tmp_path):
    """Really run, with an eighth of the updates: a minute or two each."""
    name, arm = RUNS[kind]
    experiment = recipes.find(name)
    arms = experiment.scaled(0.125)
    (tmp_path / plan.MARKER).write_text(json.dumps({"experiment": name, "arms": arms}))
    work.prepare(tmp_path, {arm: arms[arm]}, None)
    group = next(names[0] for names in plan.alike(experiment) if arm in names)
    own = work.records(tmp_path, {arm: arms[arm]}, arm)
    if own != (place := work.records(tmp_path, arms, arm)):
        own.rename(place)
    line = work.run(tmp_path, arm, arms[arm], 0, {"group": group, "figure": experiment.figure})
    assert by_hand.again(tmp_path, arm, 0) == pytest.approx(line["figure"], abs=1e-5)
