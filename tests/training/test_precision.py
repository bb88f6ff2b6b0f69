"""What `--precision auto` stands for, and what the first line says."""

import json

import keras
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.training import precision
from kerasbert.training.config import RunConfig
from tests import tiny


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """A function that replaces the processor by one with these flags, or by a system that does not tell."""

    def replace(flags):
        path = tmp_path / "cpuinfo"
        if flags is not None:
            path.write_text(f"model name\t: a processor\nflags\t\t: fpu sse2 {flags}\n")
        monkeypatch.setattr(precision, "PROCESSORS", path)
        precision.fast_bfloat16.cache_clear()

    yield replace
    precision.fast_bfloat16.cache_clear()


@pytest.mark.parametrize(
    ("flags", "strategy", "expected"),
    [
        ("avx512f avx512_bf16", "cpu", "mixed_bfloat16"),
        ("amx_bf16 amx_tile", "cpu:2", "mixed_bfloat16"),
        ("avx512f avx512_vnni avx512_bf16_not", "cpu", "float32"),
        (None, "cpu", "float32"),
        ("avx512_bf16", "gpu", "float32"),
        ("avx2", "tpu:local", "mixed_bfloat16"),
    ],
)
def test_auto_is_bfloat16_where_it_is_fast(processor, tmp_path, flags, strategy, expected):
    processor(flags)
    config = RunConfig(steps=1, batch=1, learning_rate=1e-3, out=tmp_path / "run", precision="auto")
    assert precision.resolved(config, strategy, "bert/tiny").precision == expected
    in_memory = keras.Sequential([])
    assert precision.resolved(config, strategy, in_memory).precision == "float32"


@pytest.mark.parametrize(
    ("flags", "name", "line"),
    [
        ("avx512_bf16", "float32", "in float32; this CPU computes mixed_bfloat16 faster: --precision auto"),
        ("avx2", "float32", "in float32"),
        ("avx512_bf16", "mixed_bfloat16", "in mixed_bfloat16"),
        (
            "avx2",
            "mixed_bfloat16",
            "in mixed_bfloat16; this CPU has no bfloat16: its products come out .2% small, no faster than in float32",
        ),
    ],
)
def test_the_first_line_says_what_is_taken(processor, flags, name, line):
    processor(flags)
    assert precision.told(name, "cpu") == line


@pytest.mark.slow
def test_a_run_keeps_its_precision(pretrained, processor, tmp_path, capsys):
    """Begun with `auto` on one machine it goes on with `auto` on another, and with nothing else."""
    data, settings = tiny.labelled(tmp_path / "train.tsv", 40), {"batch": 8, "learning_rate": 1e-3, "length": 16}
    out = tmp_path / "run"
    processor("avx512_bf16")
    kb.finetune(pretrained, "classification", data, out=out, steps=2, precision="auto", **settings)
    assert " in mixed_bfloat16\n" in capsys.readouterr().err
    assert json.loads((out / "run.json").read_text())["settings"]["precision"] == "mixed_bfloat16"
    processor("avx2")
    kb.finetune(pretrained, "classification", data, out=out, steps=2, precision="auto", **settings)
    assert "is finished" in capsys.readouterr().err
    with pytest.raises(InputError, match="precision"):
        kb.finetune(pretrained, "classification", data, out=out, steps=2, **settings)
