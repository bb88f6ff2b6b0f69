"""Plans: stages in their order, each made once, the same bytes whenever it is killed; what cannot be planned is refused."""

import json
import re
import shutil

import pytest

from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.mobile.cli import main
from tests.mobile import plan_kills
from tests.mobile.conftest import TEXTS, rows

TRAINING = "batch: 16, length: 16"
# matrices that an int8 file rounds
WIDER = "hidden: 32, attention.heads: 2, feedforward.width: 64, blocks.layers: 1, embeddings.positions: 40"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Train and dev rows, and texts."""
    folder = tmp_path_factory.mktemp("opinions")
    rows(folder / "train.tsv", 60)
    rows(folder / "dev.tsv", 40, seed=1)
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return folder


@pytest.fixture(scope="module", autouse=True)
def untimed():
    """No process for each row of the ledger: test_ledger measures times."""
    from kerasbert.mobile.pipeline import ledger

    times = {"p50_ms": 1.0, "p90_ms": 2.0, "peak_memory_mb": 3.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "_times", lambda path, texts: times)
        yield


@pytest.fixture
def plans():
    """The module; it needs TensorFlow."""
    from kerasbert.mobile.pipeline import plan

    return plan


def follow(folder, run, data, stages: str):
    """Run a plan by the command -> the folder with plan.yaml, x.tflite and x.tflite.plan."""
    (folder / "plan.yaml").write_text(f"model: {run}\ndata: {data}\nstages:\n{stages}")
    assert main(["compress", "--plan", str(folder / "plan.yaml"), "--out", str(folder / "x.tflite"), "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def made(untimed, run, data, tmp_path_factory):
    """A plan whose stages train nothing."""
    stages = f"""
  - trim: {{texts: [{data}/train.tsv]}}
  - width: {{share: 0.25}}
  - quantize: {{quantize: fp16, lengths: [16]}}
"""
    return follow(tmp_path_factory.mktemp("plan"), run, data, stages)


@pytest.mark.slow
def test_every_stage_leaves_its_directory_and_the_ledger_has_all(run, data, tmp_path):
    """So few updates leave a student that says the same of every text: the file is not judged."""
    from kerasbert.mobile import prune

    stages = f"""
  - trim: {{texts: [{data}/train.tsv]}}
  - distill: {{student: bert/tiny, set: {{{WIDER}}}, steps: 6, {TRAINING}, unlabelled: [{data}/texts.txt]}}
  - heads: {{share: 0.5}}
  - prune: {{sparsity: 0.5, steps: 6, {TRAINING}}}
  - width: {{share: 0.25}}
  - aware: {{per: tensor, steps: 4, {TRAINING}}}
  - quantize: {{quantize: static_int8, lengths: [16], min_agreement: 0}}
"""
    work = follow(tmp_path, run, data, stages) / "x.tflite.plan"
    named = ["1-trim", "2-distill", "3-heads", "4-prune", "5-width", "6-aware"]
    assert sorted(path.name for path in work.iterdir() if path.is_dir()) == named
    found = json.loads((work / "ledger.json").read_text())
    assert [row["artefact"] for row in found][1:] == [*named, "x.tflite"]
    sizes = {row["artefact"]: row["parameters"] for row in found}
    assert sizes["2-distill"] > sizes["3-heads"] == sizes["4-prune"] > sizes["5-width"] == sizes["6-aware"]
    assert prune.sparsity_of(work / "4-prune")["sparsity"] == pytest.approx(0.5, abs=0.01)
    assert found[4]["nonzero"] < 0.9 * found[3]["nonzero"]
    assert json.loads((work / "4-prune" / "run.json").read_text())["kind"] == "distill"  # it goes on imitating
    assert (work / "ledger.txt").read_text().count("\n") == 9
    assert "<svg" in (work / "ledger.html").read_text()


@pytest.mark.slow
def test_the_file_says_how_it_was_made_without_paths(made, data):
    recipe = bundle.read(made / "x.tflite").recipe
    assert recipe["stages"][0] == {"trim": {"texts": ["train.tsv"]}}
    assert recipe["stages"][2] == {"quantize": {"quantize": "fp16", "lengths": [16]}}
    assert str(data).encode() not in (made / "x.tflite").read_bytes()


def test_a_finished_plan_makes_nothing_again(made, capsys):
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*.safetensors")} | {
        made / "x.tflite": (made / "x.tflite").stat().st_mtime_ns
    }
    assert main(["compress", "--plan", str(made / "plan.yaml"), "--out", str(made / "x.tflite")]) == 0
    shown = capsys.readouterr()
    assert "stage " not in shown.err
    assert "2-width" in shown.out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_file_that_is_lost_is_made_again(made):
    expected = (made / "x.tflite").read_bytes()
    (made / "x.tflite").unlink()
    assert main(["compress", "--plan", str(made / "plan.yaml"), "--out", str(made / "x.tflite"), "--json"]) == 0
    assert (made / "x.tflite").read_bytes() == expected


def test_another_plan_is_refused_and_named(made, tmp_path, capsys):
    text = (made / "plan.yaml").read_text().replace("share: 0.25", "share: 0.5")
    (tmp_path / "other.yaml").write_text(text)
    assert main(["compress", "--plan", str(tmp_path / "other.yaml"), "--out", str(made / "x.tflite")]) == 2
    assert "holds another plan (stages differ)" in capsys.readouterr().err


@pytest.mark.full  # in CI: the README's commands
def test_flags_make_a_plan(classifier, tmp_path, capsys):
    """Without --data: the run says where its rows lie."""
    command = ["compress", classifier, "--student", "1", "--prune", "0.3", "--quantize", "none"]
    settings = ["distill.steps=2", "prune.steps=4", "prune.length=16", "distill.length=16", "quantize.lengths=[16]"]
    sets = [part for setting in settings for part in ("--set", setting)]
    assert main([*map(str, command), *sets, "--out", str(tmp_path / "x.tflite"), "--work", str(tmp_path / "w")]) == 0
    shown = capsys.readouterr().out
    assert "float32" in shown
    assert [line.split()[0] for line in shown.splitlines()[-4:-1]] == ["1-distill", "2-prune", "x.tflite"]
    assert bundle.read(tmp_path / "x.tflite").recipe["stages"][1] == {
        "prune": {"sparsity": 0.3, "steps": 4, "length": 16}
    }


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("[distil: {student: 1}]", r"plan\.yaml:4: .*'distil'.*Nearest: 'distill'"),
        ("[distill: {students: 1}]", r"no field 'distill\.students'\. Nearest: 'distill\.student'"),
        ("[distill: {epochs: 3}]", "the first distill names no student"),
        ("[prune: {sparsity: much}]", r"prune\.sparsity must be a number or null\. Received: 'much'"),
        ("[quantize: {}, prune: {sparsity: 0.5}]", "quantize is not the last stage"),
        ("[prune]", "a stage must be one name with its arguments"),
        ("[{prune: {sparsity: 0.5}, heads: {share: 0.5}}]", "a stage must be one name with its arguments"),
        ("[prune: {sparsity: 1.5, steps: 2}]", "sparsity must be"),
        ("[distill: {student: 7, steps: 2}]", "7 layers"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(run, data, tmp_path, capsys, stages, message):
    path = tmp_path / "plan.yaml"
    path.write_text(f"\nmodel: {run}\ndata: {data}\nstages: {stages}\n")
    assert main(["compress", "--plan", str(path), "--out", str(tmp_path / "x.tflite")]) == 2
    shown = capsys.readouterr().err.strip().splitlines()[-1]
    assert shown.startswith("error: ")
    assert re.search(message, shown), shown
    assert not (tmp_path / "x.tflite").exists()
    path.write_text(path.read_text().replace(stages, "[width: {share: 7}]"))  # what made nothing is not in the way
    assert main(["compress", "--plan", str(path), "--out", str(tmp_path / "x.tflite")]) == 2
    assert "share must be between 0 and 1" in capsys.readouterr().err


def test_bad_flags_are_one_line(run, data, tmp_path, capsys):
    out = ["--out", str(tmp_path / "x.tflite")]
    for arguments, message in (
        ([run, "--prune", "0.5", *out], "does not say where those of its fine-tuning lie"),
        (["--prune", "0.5", *out], "a plan needs RUN"),
        ([run, "--strategy", "cpu", *out], "--strategy is of a plan"),
        ([*out], "no RUN"),
        ([run, "--data", data, "--prune", "0.5", "--set", "distill.steps=1", *out], "no stage 'distill'"),
        ([run, "--plan", tmp_path / "absent.yaml", "--prune", "0.5", *out], "does not go with --plan"),
        (["--plan", tmp_path / "absent.yaml", *out], "absent.yaml"),
    ):
        assert main(["compress", *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err


def test_a_folder_with_something_else_is_left_alone(run, data, tmp_path, plans):
    (tmp_path / "w").mkdir()
    (tmp_path / "w/thesis.txt").write_text("mine")
    plan = plans.Plan(str(run), str(data), (("prune", {"sparsity": 0.5}),))
    with pytest.raises(InputError, match="exists already"):
        plans.run_plan(plan, tmp_path / "x.tflite", work=tmp_path / "w")
    shutil.rmtree(tmp_path / "w")
    (tmp_path / "x.tflite").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        plans.run_plan(plan, tmp_path / "x.tflite", work=tmp_path / "w")
    assert (tmp_path / "x.tflite").read_text() == "mine"


@pytest.mark.full  # what a plan resumes by is tried without kills
def test_killed_it_ends_with_the_same_bytes(tmp_path):
    """Ten kills are `python -m tests.mobile.plan_kills`."""
    seen = plan_kills.run(tmp_path, 1, seed=0)
    assert (seen["kills"], seen["same"]) == (1, True)


@pytest.mark.slow
def test_all_stages_and_the_ledger_hold_the_same_rows_of_one_file_out(run, data, tmp_path, plans):
    import kerasbert as kb
    from kerasbert.tasks.task import held_out, read_rows

    stages = (("heads", {"share": 0.4}), ("finetune", {"steps": 2, "batch": 16}), ("quantize", {"lengths": [24]}))
    plan = plans.Plan(str(run), data / "train.tsv", stages)
    report = plans.run_plan(plan, tmp_path / "x.tflite", quiet=True)
    rows = read_rows(kb.load(run).task, data / "train.tsv")
    assert report["texts"] == len(held_out(rows))
    assert report["texts_from"] == f"{report['texts']} rows of the rows held out of train.tsv"
    stage = json.loads((tmp_path / "x.tflite.plan" / "2-finetune" / "run.json").read_text())
    assert set(stage["settings"]["data"]) == {"train", "dev"}
    assert len(report["ledger"]) == 4
