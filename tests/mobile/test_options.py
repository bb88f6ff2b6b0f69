"""The options of `compress`: one list, of which the function, a plan's last stage and the command line take theirs."""

import dataclasses
import inspect

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile import cli
from kerasbert.mobile.options import CompressConfig

NAMES = [field.name for field in dataclasses.fields(CompressConfig)]
PLANNED = "target length lengths min_agreement calibration calibration_size embedding_codes max_drop".split()


def test_the_function_takes_and_documents_each():
    pytest.importorskip("tensorflow")
    from kerasbert.mobile import compress

    parameters = inspect.signature(compress).parameters
    assert list(parameters) == ["run", "quantize", "out", *NAMES]
    assert {name: parameters[name].default for name in NAMES} == dict.fromkeys(NAMES) | {"overwrite": False}
    said = inspect.getdoc(compress) or ""
    assert [name for name in NAMES if f"\n    {name}: " not in said] == []
    assert "{options}" not in said


def test_a_name_that_is_none_is_told_with_the_nearest(tmp_path):
    """It was a TypeError."""
    pytest.importorskip("tensorflow")
    from kerasbert.mobile import compress

    with pytest.raises(InputError, match="compress has no option 'min_agrement'. Nearest: 'min_agreement'"):
        compress(tmp_path, out=tmp_path / "x.tflite", min_agrement=0)


def test_a_plan_takes_those_that_are_not_of_one_file_alone():
    pytest.importorskip("tensorflow")
    from kerasbert.mobile.pipeline.plan import stages

    assert list(stages()["quantize"]) == ["quantize", "options", *PLANNED, "golden"]


def test_the_command_takes_those_that_fit_on_a_line():
    line = (
        "compress RUN --out x --lengths 8,16 --texts a.txt --calibration b.tsv --max-drop 1.5 --min-agreement 0".split()
    )
    found = vars(cli.parser().parse_args(line))
    given = {name: found[name] for name in NAMES if name in found}
    assert given == {
        "lengths": [8, 16],
        "texts": "a.txt",
        "calibration": "b.tsv",
        "max_drop": 1.5,
        "min_agreement": 0.0,
        "golden": None,
    }
    assert vars(cli.parser().parse_args("compress RUN --out x --lengths any".split()))["lengths"] == "any"
