"""kerasbert-mobile prune and trim: output for people and machines, errors in one line with status 2."""

import json

import pytest

import kerasbert as kb
from kerasbert.mobile.cli import main
from kerasbert.testing.battery import eagerly


@pytest.fixture
def data(files):
    return files["train"].parent


def ask(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


@pytest.mark.slow
def test_zeros_and_fewer_heads(finetuned, data, tmp_path, capsys):
    settings = ["--steps", 2, "--batch", 10, "--length", 16, "--pattern", "outer/kernel$"]
    with eagerly():
        status, said = ask(
            capsys, "prune", finetuned("bert"), "--sparsity", 0.5, "--data", data, "--out", tmp_path / "p", *settings
        )
    assert status == 0
    assert "50.0% of 2 kernels is zero" in said.out
    assert "parameters are not zero" in said.out
    status, said = ask(
        capsys, "prune", finetuned("bert"), "--heads", 0.5, "--rows", 2, "--data", data, "--out", tmp_path / "h"
    )
    assert status == 0
    assert "heads [1, 1], feed-forward [24, 24]" in said.out


def test_a_teacher_in_the_place_of_the_labels(finetuned, data, tmp_path, capsys):
    """What is pruned imitates what it was, on unlabelled text too."""
    run, more, out = finetuned("bert"), tmp_path / "more.txt", tmp_path / "p"
    more.write_text("a zebra and a cat\n" * 10)
    told = ["--teacher", run, "--unlabelled", more, "--loss", "soft=2", "--loss", "hidden=1", "--learning-rate", "1e-2"]
    settings = ["--steps", 3, "--batch", 10, "--length", 16, "--seed", 3]
    with eagerly():
        status, said = ask(capsys, "prune", run, "--sparsity", 0.5, "--data", data, "--out", out, *settings, *told)
    assert status == 0, said.err
    assert "50.0% of 12 kernels is zero" in said.out
    held = json.loads((out / "run.json").read_text())["settings"]
    assert held["recipe"]["losses"] == {"soft": 2.0, "hidden": 1.0}
    assert held["constraint"]["sparsity"] == 0.5
    assert len(held["unlabelled"]) == 1
    assert held["teacher"] == held["init"]


def test_layers(finetuned, tmp_path, capsys):
    run = finetuned("bert")
    status, said = ask(capsys, "prune", run, "--layers", "1", "--out", tmp_path / "l", "--json")
    assert status == 0
    assert json.loads(said.out)["kept"] == [1]
    assert kb.load(tmp_path / "l").spec.blocks.layers == 1


def test_trim(finetuned, data, tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat\n\nzebra\n")
    status, said = ask(capsys, "trim", finetuned("bert"), "--texts", corpus, "--out", tmp_path / "t")
    assert status == 0
    assert "2 texts, 3 words" in said.out
    lines = [line.split() for line in said.out.splitlines()]
    assert ["split", "words", "33.33%", "->", "33.33%"] in lines
    assert ["unknown", "words", "0.00%", "->", "0.00%"] in lines
    status, said = ask(capsys, "trim", finetuned("bert"), "--data", data, "--out", tmp_path / "d", "--json")
    assert json.loads(said.out)["texts"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "0 of --sparsity (or --structure 2:4), --heads, --width, --layers given, expected one"),
        (["--sparsity", "0.5", "--heads", "0.3"], "2 of --sparsity"),
        (["--heads", "0.3", "--steps", "5"], "--steps does not go with --heads: leave it out"),
        (["--heads", "0.3"], "--heads needs --data: labelled rows of the task"),
        (["--heads", "0.3", "--data", "x", "--teacher", "x"], "--teacher does not go with --heads: leave it out"),
        (["--sparsity", "0.5", "--data", "x", "--unlabelled", "x"], "--unlabelled needs --teacher"),
        (
            ["--sparsity", "0.5", "--data", "x", "--teacher", "no"],
            "no model directory no",
        ),
        (
            ["--sparsity", "1.5", "--data", "x"],
            "sparsity must be in [0, 1), such as 0.5. Received: 1.5",
        ),
        (["--layers", "0,9"], "no layer has number 9, expected 0 to 1"),
    ],
)
def test_errors_are_one_line(finetuned, tmp_path, capsys, arguments, message):
    status, said = ask(capsys, "prune", finetuned("bert"), "--out", tmp_path / "p", *arguments)
    assert status == 2
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.err.count("\n") == 1
