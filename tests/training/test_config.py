"""The options of training: one line each, seen by functions, recipes, plans and both command lines."""

import dataclasses
import inspect
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.cli.options import add_options, given
from kerasbert.cli.parser import Parser
from kerasbert.errors import InputError
from kerasbert.export.client import Client
from kerasbert.options import option, options
from kerasbert.training.config import FinetuneConfig, TrainConfig
from kerasbert.training.pretrain_config import PretrainConfig
from kerasbert.value_types import fits
from tests.support import ROOT, python

LINE = '    noise: float = option(0.0, "of the gradient", least=0)\n'
WHERE = '    optimizer: str = option("adamw"'
SEEN = """
import json
import inspect
from pathlib import Path
import kerasbert as kb
from kerasbert import cli
from kerasbert.mobile import cli as mobile_cli, prune, quantize
from kerasbert.mobile.pipeline import plan
from kerasbert.mobile.distill import distill
from kerasbert.training import pretrain_config, recipe

assert kb.__path__[0] == str(Path(__file__).parent / 'kerasbert')
functions = kb.pretrain, kb.finetune, distill, prune.magnitude, quantize.aware
seen = dict()
for function in functions:
    seen[function.__name__] = inspect.signature(function).parameters["noise"].default
    assert "noise: float, of the gradient." in function.__doc__
seen["recipe"] = [str(recipe.fields(function)["noise"]) for function in functions[:2]]
seen["plan"] = [stage for stage, known in plan.stages().items() if "noise" in known]
for parser, names in ((cli.parser(), ("pretrain", "finetune")), (mobile_cli.parser(), ("distill", "prune", "quantize-aware"))):
    commands = next(action for action in parser._actions if action.dest != "help" and action.choices).choices
    for name in names:
        (action,) = [action for action in commands[name]._actions if "--noise" in action.option_strings]
        seen["--noise " + name] = action.type.__name__
seen["run.json"] = pretrain_config.PretrainConfig(steps=9, out="x", noise=0.5).to_json()["noise"]
try:
    kb.finetune("run", "classification", "rows", out="x", noise=-1)
except kb.InputError as error:
    seen["error"] = str(error)
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_a_new_option_is_one_line(tmp_path):
    """In a copy of the package: one line more, and everything that takes options of training takes it."""
    for folder in ("kerasbert", "mobile"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "books"))
    path = tmp_path / "kerasbert" / "training" / "config.py"
    text = path.read_text()
    assert text.count(WHERE) == 1
    path.write_text(text.replace(WHERE, LINE + WHERE))
    (tmp_path / "see.py").write_text(SEEN)
    done = python(tmp_path / "see.py", PYTHONPATH=str(tmp_path))
    assert json.loads(done.stdout) == {
        **dict.fromkeys(("pretrain", "finetune", "distill", "magnitude", "aware"), 0.0),
        "recipe": ["<class 'float'>"] * 2,
        "plan": ["distill", "prune", "aware", "finetune"],
        **{f"--noise {name}": "float" for name in ("pretrain", "finetune", "distill", "prune", "quantize-aware")},
        "run.json": 0.5,
        "error": "noise must be a number of at least 0. Received: -1",
    }


def test_the_functions_show_their_options():
    """`inspect.signature` names every field with its default and type; `help` has a line for each."""
    for function, kind in ((kb.pretrain, PretrainConfig), (kb.finetune, FinetuneConfig)):
        parameters = inspect.signature(function).parameters
        for name, field in options(kind).items():
            required = field.default is dataclasses.MISSING
            assert parameters[name].default == (inspect.Parameter.empty if required else field.default)
            assert parameters[name].annotation == field.type
            assert f"\n        {name}: " in function.__doc__
            assert field.metadata["help"]
        assert "{options}" not in function.__doc__
    assert inspect.signature(kb.finetune).parameters["learning_rate"].default == 5e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"out": "x", "steps": 3, "learning_rat": 1},
            "pretrain has no option 'learning_rat'. Nearest: 'learning_rate'",
        ),
        ({"out": "x", "steps": 0}, "steps must be a whole number of at least 1. Received: 0"),
        ({"out": "x", "steps": True}, "steps must be a whole number of at least 1. Received: True"),
        ({"out": "x", "steps": 3, "clip": "1"}, "clip must be a number of at least 0. Received: '1'"),
        ({"out": "x", "steps": 3, "clip": float("inf")}, "clip must be a number of at least 0. Received: inf"),
        (
            {"out": "x", "steps": 3, "save_every": None},
            "save_every must be a whole number of at least 0. Received: None",
        ),
        ({"out": "x", "steps": 3, "warmup": 4}, r"warmup must be between 0 and steps \(3\). Received: 4"),
        (
            {"out": "x", "steps": 3, "precision": "half"},
            "no precision 'half'. Expected one of: float32, mixed_bfloat16",
        ),
        ({"out": "x", "steps": 3, "overwrite": "False"}, "overwrite must be True or False. Received: 'False'"),
        ({"out": 3, "steps": 3}, "out must be a path. Received: 3"),
        ({"out": "x", "steps": 3, "changes": "dropout=0"}, "changes must be a mapping or None. Received: 'dropout=0'"),
        ({"out": "x", "steps": 3, "schedule": 3}, "schedule must be text. Received: 3"),
        (
            {"out": "x", "steps": 3, "profile": (1.5, 2)},
            r"profile must be a list of whole numbers or None. Received: \(1.5, 2\)",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    with pytest.raises(InputError, match=message):
        kb.pretrain("bert/tiny", "records", **arguments)


@pytest.mark.parametrize(
    ("value", "hint", "right"),
    [
        (np.int64(3), int, True),
        (np.float32(3), float, True),
        (True, float, False),
        (np.str_("a"), str, True),
        (Path("a"), str | os.PathLike, True),
        (b"a", str | os.PathLike, False),
        ("a", Sequence[str], True),
        (Path("a"), Sequence[str | os.PathLike], True),
        ("3", Sequence[int], False),
        (np.arange(3), Sequence[int], True),
        ([3.0], Sequence[int], False),
        ({}, Sequence[str], False),
        (3, Sequence[int], False),
        (len, str | Callable[[int], int] | None, True),
        (object(), str | Callable[[int], int] | None, False),
        (3, str | FinetuneConfig, False),
        (MappingProxyType({}), Mapping[str, int], True),
    ],
)
def test_what_python_hands_over_is_of_the_type_that_is_declared(value, hint, right):
    """overwrite="False" replaced a run, few_shot="no" trained otherwise."""
    assert fits(value, hint, python=True) == right


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: kb.predict("run", ["a"], bach=3), "predict has no option 'bach'. Nearest: 'batch'"),
        (lambda: kb.encode("run", ["a"], max_length=3), "encode has no option 'max_length'. Nearest: 'length'"),
        (lambda: kb.export("run", "x", overwrite="no"), "overwrite must be True or False. Received: 'no'"),
        (lambda: kb.load(None), "directory must be a path. Received: None"),
        (lambda: kb.evaluate("run", [], split=3), "split must be text or None. Received: 3"),
        (lambda: kb.mobile.compress("run", out=None), "out must be a path. Received: None"),
        (lambda: kb.pretrain("bert/tiny", ["records"], out="x", steps=3), "data must be a path. Received: .'records'."),
        (lambda: kb.train_tokenizer("a.txt", size="100"), "size must be a whole number of at least 1. Received: '100'"),
        (
            lambda: kb.finetune("run", "sts", "rows", out="x", dims=[6.5]),
            "dims must be a list of whole numbers or None",
        ),
        (lambda: kb.grid("run", "sts", "rows", grid="seed", out="x"), "grid must be a mapping. Received: 'seed'"),
        (lambda: kb.predict("run", ["a"], options="beams"), "options must be a mapping or None. Received: 'beams'"),
        (lambda: kb.Index("x", by="run"), "Index has no option 'by'. In Python it is model"),
        (lambda: kb.Index(5), "path must be a path. Received: 5"),
        (lambda: kb.Index.build("run", ["a"], "x", word=True), "Index.build has no option 'word'. Nearest: 'words'"),
        (
            lambda: kb.Index.build("run", ["a"], "x", prompt="a "),
            "Index.build has no option 'prompt'. Nearest: 'prompt_name'",
        ),
        (lambda: kb.Index.build("run", ["a"], None), "out must be a path. Received: None"),
        (lambda: kb.load_tokenizer("x", lower=True), "load_tokenizer has no option 'lower'. Nearest: 'lowercase'"),
        (lambda: kb.mobile.load("x", threads="2"), "threads is '2', expected 1 to 256"),
        (lambda: kb.mobile.trim("run", overwrit=True), "trim has no option 'overwrit'. Nearest: 'overwrite'"),
        (lambda: kb.mobile.run_plan("p.yaml", "x", overwrite="no"), "overwrite must be True or False. Received: 'no'"),
        (lambda: Client("http://a:1", "m", timeout="30"), "timeout of a client is at least 0.001. Received: '30'"),
    ],
)
def test_what_functions_do_not_take_is_refused_before_anything_is_read(call, told):
    with pytest.raises(InputError, match=f"^{told}"):
        call()


def test_an_attribute_that_is_not_there_is_told_with_the_nearest():
    with pytest.raises(AttributeError, match="has no attribute 'fine_tune'") as told:
        kb.fine_tune  # noqa: B018 (it raises)
    assert (told.value.name, told.value.obj) == ("fine_tune", kb)  # of which Python says "Did you mean: 'finetune'?"
    assert not hasattr(kb, "__wrapped__")


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match="needs steps, which the call does not give"):
        kb.pretrain("bert/tiny", "records", out="x")


def test_a_class_below_says_its_difference_alone():
    """A default without more keeps the help and the range of the class above."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Careful(FinetuneConfig):
        clip: float = 0.5
        noise: float = option(0.0, "of the gradient", least=0)

    known = options(Careful)
    assert known["clip"].default == 0.5
    assert known["clip"].metadata == options(TrainConfig)["clip"].metadata
    with pytest.raises(InputError, match="clip must be a number of at least 0"):
        Careful(out="x", clip=-1)
    settled = Careful(out="x", epochs=2).settled(epoch=15)
    assert (settled.steps, settled.warmup_steps, settled.evaluate_every, settled.save_every) == (30, 3, 15, 15)
    assert settled.to_json()["warmup"] is None


def test_the_command_line_has_what_was_given_alone(capsys):
    """Flags of another name and form are the field's value; a text that means nothing is one line."""
    parser = Parser(prog="train")
    parser.add_argument("--batch", type=int, default=7)
    add_options(parser, PretrainConfig, required=False)
    found = parser.parse_args(["--peak-tflops", "2", "--profile", "3:4", "--overwrite", "--out", "x"])
    assert given(found, PretrainConfig) == {"peak": 2e12, "profile": (3, 4), "overwrite": True, "out": "x", "batch": 7}
    assert "(default: 0.0001)" in parser.format_help()
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--profile", "3"])
    assert capsys.readouterr().err == "error: --profile must be such as START:COUNT. Received: '3'. See train --help\n"
    with pytest.raises(SystemExit):
        parser.parse_args(["--steps", "many"])


def test_every_command_prints_its_defaults():
    """They are the fields', without an index."""
    commands = next(action for action in cli.parser()._actions if action.dest != "help" and action.choices).choices
    text = {name: " ".join(commands[name].format_help().split()) for name in ("pretrain", "finetune")}
    assert "rows in a global batch (default: 256)" in text["pretrain"]
    assert "rows in a global batch (default: 32)" in text["finetune"]
    assert "peak of the schedule (default: 5e-05)" in text["finetune"]


@pytest.mark.parametrize(
    ("call", "name", "told"),
    [
        (kb.finetune, "train_file", ". Nearest: 'data'"),
        (kb.finetune, "eval_dataset", ". Nearest: 'data'"),
        (kb.finetune, "run", ". Nearest: 'model'"),
        (kb.finetune, "num_labels", ": labels are counted in the data"),
        (kb.predict, "num_beams", ": it is one of the task's, options={'num_beams': ...}"),
        (kb.evaluate, "checkpoint", ". Nearest: 'model'"),
    ],
)
def test_what_others_call_an_argument_is_told(call, name, told):
    with pytest.raises(InputError, match=re.escape(f"has no option {name!r}{told}")):
        call("nowhere", "nowhere", **{name: 1})
