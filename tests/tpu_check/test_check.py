"""The command: what it prints, the search for a batch, mistakes in one line."""

import builtins
import dataclasses
import json
import types

import pytest

from kerasbert import cli
from kerasbert.errors import InputError
from kerasbert.tpu_check import check, compiler
from kerasbert.training.chips import GB
from tests import tiny

SETTINGS = [f"--set={path}={value}" for path, value in (tiny.SPEC | {"blocks.layers": 1}).items()]


def run(capsys, *arguments) -> tuple[int, str, str]:
    try:
        status = cli.main(["check-tpu", *map(str, arguments)])
    except SystemExit as leave:
        status = leave.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["bert/bse"], "no model 'bert/bse'. Nearest: 'bert/base'"),
        (["bert/base", "--topology", "v5e"], "no topology 'v5e', expected CHIP:AxB"),
        (["bert/base", "--topology", "v5f:2x2"], "no TPU chip 'v5f'. Nearest: 'v5"),
        (["bert/base", "--batch", "0"], "batch must be a whole number of at least 1. Received: 0"),
        (["bert/tiny", "--length", "1024", "--lower-only"], "length 1024, expected at most 512"),
        (
            ["bert/tiny", "--precision", "mixed_float16", "--lower-only"],
            "precision 'mixed_float16', expected one that a TPU has: float32, mixed_bfloat16",
        ),
        (["bert/tiny", "--precision", "bf16", "--lower-only"], "no precision 'bf16'. Nearest: 'mixed_bfloat16'"),
        (["bert/base", "--set", "hiden=3", "--lower-only"], "no spec field 'hiden'. Nearest: 'hidden'"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, arguments, text):
    monkeypatch.setattr(compiler, "require", lambda: None)
    status, out, err = run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ")
    assert text in err


def test_without_the_extra_its_name_is_told(capsys, monkeypatch):
    def missing(name, *rest, **kwargs):
        if name.partition(".")[0] in ("jax", "libtpu"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **kwargs)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)
    status, _, err = run(capsys, "bert/base")
    assert (status, err.count("\n")) == (2, 1)
    assert "needs jax, which is not installed. Do, in a checkout of kerasbert: pip install '.[tpu-check]'" in err


@pytest.mark.slow
def test_lower_only_needs_no_compiler_and_counts_the_slice(capsys):
    status, out, _ = run(
        capsys, "bert/tiny", *SETTINGS, "--topology=v5e:4x4", "--batch=8", "--length=24", "--lower-only"
    )
    assert status == 0
    assert "16 chips, 16 replicas" in out
    assert "8 x 24 per replica, 128 x 24 in all" in out
    assert "not compiled" in out


COMPILED = compiler.Compiled(2 * GB, 3 * GB, GB // 4, flops=2e12, hbm=50 * 10**9, accessed=99e9, cycles=7)


def stub(monkeypatch, compile_for):
    """The command without TensorFlow's and libtpu's part."""
    lowered = types.SimpleNamespace(module=b"", state=2 * GB, reduced=int(1e9), problems=[], repeated=0.0)
    step = types.SimpleNamespace(
        lower=lambda rows: types.SimpleNamespace(**(vars(lowered) | {"module": rows})),
        estimate=lambda rows: (2 + 0.04 * rows) * GB,
    )
    monkeypatch.setattr(compiler, "require", lambda: None)
    monkeypatch.setattr(check, "Step", lambda *args, **kwargs: step)
    monkeypatch.setattr(compiler, "compile_for", compile_for)


def test_the_report_in_json_and_in_words(capsys, monkeypatch):
    stub(monkeypatch, lambda where, module: COMPILED)
    status, out, _ = run(capsys, "bert/base", "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["batch"], found["global_batch"], found["replicas"]) == (32, 128, 4)
    assert found["hbm"]["used"] == COMPILED.used
    assert found["seconds"]["memory"] == found["seconds"]["bound"] == pytest.approx(50e9 / 819e9)
    assert found["utilisation"] == pytest.approx((2e12 / 197e12) / (50e9 / 819e9))
    words = run(capsys, "bert/base")[1]
    assert "state and batch 2.00 + temporaries 3.00 + code 0.25 = 5.25 of 15.75 GB" in words
    assert "at most 17%, limited by memory" in words


def test_a_module_that_jaxlib_does_not_read_leaves_memory_and_flops(capsys, monkeypatch):
    """Of bert/base on v5p and v6e: it ended with status 2 after it had compiled."""
    unread = dataclasses.replace(COMPILED, hbm=None, cycles=None, unread="INTERNAL: RET_CHECK failure")
    stub(monkeypatch, lambda where, module: unread)
    status, out, _ = run(capsys, "bert/base", "--json")
    found = json.loads(out)
    assert (status, found["bytes_hbm"], found["estimated_cycles"]) == (0, None, None)
    assert found["seconds"]["memory"] == pytest.approx(2 * GB / 819e9)
    words = run(capsys, "bert/base")[1]
    assert "2.00 TFLOP, bytes from and to HBM unknown, 1.00 GB summed" in words
    assert "not read      the compiled module, of which memory is the state read once: INTERNAL: RET_CHECK" in words


def line(where, rows):
    """2 GB of state, 1 GB for the first row and 0.05 GB a row: 255 rows fit into 15.75 GB."""
    used = (3 + 0.05 * rows) * GB
    if used > 15.75 * GB:
        raise compiler.TooLarge(used, 15.75 * GB)
    return compiler.Compiled(2 * GB, int(used) - 2 * GB, 0, 1.0, 1, 1.0, 1)


@pytest.mark.parametrize("batch", [264, 300, 1024, 3000])
def test_too_large_says_by_how_much_and_what_fits(capsys, monkeypatch, batch):
    stub(monkeypatch, line)
    status, out, err = run(capsys, "bert/base", "--batch", batch, "--json")
    assert (status, out, err.count("\n")) == (2, "", 1)
    used = 3 + 0.05 * batch
    assert f"needs {used:.2f} GB of HBM, v5e has 15.75 GB, {used - 15.75:.2f} GB too much" in err
    assert "the largest batch found to fit is 248 " in err


def test_an_absurd_batch_is_not_compiled(capsys, monkeypatch):
    compiled = []

    def compile_for(where, rows):
        compiled.append(rows)
        return line(where, rows)

    stub(monkeypatch, compile_for)
    status, _, err = run(capsys, "bert/base", "--batch", 100_000, "--json")
    assert status == 2
    assert "needs about 4002.00 GB of HBM, v5e has 15.75 GB" in err  # the estimate's
    assert "the largest batch found to fit is 248 " in err
    assert max(compiled) < 400


def test_the_search_compiles_little_and_gives_up():
    calls = []

    def used(rows):
        calls.append(rows)
        return line(None, rows).used

    error = compiler.TooLarge((3 + 0.05 * 100_000) * GB, 15.75 * GB)
    assert check.largest(used, 100_000, error, state=2 * GB) == 248
    assert len(calls) <= check.COMPILES
    # nothing fits beside the state
    assert check.largest(used, 64, compiler.TooLarge(20 * GB, 15.75 * GB), state=16 * GB) == 0


def test_small_batches_are_not_rounded_to_tiles():
    def used(rows):
        if rows > 5:
            raise compiler.TooLarge(rows * 3 * GB, 15.75 * GB)
        return rows * 3 * GB

    assert check.largest(used, 64, compiler.TooLarge(64 * 3 * GB, 15.75 * GB), state=0) == 5
    assert check.largest(used, 64, compiler.TooLarge(64 * 3 * GB, 15.75 * GB), state=0, multiple=2) == 4


def test_unsafe_models_are_refused_with_the_layer(monkeypatch):
    from kerasbert.tpu_check.hlo import Problem

    many = [Problem("float64", f"encoder/block_{i}", "convert gives f64[4]") for i in range(5)]
    step = types.SimpleNamespace(lower=lambda rows: types.SimpleNamespace(problems=many))
    monkeypatch.setattr(check, "Step", lambda *args, **kwargs: step)
    with pytest.raises(InputError, match=r"bert/base cannot run on a TPU: encoder/block_0: float64: .* \(and 2 more\)"):
        check.check_tpu("bert/base", lower_only=True)


@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries "
        "(181.25G) exceeds available HBM (15.75G). HLO module: a.6556.",
        "RESOURCE_EXHAUSTED: ... Used 181.25G of 15.75G hbm. Exceeded hbm capacity by 165.50G.",
    ],
)
def test_the_compilers_words_are_read(message):
    found = compiler._too_large(message)
    assert (found.used, found.capacity) == (181.25 * GB, 15.75 * GB)


def test_another_failure_of_the_compiler_is_not_called_too_large():
    assert compiler._too_large("INTERNAL: something else") is None
