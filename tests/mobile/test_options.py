"""The options of `compress`: one list, of which the function, a plan's last stage and the command line take theirs."""

import dataclasses
import inspect
from pathlib import Path

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile import cli
from kerasbert.mobile.options import CompressConfig
from kerasbert.tasks.tables import Memory
from kerasbert.value_types import check_type, fits

TYPES = {field.name: field.type for field in dataclasses.fields(CompressConfig)}
NAMES = [*TYPES]
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", Memory((("a film", "1"),), "the rows held out", read=True)),  # what a plan gives
        ("data", {"text": ["a film"], "label": [1]}),
        ("data", [("a film", 1)]),
        ("data", ("train.tsv", "dev.tsv")),
        ("texts", ["a film"]),
        ("texts", [("a film", "good")]),
        ("texts", [(("a", "film"),), (("good",),)]),  # words that are tagged
        ("texts", [("where", ("here", "there"))]),  # choices
        ("texts", (text for text in ("a", "b"))),
        ("texts", Path("a.txt")),
        ("calibration", [(("a", "film"),)]),
        ("calibration", "a.tsv"),
    ],
)
def test_what_the_kinds_of_task_are_asked_is_taken(name, value):
    """Words to be tagged, and a plan's own rows, were refused by the type that was declared."""
    assert fits(value, TYPES[name], python=True)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("data", 3, "data must be a path or a mapping or a list or None. Received: 3"),
        ("texts", [3], r"texts must be a list or a path or None. Received: \[3\]"),
        ("texts", True, "texts must be a list or a path or None. Received: True"),
        ("golden", 3, "golden must be a path or None. Received: 3"),
        ("overwrite", "no", "overwrite must be True or False. Received: 'no'"),
    ],
)
def test_what_they_are_not_is_refused(name, value, told):
    with pytest.raises(InputError, match=f"^{told}"):
        check_type(name, TYPES[name], value)


def test_classes_of_options_tell_a_wrong_name_and_type():
    """They were a TypeError."""
    pytest.importorskip("tensorflow")
    import kerasbert as kb
    from kerasbert.mobile.distill.recipes import Distillation
    from kerasbert.mobile.pipeline.plan import Plan
    from kerasbert.mobile.prune.sparsity import Magnitude
    from kerasbert.mobile.quantize.aware_training import Aware

    wrong = {
        "Distillation has no option 'temprature'. Nearest": lambda: Distillation({"soft": 1.0}, temprature=2.0),
        "losses must be a mapping": lambda: Distillation(3),
        "layers must be a list": lambda: Distillation({"soft": 1.0}, layers=3),
        "Aware has no option 'dely'. Nearest: 'delay'": lambda: Aware(dely=3),
        "per must be text": lambda: Aware(3),
        "Magnitude has no option 'sparcity'. Nearest: 'sparsity'": lambda: Magnitude(sparcity=0.5),
        "patterns must be a list of texts": lambda: Magnitude(0.5, patterns=3),
        "Plan has no option 'stratgy'. Nearest: 'strategy'": lambda: Plan("m", None, (), stratgy="one"),
        "stages are pairs such as": lambda: Plan("m", None, ("quantize",)),
        "list_models has no option 'kind'": lambda: kb.list_models(kind="bert"),
    }
    for told, call in wrong.items():
        with pytest.raises(InputError, match=told):
            call()
    assert Plan(Path("m"), None, [("prune", {"sparsity": 0.5})]).stages[0][0] == "prune"
