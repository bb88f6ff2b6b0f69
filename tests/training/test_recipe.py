"""Recipes: what they may say, what the command line overrides, and one line for every mistake."""

import functools
import inspect
import json
from pathlib import Path

import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.errors import InputError
from kerasbert.training import early
from kerasbert.training import pretrain as module
from tests import tiny
from tests.support import forked

GOOD = """
# a comment with ${NOTHING}
model: bert/tiny
data: ${PLACE}/records
steps: 1_000
batch: 8
learning_rate: 1e-3
optimizer: lamb
optimizer_options: {beta_2: 0.98, not_decayed: [bias$]}
schedule: polynomial
schedule_options: {power: 2}
objective: {static: 10}
init: null
set:
  dropout: 0
  attention.heads: 4
prepare: {out: smoke, lengths: [32, 64]}
finetune: {task: classification, data: smoke, epochs: 2, learning_rate: 5e-5, set: {dropout: 0.2}}
export: {out: smoke/saved, length: 64}
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes a recipe."""
    monkeypatch.setenv("PLACE", "gs://bucket")

    def write(text):
        (tmp_path / "r.yaml").write_text(text)
        return tmp_path / "r.yaml"

    return write


def test_a_recipe_is_the_arguments_of_the_functions(recipe):
    found = kb.read_recipe(recipe(GOOD))
    assert found.pretrain == {
        "model": "bert/tiny",
        "data": "gs://bucket/records",
        "steps": 1000,
        "batch": 8,
        "learning_rate": 0.001,
        "optimizer": "lamb",
        "optimizer_options": {"beta_2": 0.98, "not_decayed": ["bias$"]},
        "schedule": "polynomial",
        "schedule_options": {"power": 2},
        "objective": {"static": 10},
        "init": None,
        "changes": {"dropout": 0, "attention.heads": 4},
    }
    assert found.prepare == {"out": "smoke", "lengths": [32, 64]}
    assert found.finetune["changes"] == {"dropout": 0.2}
    assert found.export == {"out": "smoke/saved", "length": 64}
    inspect.signature(kb.pretrain).bind(**found.pretrain, out="x")
    inspect.signature(kb.finetune).bind("run", **found.finetune, out="x")
    inspect.signature(kb.export).bind("run", **found.export)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: bert/tiny\nstep: 3", "r.yaml:2: no field 'step'. Nearest: 'steps'"),
        ("steps: many", "r.yaml:1: steps must be a whole number or null. Received: 'many'"),
        ("steps: 3\nclip: true", "r.yaml:2: clip must be a number. Received: True"),
        ("steps: 3.5", "r.yaml:1: steps must be a whole number or null. Received: 3.5"),
        ("\nbatch: 8\nbatch: 9", "r.yaml:3: batch is there twice"),
        ("model: bert/tiny\n  steps: 3", "r.yaml:2: not YAML: mapping values are not allowed here"),
        ("model: [bert", "r.yaml:1: not YAML: "),
        ("", "r.yaml:1: the recipe is empty"),
        ("- 3", "r.yaml:1: a recipe must be a mapping of field: value"),
        ("model: bert/tny", "r.yaml:1: model: no model 'bert/tny'. Nearest: 'bert/tiny'"),
        ("model: bert/tiny\nset:\n  dropot: 0", "r.yaml:3: set.dropot: no spec field 'dropot'. Nearest: 'dropout'"),
        ("model: bert/tiny\nset:\n  dropout: x", "r.yaml:3: set.dropout: dropout must be float"),
        ("optimizer: adam", "r.yaml:1: optimizer: no optimizer 'adam'. Nearest: 'adamw'"),
        (
            "steps: 3\noptimizer_options: {beta: 1}",
            "r.yaml:2: optimizer_options: optimizer 'adamw' has no option 'beta'",
        ),
        ("schedule: cosinus", "r.yaml:1: schedule: no schedule 'cosinus'. Nearest: 'cosine'"),
        (
            "schedule: cosine\nschedule_options: {end: 3}",
            "r.yaml:2: schedule_options: end of schedule 'cosine' must be",
        ),
        ("objective: ernei", "r.yaml:1: objective: no objective 'ernei'. Nearest: 'ernie'"),
        (
            "model: bert/tiny\nobjective:\n  ratio: 0.2",
            "r.yaml:3: no field 'objective.ratio'. Nearest: 'objective.rate'",
        ),
        ("objective: {name: spanbert, select: 3}", "r.yaml:1: objective.select must be text. Received: 3"),
        (
            "model: bert/tiny\nsteps: 9\ndata: x\nphases:\n  - {steps: 3}\n  - {objective: {selct: words}}",
            r"r.yaml:6: no field 'phases\[2\].objective.selct'. Nearest: 'phases\[2\].objective.select'",
        ),
        ("steps: 10\nwarmup: 11", "r.yaml:2: warmup: 11 is more than the 10 steps"),
        ("prepare:\n  out: x", "r.yaml:2: prepare has no lengths"),
        (
            "prepare: {out: x, lengths: [1, a]}",
            r"r.yaml:1: prepare.lengths must be a list of whole numbers. Received: \[1, 'a'\]",
        ),
        ("finetune:\n  epoch: 3", "r.yaml:2: no field 'finetune.epoch'. Nearest: 'finetune.epochs'"),
        ("export: 3", "r.yaml:1: export must be a mapping. Received: 3"),
        ("\n\ndata: ${NOTHING}/x", "r.yaml:3: the environment has no NOTHING: export NOTHING=..."),
        ("model: 5", "r.yaml:1: model must be text. Received: 5"),
        ("steps: 3\nwarmup: null\noptimizer_options: null\n? [a]\n: 3", "r.yaml:4: a field of a recipe must be a name"),
        ("steps: !!int many", "r.yaml:1: steps: invalid literal for int"),
        ("out: !!python/name:os.system", "r.yaml:1: the type 'tag:yaml.org,2002:python/name:os.system' is none"),
        ("out: \x07", "r.yaml:1: not YAML: unacceptable character"),
        ("model: bert/tiny\nbatch: 60:30", "r.yaml:2: batch must be a whole number. Received: '60:30'"),
        ("batch: 010", "r.yaml:1: batch must be a whole number. Received: '010'"),
        ("batch: 0x10", "r.yaml:1: batch must be a whole number. Received: '0x10'"),
        ("seed: 1e3", "r.yaml:1: seed must be a whole number. Received: 1000.0"),
        ("learning_rate: .nan", "r.yaml:1: learning_rate must be a number. Received: '.nan'"),
        ("learning_rate: -.inf", "r.yaml:1: learning_rate must be a number. Received: '-.inf'"),
        ("out: !!timestamp x", "r.yaml:1: the type 'tag:yaml.org,2002:timestamp' is none of a recipe's: leave it out"),
        (
            "out: !!python/object/apply:os.system [id]",
            "r.yaml:1: the type 'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
        ("out: !!binary aGk=", "r.yaml:1: the type 'tag:yaml.org,2002:binary' is none"),
        ("set: !!set {a, b}", "r.yaml:1: the type 'tag:yaml.org,2002:set' is none"),
        ("out: &a [*a]", "r.yaml:1: out: found unconstructable recursive node"),
        ("out: " + "[" * 60 + "]" * 60, "r.yaml:1: nested too deeply, expected at most 50 levels"),
        ("out: " + "[" * 20_000, "r.yaml is nested too deeply, expected at most 50 levels"),
        ("overwrite: true", "r.yaml:1: no field 'overwrite'"),
    ],
)
def test_every_mistake_has_its_line(recipe, monkeypatch, text, message):
    monkeypatch.delenv("NOTHING", raising=False)
    with pytest.raises(InputError, match=message):
        kb.read_recipe(recipe(text))


def test_null_is_the_functions_default(recipe):
    text = "model: bert/tiny\nsteps: 3\nwarmup: null\noptimizer_options: null\nset: null\nobjective: null"
    assert kb.read_recipe(recipe(text)).pretrain["warmup"] is None


def test_no_recipe(tmp_path):
    with pytest.raises(InputError, match="cannot read recipe .*none.yaml"):
        kb.read_recipe(tmp_path / "none.yaml")


phased = pytest.mark.skipif("phases" not in inspect.signature(kb.pretrain).parameters, reason="pretrain has no phases")


@phased
def test_phases_take_what_the_run_has(recipe):
    found = kb.read_recipe(recipe("steps: 10\nbatch: 4\nphases:\n- {steps: 9, data: a}\n- {data: b, batch: 2}"))
    assert found.pretrain["data"] == "a"
    assert found.pretrain["phases"] == [{"steps": 9, "data": "a"}, {"data": "b", "batch": 2}]


@phased
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phases:\n- {steps: 9}\n- {bach: 2}", r"r.yaml:3: no field 'phases\[2\].bach'. Nearest: 'phases\[2\].batch'"),
        ("phases:\n- {steps: x}", r"r.yaml:2: phases\[1\].steps must be a whole number or null. Received: 'x'"),
        ("steps: 9\nphases:\n- {steps: 9}\n- {batch: 2}", "r.yaml:3: phases: the phases before the last make 9 steps"),
    ],
)
def test_mistakes_in_phases(recipe, text, message):
    with pytest.raises(InputError, match=message):
        kb.read_recipe(recipe(text))


@pytest.fixture
def asked(monkeypatch):
    """What pretrain is asked for; it does nothing."""
    found = {}
    monkeypatch.setattr(early, "check_pretrain", lambda *_: None)  # its records are none
    monkeypatch.setattr(module, "pretrain", functools.wraps(module.pretrain)(lambda **given: found.update(given)))
    return found


def test_the_command_line_goes_before_the_recipe(recipe, asked, capsys):
    path = recipe(GOOD)
    line = ["pretrain", "--recipe", str(path), "--out", "run", "--batch", "16", "--set", "dropout=0.5", "--quiet"]
    assert cli.main(line) == 0
    expected = kb.read_recipe(path).pretrain
    changed = {"batch": 16, "out": "run", "quiet": True, "changes": {"dropout": 0.5, "attention.heads": 4}}
    assert asked == expected | changed | {"plugin": None}
    assert capsys.readouterr().out == "run\n"


@pytest.mark.parametrize(
    ("written", "line", "expected"),
    [
        ("", "--objective spanbert --set objective.rate=0.2", {"name": "spanbert", "rate": 0.2}),
        ("objective: spanbert", "--set objective.rate=0.2", {"name": "spanbert", "rate": 0.2}),
        (
            "objective: {name: spanbert, rate: 0.3}",
            "--select words",
            {"name": "spanbert", "rate": 0.3, "select": "words"},
        ),
        ("objective: {name: spanbert, rate: 0.3}", "--objective ernie", {"name": "ernie"}),
        ("objective: {rate: 0.3}", "--static-masks 4", {"rate": 0.3, "static": 4}),
    ],
)
def test_the_objective_of_recipe_and_command_line(recipe, asked, written, line, expected):
    path = recipe(f"model: bert/tiny\nsteps: 3\ndata: x\n{written}")
    assert cli.main(["pretrain", "--recipe", str(path), "--out", "run", "--set", "dropout=0", *line.split()]) == 0
    assert (asked["objective"], asked["changes"]) == (expected, {"dropout": 0})


def test_without_a_recipe_the_function_s_defaults_hold(asked):
    assert cli.main(["pretrain", "bert/tiny", "--data", "x", "--steps", "3", "--out", "run"]) == 0
    assert asked == {"model": "bert/tiny", "data": "x", "steps": 3, "out": "run", "plugin": None}


def test_what_is_missing_is_named(recipe, capsys):
    assert cli.main(["pretrain", "--recipe", str(recipe("model: bert/tiny\nsteps: 3"))]) == 2
    error = "error: pretrain needs data, out: on the command line or in a --recipe\n"
    assert capsys.readouterr().err == error


@pytest.mark.slow
def test_a_recipe_trains(tmp_path):
    recipe = {"model": "bert/tiny", "steps": 2, "batch": 4, "optimizer": "adafactor", "set": tiny.SPEC}
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))  # json is YAML
    line = ["pretrain", "--recipe", tmp_path / "r.yaml", "--data", tiny.records(tmp_path), "--out", tmp_path / "run"]
    forked("-m", "kerasbert.cli", *line, "--quiet")
    settings = json.loads((Path(tmp_path) / "run" / "run.json").read_text())["settings"]
    assert (settings["optimizer"], settings["batch"], settings["schedule"]) == ("adafactor", 4, "linear")


def test_a_mask_that_finds_nothing_begins_no_run(tmp_path):
    settings = {"steps": 2, "batch": 4, "changes": tiny.SPEC, "optimizer_options": {"not_decayed": ["biass"]}}
    with pytest.raises(InputError, match="not_decayed: 'biass' is in no weight's path, such as 'encoder/embeddings"):
        kb.pretrain("bert/tiny", tiny.records(tmp_path), out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "value",
    [
        "x\nbatch: 7",
        "a: b",
        "{batch: 7}",
        "[1, 2]",
        "# none",
        "&a *b",
        "'",
        '"',
        "!!int 3",
        "\ue000HOME\ue001",
        "${HOME}",
        "",
    ],
)
def test_a_variable_is_one_value_whatever_it_holds(recipe, monkeypatch, value):
    """It was put into the file before it was parsed: a line feed in it added fields."""
    monkeypatch.setenv("ODD", value)
    assert (
        kb.read_recipe(recipe("data: d\nout: a/${ODD}/b # ${NO_COMMENT}\nset: {dropout: 0.1}")).pretrain["out"]
        == f"a/{value}/b"
    )
    assert kb.read_recipe(recipe('data: "${ODD}"')).pretrain["data"] == value


def test_a_variable_may_be_a_number(recipe, monkeypatch):
    """Where it is not quoted and is all of the value; days and YAML 1.1's words are text."""
    monkeypatch.setenv("STEPS", "1_000")
    text = "data: 2026-11-25\nout: no\nsteps: ${STEPS}\nbatch: 6${STEPS}\nlearning_rate: 1e-4\nclip: .5"
    found = kb.read_recipe(recipe(text)).pretrain
    assert found == {
        "data": "2026-11-25",
        "out": "no",
        "steps": 1000,
        "batch": 61000,
        "learning_rate": 1e-4,
        "clip": 0.5,
    }


def test_aliases_are_looked_at_once(recipe):
    """Ten lines that name one another ten times each are a billion values."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(InputError, match=r"r\.yaml:1: no field 'a0'"):
        kb.read_recipe(recipe("\n".join(lines)))
