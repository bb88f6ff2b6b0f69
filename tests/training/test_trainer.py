"""The loop around the step core: phases, numbers that explode, what a run tells."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.cli.parser import failure
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError, NonFinite
from kerasbert.objectives.bert import BertPretraining
from kerasbert.storage import folders
from kerasbert.training import feed, held_out
from kerasbert.training.checkpoints import Checkpoints
from kerasbert.training.phases import Phase
from kerasbert.training.replay import lines, replay
from kerasbert.training.runs import Run
from tests import tiny
from tests.support import forked
from tests.training import kills
from tests.training.test_pretrain import ARGUMENTS, same, weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trainer")


@pytest.fixture(scope="module")
def short(folder):
    out = folder / "short"
    write_records([tiny.corpus(folder / "a.txt")], tiny.tokenizer(), out, length=16, shards=3)
    return out


@pytest.fixture(scope="module")
def long(folder):
    out = folder / "long"
    write_records([tiny.corpus(folder / "b.txt", seed=1)], tiny.tokenizer(), out, length=32, shards=2)
    return out


@pytest.fixture(scope="module")
def phases(short, long):
    return [Phase(7, str(short), 8), Phase(None, str(long), 4, 2)]


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def distance(one, other) -> float:
    one, other = weights(one), weights(other)
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


class Killed(BaseException):
    """What no code catches."""


def kill_at(monkeypatch, at: int):
    """The process dies when checkpoint `at` is complete: nothing that happened after it is written."""
    begin = Checkpoints.begin

    def dying(self, step, groups, state):
        begin(self, step, groups, state)
        if step == at:
            self.wait()
            raise Killed

    monkeypatch.setattr(Checkpoints, "begin", dying)


@pytest.mark.slow
def test_phases_have_their_own_records_batch_and_micro_batches(folder, short, long, phases, monkeypatch):
    seen = []
    step = feed.RecordsFeed.batches

    def noting(self, start):
        for batch in step(self, start):
            seen.append((start, *batch["token_ids"].shape))
            yield batch

    monkeypatch.setattr(feed.RecordsFeed, "batches", noting)
    kb.pretrain("bert/tiny", short, out=folder / "phases", phases=phases, save_every=5, **ARGUMENTS)
    assert seen == [(0, 8, 16)] * 7 + [(7, 4, 32)] * 5
    monkeypatch.undo()
    kill_and_go_on(folder, short, phases, monkeypatch, at=5)


def kill_and_go_on(folder, short, phases, monkeypatch, at):
    kill_at(monkeypatch, at)
    out = folder / f"killed-{at}"
    with pytest.raises(Killed):
        kb.pretrain("bert/tiny", short, out=out, phases=phases, save_every=5, **ARGUMENTS)
    monkeypatch.undo()
    # phase, and batch of its records
    assert Checkpoints(out).latest().state["data"] == {5: [0, 5], 10: [1, 3]}[at]
    kb.pretrain("bert/tiny", short, out=out, phases=phases, save_every=5, **ARGUMENTS)
    assert same(folder / "phases", out)


@pytest.mark.full
def test_killed_after_the_change_of_phase(folder, short, phases, monkeypatch):
    kb.pretrain("bert/tiny", short, out=folder / "phases", phases=phases, save_every=5, **ARGUMENTS)
    kill_and_go_on(folder, short, phases, monkeypatch, at=10)


def test_the_masks_of_a_later_phase_follow_the_runs_update(short, long):
    class Program:
        prepare = staticmethod(dict)

    def first(phases, records):
        made = feed.RecordsFeed(phases, records, Program, steps=9, seed=0, devices=feed.tf.distribute.get_strategy())
        return made.batch(7)[0]

    two = first([Phase(7, str(short), 8), Phase(None, str(long), 4)], [Records(short), Records(long)])
    one = next(iter(Records(long).dataset(4, seed=0)))
    assert (two["step"] == 7).all()
    assert (two["example"] == one["example"].numpy()).all()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"phases": [{"steps": 7}, {"steps": 6}]}, "the phases make 13 steps, the run 12"),
        ({"phases": [{"steps": 7, "batch": 9, "accumulate": 2}, {}]}, "batch 9 of a phase is not a multiple"),
        ({"phases": [{"step": 7}]}, "phase 1 has no field 'step'. Nearest: 'steps'"),
        ({"profile": (3, 0)}, "profile must be a first update and a number of updates"),
        ({"skip_bad_steps": -1}, "skip_bad_steps must be a whole number of at least 0. Received: -1"),
        ({"log_every": 0}, "log_every must be a whole number of at least 1. Received: 0"),
    ],
)
def test_bad_settings_leave_nothing(tmp_path, short, changed, text):
    with pytest.raises(InputError, match=text):
        kb.pretrain("bert/tiny", short, out=tmp_path / "run", **ARGUMENTS | changed)
    assert list(tmp_path.iterdir()) == []


def test_phases_of_two_packings_are_refused(folder, short, tmp_path):
    write_records([folder / "a.txt"], tiny.tokenizer(), folder / "full", length=16, packing="full")
    phases = [{"steps": 7}, {"data": str(folder / "full")}]
    with pytest.raises(InputError, match="make all of a run's records with one --packing"):
        kb.pretrain("bert/tiny", short, out=tmp_path / "run", phases=phases, **ARGUMENTS)


def explode_at(monkeypatch, *updates: int) -> None:
    """The batches of these updates, and of no other, are poisoned: a weight of theirs is not finite."""
    prepare = BertPretraining.prepare

    def poisoned(self, features):
        batch = prepare(self, features)
        bad = feed.tf.reduce_any(features["step"][:, None] == [u - 1 for u in updates], axis=1, keepdims=True)
        row = feed.tf.cast((batch["row"] == 2)[:, None] & bad, "float32")
        return batch | {"mlm_weights": batch["mlm_weights"] + feed.tf.math.multiply_no_nan(float("inf"), row)}

    monkeypatch.setattr(BertPretraining, "prepare", poisoned)


@pytest.fixture(scope="module")
def exploded(folder, short):
    """A run that explodes at update 6, saved every 5."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        explode_at(monkeypatch, 6)
        with pytest.raises(NonFinite) as caught:
            kb.pretrain("bert/tiny", short, out=folder / "exploded", save_every=5, **ARGUMENTS)
    return folder / "exploded", str(caught.value)


@pytest.mark.slow
def test_an_explosion_stops_the_run_and_says_where(exploded):
    run, line = exploded
    assert "at update 6 (learning rate 0.00" in line
    assert "batch: shard-0000" in line
    assert "and 7 more of" in line
    assert f"kerasbert replay {run}/dumps/step_6" in line
    assert "\n" not in line
    assert Checkpoints(run).latest().step == 5
    assert all(np.isfinite(value).all() for value in weights(run / "checkpoints" / "step_5").values())
    assert [record["step"] for record in metrics(run)] == []


def test_the_status_of_an_explosion_is_3(exploded):
    assert failure(NonFinite("x")) == ("x", 3)
    assert failure(InputError("x")) == ("x", 2)


@pytest.mark.slow
def test_replay_finds_the_loss_and_the_row(exploded, capsys):
    run, _ = exploded
    found = replay(run / "dumps" / "step_6")
    assert found["step"] == 6
    assert found["weights"] == []
    assert found["outputs"] == []
    assert "mlm" in {bad["name"] for bad in found["losses"]}
    content = json.loads((run / "dumps" / "step_6" / "dump.json").read_text())
    assert content["checkpoint"] == 5
    assert [row["row"] for row in found["rows"]] == [2]
    assert [found["rows"][0]["file"], found["rows"][0]["example"]] == content["rows"][2]
    assert cli.main(["replay", str(run / "dumps" / "step_6")]) == 0
    assert "layers, forward: all finite" in capsys.readouterr().out


def test_replay_names_the_first_layer(exploded, tmp_path):
    import shutil

    from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors

    dump = tmp_path / "dump"
    shutil.copytree(exploded[0] / "dumps" / "step_6", dump)
    old = Safetensors(dump / "weights.safetensors")
    values = {name: old.read(name).copy() for name in old.names()}
    values["block_0/feedforward/inner/kernel"][0, 0] = np.inf
    write_safetensors(dump / "weights.safetensors", {n: v.shape for n, v in values.items()}, values.__getitem__)
    found = replay(dump)
    assert [bad["name"] for bad in found["weights"]] == ["block_0/feedforward/inner/kernel"]
    assert found["outputs"][0]["name"].endswith("block_0/feedforward/inner")
    assert len(found["rows"]) == 8
    assert any("block_0/feedforward/inner" in line for line in lines(found))
    with pytest.raises(InputError, match="no dump in"):
        replay(tmp_path)


@pytest.mark.slow
def test_bad_steps_may_be_left_out_and_then_stop(folder, short, monkeypatch, capsys):
    explode_at(monkeypatch, 3, 6, 9)
    out = folder / "skipped"
    arguments = ARGUMENTS | {"quiet": False, "log_every": 1, "save_every": 4}
    with pytest.raises(NonFinite, match="at update 9"):
        kb.pretrain("bert/tiny", short, out=out, skip_bad_steps=2, **arguments)
    assert "at update 6" in capsys.readouterr().err
    assert sorted(path.name for path in (out / "dumps").iterdir()) == ["step_3", "step_6", "step_9"]
    assert [r["skipped"] for r in metrics(out) if "skipped" in r] == [1, 2]
    state = Checkpoints(out).latest().state
    assert (state["skipped"], state["iterations"]) == (2, 6)
    # the same command may be run again with one more
    kb.pretrain("bert/tiny", short, out=out, skip_bad_steps=3, **arguments)
    assert all(np.isfinite(value).all() for value in weights(out).values())


@pytest.mark.full
def test_updates_in_one_call_are_undone_and_made_one_by_one(folder, short, monkeypatch):
    from kerasbert.training import job, trainer

    class InLoops(trainer.Trainer):
        def __init__(self, *arguments, loop, **named):
            super().__init__(*arguments, loop=4, **named)

    monkeypatch.setattr(job, "Trainer", InLoops)
    kb.pretrain("bert/tiny", short, out=folder / "loops", **ARGUMENTS)
    monkeypatch.undo()
    kb.pretrain("bert/tiny", short, out=folder / "no-loops", **ARGUMENTS)
    assert distance(folder / "loops", folder / "no-loops") < 1e-6
    monkeypatch.setattr(job, "Trainer", InLoops)
    explode_at(monkeypatch, 3)
    kb.pretrain("bert/tiny", short, out=folder / "loops-skipped", skip_bad_steps=1, **ARGUMENTS)
    monkeypatch.undo()
    explode_at(monkeypatch, 3)
    kb.pretrain("bert/tiny", short, out=folder / "no-loops-skipped", skip_bad_steps=1, **ARGUMENTS)
    assert distance(folder / "loops-skipped", folder / "no-loops-skipped") < 1e-6


@pytest.mark.slow
def test_a_float16_overflow_is_no_explosion(folder, short):
    # the first scale, 2^15, may overflow; the run halves it and goes on
    kb.pretrain("bert/tiny", short, out=folder / "half", precision="mixed_float16", **ARGUMENTS)
    assert not (folder / "half" / "dumps").exists()


@pytest.mark.slow
def test_what_a_run_tells(folder, short):
    out = folder / "told"
    kb.pretrain("bert/tiny", short, out=out, evaluate_every=5, log_every=3, profile=(4, 2), peak=1e9, **ARGUMENTS)
    told = metrics(out)
    assert [(r["step"], "held_out/loss" in r) for r in told] == [
        (3, False), (5, True), (6, False), (9, False), (10, True), (12, False), (12, True),
    ]  # fmt: skip
    logs = told[3]
    rates = {"tokens_per_second", "steps_per_second", "flops_per_second", "utilisation"}
    assert (
        rates | {"loss", "mlm", "mlm/accuracy", "nsp", "nsp/accuracy", "gradient_norm", "learning_rate"} <= logs.keys()
    )
    np.testing.assert_allclose(logs["utilisation"], logs["flops_per_second"] / 1e9)
    # useful tokens: the mean of the shards that are trained on, without their padding
    kept, _ = held_out.hold_out(Records(short))
    np.testing.assert_allclose(logs["tokens_per_second"] / logs["steps_per_second"], 8 * kept.tokens / kept.examples)
    assert kept.tokens < 16 * kept.examples
    evaluated = told[-1]
    np.testing.assert_allclose(evaluated["held_out/perplexity"], np.exp(evaluated["held_out/mlm"]))
    np.testing.assert_allclose(evaluated["held_out/loss"], evaluated["held_out/mlm"] + evaluated["held_out/nsp"])
    assert list(out.rglob("*.xplane.pb"))
    assert Checkpoints(out).latest().state["evaluation"] == {k: v for k, v in evaluated.items() if k != "step"}


@pytest.mark.full
def test_a_run_at_an_address(folder, short):
    """The whole run in TensorFlow's file system in memory, which stands in for gs://."""
    out = "ram://bucket/run"
    kb.pretrain("bert/tiny", short, out=out, save_every=5, **ARGUMENTS)
    kb.pretrain("bert/tiny", short, out=folder / "here", **ARGUMENTS)

    with Run(out, {}, True).local() as copy:
        assert same(copy, folder / "here")
    assert [record["step"] for record in Run(out, {}, True).records()] == [10, 12]
    assert not [name for name in folders.names(out) if name.endswith(".part")]
    found = kb.pretrain("bert/tiny", short, out=out, save_every=5, **ARGUMENTS)  # finished: left alone
    assert found.spec.hidden == 16
    with pytest.raises(InputError, match="holds another run: seed is 0 there, 1 asked for"):
        kb.pretrain("bert/tiny", short, out=out, **ARGUMENTS | {"seed": 1})
    kb.pretrain("bert/tiny", short, out=out, overwrite=True, **ARGUMENTS | {"seed": 1, "steps": 1})
    assert Checkpoints(out).latest().step == 1


PHASED_RUN = """
import sys
import kerasbert as kb
from tests import tiny
out, short, long, strategy, accumulate = sys.argv[1:]
phases = [{"steps": 12, "data": short, "batch": 8}, {"data": long, "batch": 4}]
kb.pretrain(
    "bert/tiny", short, out=out, phases=[phase | {"accumulate": int(accumulate)} for phase in phases], steps=20,
    learning_rate=1e-3, clip=0.5, strategy=strategy, changes=tiny.SPEC | {"dropout": 0.1}, evaluate_every=10, quiet=True,
)
"""


@pytest.mark.full  # test_step.py splits a batch in every way
def test_two_devices_with_accumulation_give_the_weights_of_one_after_20_updates(folder, short, long):
    for name, strategy, accumulate in (("one", "cpu", 1), ("two", "cpu:2", 2)):
        forked("-c", PHASED_RUN, folder / name, short, long, strategy, accumulate)
    assert distance(folder / "one", folder / "two") <= 1e-6
    one, two = ([r for r in metrics(folder / name) if "held_out/loss" in r] for name in ("one", "two"))
    assert [r["step"] for r in one] == [r["step"] for r in two] == [10, 20]
    for a, b in zip(one, two):
        assert abs(a["held_out/loss"] - b["held_out/loss"]) < 1e-6


@pytest.mark.slow
def test_killed_three_times_it_ends_with_the_same_weights(tmp_path):
    """The 50 kills of the benchmark are `python -m tests.training.kills --kills 50`."""
    seen = kills.run(tmp_path, 3)
    assert (seen["kills"], seen["difference"]) == (3, 0.0)


@pytest.mark.full
@pytest.mark.parametrize("family", ["gpt2", "t5", "bart", "mass"])
def test_so_do_models_that_write(family, tmp_path):
    seen = kills.run(tmp_path, 3, family=family)
    assert (seen["kills"], seen["difference"]) == (3, 0.0)
