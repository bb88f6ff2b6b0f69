"""The worked example of an objective that a third party adds: tests/plugins/left_to_right.py, which touches no file of ours."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.checkpoints import read_tensors
from kerasbert.errors import InputError
from kerasbert.tpu_check.lower import Step
from tests import tiny
from tests.support import ROOT, forgotten, forked

PLUGIN = ROOT / "tests" / "plugins" / "left_to_right.py"
SPEC = tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size}


@pytest.fixture(scope="module")
def objective():
    with forgotten():
        registry.load_plugin(PLUGIN)
        family, spec = registry.find("left-to-right/base")
        encoder = family.encoder(spec.derive(SPEC | {"dropout": 0.0}))
        yield registry.objective(family.objective)(encoder, tiny.tokenizer(), settings={"least": 2})


def features(rows: int = 2, length: int = 6) -> dict:
    ids = np.arange(5, 5 + rows * length, dtype="int32").reshape(rows, length)
    return {"token_ids": ids, "segment_lengths": np.array([[length, 0], [4, 0]], "int32"), "row": np.arange(rows)}


def test_it_is_short():
    assert len(PLUGIN.read_text().splitlines()) <= 80


def test_what_is_predicted_by_hand(objective):
    batch = objective.prepare(features())
    assert np.asarray(batch["labels"])[0, :-1].tolist() == [6, 7, 8, 9, 10]
    assert np.asarray(batch["weights"]).tolist() == [[0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]
    assert float(objective.counts(batch)["next"]) == 6
    logits = np.asarray(objective.model(batch)["next_logits"], "float64")
    nats = (
        np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, np.asarray(batch["labels"])[..., None], -1)[..., 0]
    )
    found = float(objective.losses(batch, training=False)["next"])
    assert found == pytest.approx((nats * np.asarray(batch["weights"])).sum(), rel=1e-5)


def test_nothing_to_the_right_is_seen(objective):
    one, other = features(), features()
    other["token_ids"] = one["token_ids"].copy()
    other["token_ids"][:, 3] = 40
    one, other = (np.asarray(objective.model(objective.prepare(x))["next_logits"]) for x in (one, other))
    assert (one[:, :3] == other[:, :3]).all()
    assert (one[:, 3:4] != other[:, 3:4]).any()


def test_its_settings_are_its_own(objective):
    with pytest.raises(InputError, match="the objective has no setting 'leas'. Nearest: 'least'"):
        objective.settings_for(objective.model.spec, {"leas": 3})
    with pytest.raises(InputError, match="least 0, expected at least 1"):
        objective.settings_for(objective.model.spec, {"least": 0})


def test_its_step_is_safe_on_a_tpu(objective):
    family, spec = registry.find("left-to-right/base")
    lowered = Step(
        family, spec.derive(SPEC | {"blocks.layers": 1}), length=16, replicas=4, objective={"least": 3}
    ).lower(4)
    assert lowered.problems == []
    assert lowered.module


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.records(tmp_path_factory.mktemp("left_to_right"), "stream")


def command(data: Path, out: Path, *more: str) -> list[str]:
    """Pretraining by the command line; all that is the plug-in's comes from its file."""
    line = ["-m", "kerasbert.cli", "pretrain", "left-to-right/base", "--plugin", PLUGIN, "--data", data, "--out", out]
    line += [
        "--batch",
        8,
        "--steps",
        60,
        "--save-every",
        10,
        "--evaluate-every",
        30,
        "--learning-rate",
        1e-3,
        "--quiet",
    ]
    line += [f"--set={path}={value}" for path, value in tiny.SPEC.items()]
    return [*map(str, line), "--set=objective.least=2", *more]


def weights(run: Path) -> dict:
    tensors = read_tensors(run)
    return {name: tensors.read(name) for name in tensors.names()}


@pytest.mark.slow
def test_a_run_logs_its_loss_and_holds_its_settings(data, tmp_path):
    whole = tmp_path / "whole"
    forked(*command(data, whole))
    settings = json.loads((whole / "run.json").read_text())["settings"]
    assert (settings["objective"], settings["objective_settings"]) == ("left_to_right", {"least": 2})
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    losses = [line["next"] for line in lines if "next" in line]
    assert losses[-1] < losses[0]
    held = next(line for line in lines if "held_out/perplexity" in line)
    assert held["held_out/perplexity"] == pytest.approx(np.exp(held["held_out/next"]))
    refused = forked(*command(data, whole, "--set=objective.least=3"), check=False)
    assert refused.returncode == 2
    assert "objective_settings.least is 2 there, 3 asked for" in refused.stderr


@pytest.mark.full  # in CI: kills of BERT's runs (tests/training), replicas of five objectives (tests/models/test_battery.py)
def test_it_goes_on_after_a_kill_and_on_replicas(data, tmp_path):
    whole, killed, two = (tmp_path / name for name in ("whole", "killed", "two"))
    forked(*command(data, whole))
    process = subprocess.Popen([sys.executable, *command(data, killed)], cwd=ROOT)
    end = time.monotonic() + 120
    while process.poll() is None and not list(killed.glob("checkpoints/step_*")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "weights.safetensors").exists()
    forked(*command(data, killed))
    one, again = weights(whole), weights(killed)
    assert one.keys() == again.keys()
    assert all((one[name] == again[name]).all() for name in one)
    forked(*command(data, two, "--strategy", "cpu:2", "--accumulate", "2"))
    other = weights(two)
    assert max(float(np.abs(one[name] - other[name]).max()) for name in one) <= 1e-5
