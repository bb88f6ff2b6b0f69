"""The Python scripts and the recipes."""

import ast
import inspect
import json

import pytest

import kerasbert as kb
from tests.support import ROOT, forked

SCRIPTS = ROOT / "tpu_scripts"
RECIPES = sorted(path.stem for path in (SCRIPTS / "recipes").glob("*.yaml"))
phased = pytest.mark.skipif("phases" not in inspect.signature(kb.pretrain).parameters, reason="pretrain has no phases")


@phased
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_read(name, monkeypatch):
    monkeypatch.setenv("BUCKET", "gs://bucket")
    monkeypatch.setenv("TPU_NAME", "mine")
    found = kb.read_recipe(SCRIPTS / "recipes" / f"{name}.yaml")
    if found.finetune:
        inspect.signature(kb.finetune).bind("run", **found.finetune)
    if found.export:
        inspect.signature(kb.export).bind("run", **found.export)
    if not found.pretrain:  # CoVe begins with word vectors
        assert name == "cove"
        return
    inspect.signature(kb.pretrain).bind(**found.pretrain)
    read = dict.fromkeys(
        phase["data"].replace("gs://bucket", found.prepare["out"]) for phase in found.pretrain["phases"]
    )
    assert [f"{found.prepare['out']}/{length}" for length in found.prepare["lengths"]] == list(read)


@phased
@pytest.mark.parametrize(("name", "chips"), [("bert_base", 16), ("bert_large", 64)])
def test_bert_is_the_papers(name, chips, monkeypatch):
    from kerasbert.training.phases import check_phases, make_phases
    from kerasbert.training.schedules import make_schedule

    monkeypatch.setenv("BUCKET", "gs://bucket")
    monkeypatch.setenv("TPU_NAME", "mine")
    found = kb.read_recipe(SCRIPTS / "recipes" / f"{name}.yaml").pretrain
    phases = make_phases(found["phases"], batch=0)
    check_phases(phases, found["steps"])
    # Devlin et al., appendix A.2
    assert [phase.batch * int(phase.data.rpartition("/")[2]) for phase in phases] == [131_072, 131_072]
    assert phases[0].steps / found["steps"] == 0.9
    assert all(phase.batch % chips == 0 for phase in phases)
    schedule = make_schedule(found["schedule"], found["learning_rate"], found["steps"], found["warmup"])
    assert float(schedule(9_999)) == pytest.approx(1e-4)
    assert (found["weight_decay"], found["changes"]["dropout"], found["steps"]) == (0.01, 0.1, 1_000_000)


@phased
@pytest.mark.parametrize(
    ("name", "row"), [("256", (256, 1_000_000, 1e-4)), ("2k", (2048, 125_000, 7e-4)), ("8k", (8192, 31_000, 1e-3))]
)
def test_roberta_is_table_3(name, row, monkeypatch):
    monkeypatch.setenv("BUCKET", "gs://bucket")
    monkeypatch.setenv("TPU_NAME", "mine")
    found = kb.read_recipe(SCRIPTS / "recipes" / f"roberta_base_{name}.yaml").pretrain
    assert (found["phases"][0]["batch"], found["steps"], found["learning_rate"]) == row


@phased
@pytest.mark.parametrize(
    ("name", "steps", "batch", "rate"), [("small", 1_000_000, 128, 5e-4), ("base", 766_000, 256, 2e-4)]
)
def test_electra_is_the_papers(name, steps, batch, rate, monkeypatch):
    from kerasbert.objectives.masked_lm import MaskedLM
    from kerasbert.registry import objective

    monkeypatch.setenv("BUCKET", "gs://bucket")
    monkeypatch.setenv("TPU_NAME", "mine")
    found = kb.read_recipe(SCRIPTS / "recipes" / f"electra_{name}.yaml").pretrain
    # Clark et al., table 6
    assert (found["steps"], found["learning_rate"], found["warmup"]) == (steps, rate, 10_000)
    assert [phase["batch"] for phase in found["phases"]] == [batch]
    assert MaskedLM(**found["objective"]) == MaskedLM(**objective("electra").defaults)


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.name)
def test_scripts_are_thin(path):
    """Only the public API, the command line and the novels."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {name for name in names if name.startswith("kerasbert")}
    assert ours <= {"kerasbert", "kerasbert.cli", "kerasbert.quickstart.books"}
    assert len(path.read_text().splitlines()) < 80


def script(name, *arguments, check=True):
    return forked(SCRIPTS / f"{name}.py", *arguments, check=check)


@pytest.mark.parametrize("name", ["prepare_data", "pretrain"])
def test_an_unknown_recipe_is_one_line(name):
    done = script(name, "--recipe", "smok", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: no recipe 'smok': neither a file nor one of {', '.join(RECIPES)}\n"


SHORT = """
model: bert/tiny
set: {hidden: 16, attention.heads: 2, feedforward.width: 24, embeddings.positions: 32}
steps: 4
batch: 4
prepare: {out: OUT/data, text: [OUT/corpus.txt], vocabulary: 200, lengths: [32]}
finetune: {task: classification, data: OUT/train.tsv, out: OUT/tuned, steps: 2, batch: 4, length: 16}
export: {out: OUT/saved/1, length: 16}
"""


@pytest.mark.full
def test_the_four_scripts_one_after_the_other(tmp_path):
    from tests import tiny

    tiny.corpus(tmp_path / "corpus.txt")
    tiny.labelled(tmp_path / "train.tsv")
    recipe = tmp_path / "short.yaml"
    recipe.write_text(SHORT.replace("OUT", str(tmp_path)))
    script("prepare_data", "--recipe", recipe)
    line = ["--recipe", recipe, "--data", tmp_path / "data" / "32", "--out", tmp_path / "run", "--quiet"]
    script("pretrain", *line)
    assert kb.load(tmp_path / "run").spec.hidden == 16
    script("finetune", "--recipe", recipe, tmp_path / "run")
    done = script("export", "--recipe", recipe, tmp_path / "tuned")
    assert done.stdout.strip() == str(tmp_path / "saved" / "1")
    assert (tmp_path / "saved" / "1" / "saved_model.pb").is_file()


@phased
@pytest.mark.slow
def test_smoke_goes_on_across_the_change_of_length(tmp_path):
    """Stopped in the first phase and started again: the same weights as in one go."""
    import numpy as np

    from kerasbert.checkpoints import read_tensors

    recipe = tmp_path / "smoke.yaml"
    text = (SCRIPTS / "recipes" / "smoke.yaml").read_text()
    text = text.replace("smoke/", f"{tmp_path}/").replace("steps: 60", "steps: 12").replace("steps: 48", "steps: 8")
    recipe.write_text(text.replace("save_every: 20", "save_every: 6").replace("log_every: 6", "log_every: 1"))
    script("prepare_data", "--recipe", recipe)
    script("pretrain", "--recipe", recipe, "--out", tmp_path / "whole", "--quiet")
    stop = "import os, signal; from kerasbert.training import runs; log = runs.Run.log\n"
    stop += "def note(self, record):\n    log(self, record)\n    record['step'] == 7 and os.kill(os.getpid(), signal.SIGTERM)\n"
    stop += "runs.Run.log = note\nfrom kerasbert import cli; import sys; sys.exit(cli.main(sys.argv[1:]))"
    line = ["pretrain", "--recipe", recipe, "--out", tmp_path / "parts", "--quiet"]
    assert forked("-c", stop, *line, check=False).returncode == 75
    script(*line)
    one, other = (read_tensors(tmp_path / name) for name in ("whole", "parts"))
    assert all(np.array_equal(one.read(name), other.read(name)) for name in one.names())
    logged = [json.loads(line)["step"] for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert logged == list(range(1, 13))


@pytest.mark.parametrize(
    ("name", "case"), [("albert_base", "--lowercase"), ("xlm_r_base", "--cased"), ("bert_base", None)]
)
def test_recipes_say_whether_their_vocabulary_has_case(tmp_path, monkeypatch, name, case):
    """XLM-R's lost case and every accent of a hundred languages, ALBERT's lower-cases as released."""
    monkeypatch.setenv("BUCKET", "gs://bucket")
    monkeypatch.setenv("TPU_NAME", "mine")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import prepare_data

    commands = []
    monkeypatch.setattr(prepare_data, "command", lambda *words: commands.append([str(word) for word in words]))
    recipe = str(SCRIPTS / "recipes" / f"{name}.yaml")
    monkeypatch.setattr("sys.argv", ["prepare_data.py", "--recipe", recipe, "--text", "a.txt", "--out", str(tmp_path)])
    prepare_data.main()
    assert {"--cased", "--lowercase"} & set(commands[0]) == {case} - {None}
    assert commands[1][:2] == ["data", "a.txt"]
    assert f"--packing={kb.read_recipe(recipe).prepare['packing']}" in commands[1]
