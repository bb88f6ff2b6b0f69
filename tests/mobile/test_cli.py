"""kerasbert-mobile: output for people and machines, errors in one line with status 2."""

import io
import json
import sys

import pytest

from kerasbert.mobile.cli import main
from tests.support import python


def test_run_prints_one_object_per_text(float_file, capsys):
    assert main(["run", str(float_file[0]), "a good film", "very bad", "--json", "--no-cache"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert sum(lines[0]["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert lines[0]["score"] == max(lines[0]["scores"].values())


def test_run_reads_lines(float_file, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a good film\n\nbad \xff\n")))
    assert main(["run", str(float_file[0]), "--no-cache"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows] == ["a good film", "bad \ufffd"]
    assert {row[0] for row in rows} <= {"negative", "neutral", "positive"}


def test_inspect_says_what_a_file_is(float_file, any_file, mediapipe_file, capsys):
    assert main(["inspect", str(float_file[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lengths"] == [8, 12, 24]
    assert found["any_length"] is False
    assert found["target"] == "kerasbert"
    assert found["quantization"] == "float32"
    assert found["operators"]["FULLY_CONNECTED"] > 0
    assert not [name for name in found["operators"] if name.startswith("Flex")]
    assert main(["inspect", str(any_file[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["lengths"], found["any_length"]) == ([24], True)
    assert found["signatures"] == ["any_length"]
    assert main(["inspect", str(mediapipe_file[0])]) == 0
    assert "mediapipe" in capsys.readouterr().out


def test_benchmark_measures(float_file, capsys):
    assert main(["benchmark", str(float_file[0]), "--json", "--no-cache", "--rounds", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["p50_ms"] <= found["p90_ms"]
    assert found["bytes"] == float_file[0].stat().st_size
    assert found["texts"] == 200


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "absent.tflite", "x"], "no file absent.tflite"),
        (["inspect", __file__], "carries no readable bundle"),
        (["benchmark", "absent.tflite"], "no file absent.tflite"),
        (["compress", "absent", "--out", "x.tflite"], "absent"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert text in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback(capsys):
    assert main(["inspect", "absent.tflite", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_missing_package_says_which_extra(float_file, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module', name='numpy')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kerasbert.mobile.cli import main; "
    done = python("-c", code + f"sys.exit(main(['run', {str(float_file[0])!r}, 'x']))", check=False)
    assert done.returncode == 2
    assert done.stderr == "error: the package numpy is not installed. Do: pip install 'kerasbert[device]'\n"


def test_the_command_line_imports_nothing_heavy():
    code = (
        "import sys, kerasbert.mobile.cli; assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules), sys.modules"
    )
    python("-c", code)


def test_compress_by_command(run, tmp_path, capsys):
    pytest.importorskip("tensorflow")
    out = tmp_path / "x.tflite"
    assert main(["compress", str(run), "--out", str(out), "--quantize", "fp16", "--lengths", "16"]) == 0
    printed = capsys.readouterr().out
    assert "agreement 1.0000" in printed
    assert "lengths 16\n" in printed
    assert out.exists()
