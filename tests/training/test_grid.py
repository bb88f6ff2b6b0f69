"""A grid over settings and seeds: what is chosen, resumed and refused."""

import json
import shlex
import statistics

import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.testing.battery import eagerly
from kerasbert.training.grid import summary
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config")


def test_the_best_is_the_best_run_of_the_best_median():
    every = [{"batch": 1}, {"batch": 2}, {"batch": 3}]
    accuracies = {1: [0.9, 0.1, 0.2], 2: [0.5, 0.6, 0.4], 3: [1.0, 1.0, None]}
    runs = [
        {"run": f"{batch}/{seed}", "settings": {"batch": batch}, "seed": seed}
        | ({"error": "inf"} if value is None else {"metrics": {"accuracy": value}})
        for batch, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    found = summary(runs, every, Task("t"))
    first, second, third = found["settings"]
    assert (first["median"], first["least"], first["most"]) == tuple({"accuracy": x} for x in (0.2, 0.1, 0.9))
    assert second["standard_deviation"]["accuracy"] == pytest.approx(statistics.stdev([0.5, 0.6, 0.4]))
    assert second["mean"]["accuracy"] == pytest.approx(0.5)
    assert "median" not in third  # a run of it is not finite
    assert found["best"]["run"] == "2/1"
    with pytest.raises(InputError, match="every combination has a run that is not finite: take smaller learning rates"):
        summary(runs[-3:], every[-1:], Task("t"))


@pytest.mark.slow
def test_a_grid_trains_every_combination_and_seed_once_and_tells_the_best_command(pretrained, tmp_path, capsys):
    path, out = tiny.labelled(tmp_path / "rows.tsv", 12), tmp_path / "grid"
    arguments = ["finetune", pretrained, "--task", "classification", "--data", path, "--batch", "6", "--epochs", "1"]
    arguments += ["--set", "dropout=0", "--freeze", "^embeddings/", "--out", out, "--quiet"]
    search = ["--grid", "learning-rate=1e-2,1e-9", "--seeds", "2"]
    with eagerly():
        assert main(list(map(str, [*arguments, *search]))) == 0
    header, *rows, best, last = capsys.readouterr().out.splitlines()
    wanted = "classification, accuracy median least most mean standard deviation"
    assert " ".join(header.split()) == wanted
    assert [row.split()[0] for row in rows] == ["learning_rate=0.01", "learning_rate=1e-09"]
    assert last == str(out)
    found = json.loads((out / "grid.json").read_text())
    names = [f"learning_rate={rate},seed={seed}" for rate in (0.01, 1e-09) for seed in (0, 1)]
    assert [run["run"] for run in found["runs"]] == names
    assert [float(row.split()[1]) for row in rows] == pytest.approx(
        [row["median"]["accuracy"] for row in found["settings"]], abs=1e-4
    )
    # finished runs are not run again, one that is gone is made again
    before = {name: (out / name / "weights.safetensors").stat().st_mtime_ns for name in names[1:]}
    (out / names[0] / "run.json").unlink()
    for file in sorted((out / names[0]).rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    settings = {"batch": 6, "epochs": 1, "changes": {"dropout": 0}, "freeze": ["^embeddings/"], "quiet": True}
    values = {"learning_rate": [1e-2, 1e-9]}
    with eagerly():
        assert kb.grid(pretrained, "classification", path, grid=values, seeds=2, out=out, **settings) == found
    assert before == {name: (out / name / "weights.safetensors").stat().st_mtime_ns for name in names[1:]}
    # the line that is told makes the best run again, to the bit
    command = shlex.split(best.removeprefix("best: "))
    assert command[:2] == ["kerasbert", "finetune"]
    with eagerly():
        assert main([*command[1:], "--quiet"]) == 0
    one, other = (read_tensors(folder) for folder in (out / "best", out / found["best"]["run"]))
    assert all((one.read(name) == other.read(name)).all() for name in one.names())


def test_what_is_no_grid_is_refused(pretrained, capsys):
    arguments = [
        "finetune",
        str(pretrained),
        "--task",
        "classification",
        "--data",
        "rows.tsv",
        "--batch",
        "6",
        "--out",
        "no",
    ]
    for more, message in (
        (["--grid", "patience=1", "--folds", "2"], "--folds and --grid are both given, expected one of them"),
        (["--seeds", "2"], "--seeds goes with --grid: one run has one --seed"),
        (["--grid", "patience=1", "--seeds", "0"], "seeds must be a whole number of at least 1. Received: 0"),
        (["--grid", "learning_rat=1"], "grid: no option 'learning_rat'. Nearest: 'learning_rate'"),
        (["--grid", "seed=1"], "grid: no option 'seed'. Expected one of: "),
        (["--grid", "patience="], "grid: patience must be a list of values, such as [1, 2]. Received: []"),
        (
            ["--grid", "patience"],
            "--grid 'patience', expected NAME=VALUE,VALUE, each name once: learning_rate=5e-5,3e-5",
        ),
        (["--grid", "patience=1,x"], "grid: patience takes int. Received: 'x'"),
        (["--grid", "patience=1,1"], "grid: patience has a value twice: 1, 1"),
        (["--grid", "batch=4,8"], "batch is given and in the grid too, expected one of them"),
    ):
        assert main([*arguments, *more]) == 2
        assert f"error: {message}" in capsys.readouterr().err
