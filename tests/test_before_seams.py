"""Files and runs of the version before the seams (tests/golden/before_seams) load, go on and answer as they did."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import read_model_json
from kerasbert.data import Records
from kerasbert.export import bundle
from kerasbert.mobile.pipeline import ledger
from kerasbert.mobile.runtime import load as load_file
from kerasbert.storage import files
from kerasbert.testing.battery import eagerly
from kerasbert.training import runs
from tests import tiny
from tests.golden.before_seams import make
from tests.golden.before_seams.cases import FILES, MODELS, PLAN, RECORDS, RUNS, TEXTS
from tests.support import forgotten

# a tiny model's step takes less than its tracing; what tf.data does is still a graph
pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config")
EXPECTED = json.loads((make.FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A copy of the folder; run.json says that this machine began the runs."""
    folder = tmp_path_factory.mktemp("before") / "seams"
    shutil.copytree(make.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.glob("runs/*/run.json"):
        files.write_json(path, json.loads(path.read_text()) | {"environment": runs.environment()})
    return folder


@pytest.fixture(autouse=True)
def there(old, monkeypatch):
    """Commands name files from the folder."""
    monkeypatch.chdir(old)


def close(received, expected, tolerance: float = 1e-5):
    """Nested lists and dicts of numbers are equal."""
    if isinstance(expected, dict):
        assert received.keys() == expected.keys()
        for name in expected:
            close(received[name], expected[name], tolerance)
    elif isinstance(expected, list) and isinstance(expected[0], dict):
        for mine, theirs in zip(received, expected, strict=True):
            close(mine, theirs, tolerance)
    else:
        np.testing.assert_allclose(received, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_directory_answers_as_before(name):
    expected = dict(EXPECTED["models"][name])
    language = expected.pop("language 1", None)
    close(make.answers(name), expected)
    if language:
        numbers = np.ones((len(TEXTS), 12), "int32")
        received = kb.load(name)(tiny.tokenizer()(TEXTS, length=12) | {"language_ids": numbers})["sequence"]
        close(np.asarray(received)[:, 0], language)


def test_records_are_read_as_before():
    for name in RECORDS:
        assert make.examples(Records(f"records/{name}")) == EXPECTED["records"][name]


@pytest.mark.slow
def test_records_are_made_to_the_same_bytes_by_the_old_names_of_packings(tmp_path):
    from kerasbert.data import write_records

    for name, (length, packing) in RECORDS.items():
        if name == "languages":
            continue
        write_records(["records/corpus.txt"], tiny.tokenizer(), tmp_path / name, length=length, packing=packing)
        (shard,) = (tmp_path / name).glob("*.bin")
        assert shard.read_bytes() == Path("records", name, shard.name).read_bytes()


@pytest.mark.parametrize(("name", "number"), [*zip(FILES, (1, 2, 3, 1), strict=True)])
def test_a_tflite_answers_as_before(name, number):
    assert json.loads(zipfile.ZipFile(f"files/{name}").read(bundle.SETTINGS))["format"] == number
    model = load_file(f"files/{name}", cache=False)
    close(model.outputs(TEXTS), EXPECTED["files"][name], 1e-3 if "int8" in model.bundle.quantization else 1e-5)


def go_on(name: str, capsys) -> None:
    """Run a run's command again and compare all its numbers with those of a run that was never killed."""
    argv, updates = RUNS[name]
    assert json.loads(Path("runs", name, "checkpoints", f"step_{updates}", "manifest.json").read_text())
    with eagerly():
        make.command([*argv, "--out", f"runs/{name}"])
    capsys.readouterr()
    close(make.weights(f"runs/{name}"), EXPECTED["runs"][name]["weights"], 1e-4)
    close(make.history(f"runs/{name}"), EXPECTED["runs"][name]["history"], 1e-4)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "rezero"])
def test_a_run_in_mid_training_goes_on_to_the_same_weights(name, capsys):
    go_on(name, capsys)


def test_a_plug_in_of_the_old_api_works_or_is_refused_in_one_line(capsys):
    with forgotten():
        try:
            go_on("rezero", capsys)
            model = kb.load("runs/rezero")
        except AssertionError as refused:
            if "ended with 2" not in str(refused):
                raise
            (line,) = capsys.readouterr().err.strip().splitlines()
            assert re.search(r"old_plugin\.py.*(Block\.call|MaskedLMPretraining|masking_defaults)", line), line
            return
        assert model.spec.rezero.start == 0.5
        assert read_model_json("runs/rezero").plugin["file"] == "old_plugin.py"
        assert "rezero/small" in registry.list_models()


@pytest.mark.slow
def test_a_plan_goes_on_after_its_first_stage(monkeypatch, capsys):
    times = {"p50_ms": 1.0, "p90_ms": 2.0, "peak_memory_mb": 3.0}
    monkeypatch.setattr(ledger, "_times", lambda path, texts: times)
    before = Path("plan.tflite.plan/1-trim/model.json").stat().st_mtime_ns
    make.command(["kerasbert-mobile", *PLAN])
    assert "stage 1 of 3" not in capsys.readouterr().err
    assert Path("plan.tflite.plan/1-trim/model.json").stat().st_mtime_ns == before
    close(load_file("plan.tflite", cache=False).outputs(TEXTS), EXPECTED["plan"])
