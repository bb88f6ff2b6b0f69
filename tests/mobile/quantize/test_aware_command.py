"""kerasbert-mobile quantize-aware: output for people and machines, errors in one line with status 2."""

import json

import pytest

from kerasbert.mobile.cli import main
from kerasbert.testing.battery import eagerly


def ask(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


@pytest.mark.slow
def test_a_run_says_what_to_do_with_it(finetuned, files, tmp_path, capsys):
    run = finetuned("bert", **{"hidden": 64, "blocks.layers": 1})
    given = ["--data", files["train"].parent, "--steps", 2, "--batch", 10, "--length", 16, "--per", "tensor"]
    with eagerly():
        status, said = ask(capsys, "quantize-aware", run, *given, "--out", tmp_path / "q")
        assert status == 0
        assert f"kerasbert-mobile compress {tmp_path / 'q'} --quantize static_int8 --out FILE" in said.out
        status, said = ask(capsys, "quantize-aware", run, *given, "--out", tmp_path / "q", "--json")
    assert (status, json.loads(said.out)) == (0, {"out": str(tmp_path / "q"), "quantize": "static_int8"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--per", "chanel"], "no kind of quantization 'chanel'. Nearest: 'channel'. All: channel, tensor"),
        (["--loss", "soft=1"], "--loss needs --teacher: without one the labels teach"),
        (["--delay", "9", "--steps", "9"], "delay must be below the number of updates, 9. Received: 9"),
    ],
)
def test_errors_are_one_line(finetuned, files, tmp_path, capsys, arguments, message):
    run = finetuned("bert", **{"hidden": 64, "blocks.layers": 1})
    given = ["--data", files["train"], "--out", tmp_path / "q"]
    status, said = ask(capsys, "quantize-aware", run, *given, *arguments)
    assert status == 2
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.err.count("\n") == 1
