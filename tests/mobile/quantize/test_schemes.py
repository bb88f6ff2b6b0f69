"""A quantization scheme is one row, and a plug-in's row is a name of `--quantize`."""

import json

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.quantize.schemes import SCHEMES
from kerasbert.mobile.tflite.convert import quantization

PLUGIN = "from kerasbert.mobile.quantize.schemes import SCHEMES, Scheme\n"
PLUGIN += "SCHEMES.add('int8_matrices', Scheme('int8', 'float32', 'dynamic'))\n"


def test_names_and_their_aliases():
    names = {"none": "float32", "float": "float32", "fp32": "float32", "float16": "fp16", "int8": "dynamic_int8"}
    assert {name: quantization(name) for name in names} == names
    assert quantization(None) == "float32"
    with pytest.raises(
        InputError, match="no quantization 'dynamic_int9'. Nearest: 'dynamic_int8'. All: float32, fp16,"
    ):
        quantization("dynamic_int9")


def test_rows_say_what_files_need():
    """ai-edge-litert 2.0.2 to 2.1.2 get int8 activations wrong, by up to .7 of probability."""
    needed = {name: scheme.runtimes["ai-edge-litert"] for name, scheme in SCHEMES.items()}
    assert {name: version for name, version in needed.items() if version} == {
        "static_int8": "2.1.3",
        "full_int8": "2.1.3",
    }
    assert [name for name, scheme in SCHEMES.items() if scheme.calibrated] == ["static_int8", "full_int8"]
    assert [name for name, scheme in SCHEMES.items() if scheme.budget] == [
        "dynamic_int8",
        "int8_embeddings",
        "static_int8",
    ]


@pytest.mark.slow
def test_a_plug_ins_scheme_by_its_name(run, int8_file, tmp_path, monkeypatch, capsys):
    """Its matrices are int8 and its tables float, so that the file lies between int8's and the float model's."""
    from kerasbert.mobile import cli

    monkeypatch.setattr(SCHEMES, "rows", dict(SCHEMES.rows))
    (tmp_path / "mine.py").write_text(PLUGIN)
    out = tmp_path / "mine.tflite"
    line = ["compress", run, "--quantize", "int8_matrices", "--plugin", tmp_path / "mine.py", "--out", out]
    line += ["--lengths", "any", "--length", "24", "--min-agreement", "0.9", "--json"]
    assert cli.main(list(map(str, line))) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["quantize"] == "int8_matrices"
    assert cli.main(["inspect", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quantization"] == "int8_matrices"
    assert out.stat().st_size > int8_file[0].stat().st_size
