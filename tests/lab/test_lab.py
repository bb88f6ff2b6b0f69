"""The lab: what is planned, refused, resumed, computed and told; one experiment run really."""

import contextlib
import dataclasses
import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import kerasbert
from kerasbert import cli, registry
from kerasbert import spec as specs
from kerasbert.data.config import RecordsConfig
from kerasbert.errors import InputError
from kerasbert.lab import intervals, page, plan, recipes, results, runner, twin, work
from kerasbert.mobile.cli import parser
from kerasbert.mobile.distill.recipes import DistillConfig
from kerasbert.registry import shipped_model
from kerasbert.text.train import train_wordpiece
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.flops import family_flops
from kerasbert.training.pretrain_config import PretrainConfig

RECIPE = """
title: Two arms
claim: a is better than b
source: "nobody (2026), table 0"
minutes: 10
figure: {of: pretrain, name: held_out/loss, higher: false, told: loss}
base:
  data: {length: 32, packing: full}
  pretrain:
    {model: bert/tiny, steps: 100, batch: 16, evaluate_every: 100,
     changes: {hidden: 16, attention.heads: 2, feedforward.width: 16, embeddings.positions: 32}}
arms:
  a: {}
  b: {pretrain: {learning_rate: 0.0}}
compare: [{better: a, worse: b}]
needs: nothing
"""


@pytest.fixture
def experiment(monkeypatch):
    found = recipes.read("two", RECIPE)
    monkeypatch.setattr(recipes, "find", lambda name: found)
    return found


def lines(a, b):
    rows = [("a", seed, value) for seed, value in enumerate(a)] + [("b", seed, value) for seed, value in enumerate(b)]
    return [{"arm": arm, "seed": seed, "figure": value, "parameters": 9, "seconds": 1.0} for arm, seed, value in rows]


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30])
def test_students_t_is_scipys(freedom):
    for t in (0.1, 1.0, 2.776, 12.706):
        expected = stats.t.cdf(t, freedom) - stats.t.cdf(-t, freedom)
        assert intervals.coverage(t, freedom) == pytest.approx(expected, abs=1e-12)
    for level in (0.95, 1 - 0.05 / 3):
        assert intervals.quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-9)


def test_a_verdict_is_the_paired_test():
    for values in ([0.3, 0.1, 0.25, 0.2], [0.3, -0.1, 0.25, 0.2], [-0.3, -0.31, -0.25, -0.29]):
        test = stats.ttest_1samp(values, 0.0)
        expected = "not seen" if test.pvalue > 0.05 else "seen" if test.statistic > 0 else "opposite"
        assert intervals.verdict(values) == expected
    assert intervals.verdict([0.1, 0.1, 0.1]) == "not seen"  # no spread to judge by


def test_a_power_law_is_found():
    sizes = [1e4, 1e5, 1e6]
    assert intervals.exponent(sizes, [7 * size**-0.07 for size in sizes]) == pytest.approx(-0.07)


def test_sizes_are_of_the_seeds_that_were_finite(experiment):
    """The last seed of an arm has no size where its numbers exploded: the slopes of the others have, and its row."""
    slope = dataclasses.replace(experiment, compare=[{"slope": ["a", "b"]}])
    found = lines([4.0, 4.0, 4.0], [2.0, 2.5, 0.0])
    for line in found[3:]:
        line["parameters"] = 90
    found[2] = {"arm": "a", "seed": 2, "figure": None, "error": "loss is nan", "seconds": 1.0}
    told = results.summary(slope, [*found[2:3], *found[:2], *found[3:]], seeds=3)
    (each,) = told["comparisons"]
    assert each["missing"] == [2]
    assert each["by_seed"] == pytest.approx([np.log10(2 / 4), np.log10(2.5 / 4)])
    assert [arm["parameters"] for arm in told["arms"]] == [9, 90]
    assert results.summary(slope, [*found[:2], *found[3:], found[2]], seeds=3)["comparisons"] == [each]


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_holds_what_the_commands_take(name):
    found = recipes.find(name)
    assert found.minutes > 0
    assert len({work._folder(arm) for arm in found.arms}) == len(found.arms)
    assert all(len(work.runs(Path("lab"), arm, 0).parts) == 3 for arm in found.arms)
    assert found.figure["of"] in ("pretrain", "test")
    for arm in found.arms.values():
        own = dict(arm["data"])
        assert {own.pop("twin", "script"), arm.get("test", {}).get("twin", "script")} <= set(twin.KINDS)
        RecordsConfig(**own)
        settings = dict(arm["pretrain"])
        known = specs.leaves(shipped_model(settings.pop("model"))["spec"])
        if settings["steps"]:
            PretrainConfig(out="-", **settings)
        for path in settings.get("changes", {}):
            specs.check_path(path, known)
        assert (found.figure["of"] == "test") == ("finetune" in arm) == ("test" in arm)
        if "finetune" in arm:
            own = {key: value for key, value in arm["finetune"].items() if key not in ("task", "data", "rows")}
            FinetuneConfig(out="-", **own)
        if "distill" in arm:
            own = {key: value for key, value in arm["distill"].items() if key not in ("student", "unlabelled")}
            DistillConfig(out="-", **own)


def test_replaced_tokens_get_the_arithmetic_of_masked_ones():
    arithmetic = {}
    for name, arm in recipes.find("replaced").arms.items():
        settings = arm["pretrain"]
        family = registry.family(settings["model"].split("/")[0])
        spec = family.spec.derive({"embeddings.vocabulary": work.VOCABULARY, **settings["changes"]})
        tokens = float(settings["batch"] * arm["data"]["length"])
        networks = registry.objective(family.objective).networks(spec, 0.15 * tokens)
        update = sum(family_flops(family, each, tokens, settings["batch"], count) for each, count in networks)
        arithmetic[name] = settings["steps"] * update
    assert max(arithmetic.values()) < 1.01 * min(arithmetic.values())


def test_letters_are_written_backwards(tmp_path):
    work._write_reversed(tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "test.tsv").read_text().splitlines()]
    assert rows.pop(0) == ["source", "target"]
    assert len(rows) == work.REVERSED["test"]
    assert all(target == source[::-1] and 4 <= len(target.split()) <= 10 for source, target in rows)


def test_no_updates_are_new_weights_of_the_seed(tmp_path):
    train_wordpiece(["a few words to make pieces of"], 60).save(tmp_path / "tokenizer")
    settings = recipes.find("transformer").arms["1 layer"]["pretrain"]
    settings = settings | {"changes": settings["changes"] | {"hidden": 8, "feedforward.width": 8}}
    tables = []
    for number, seed in enumerate((1, 1, 2)):
        work._begin(tmp_path, tmp_path / str(number), settings, seed)
        tables.append(np.asarray(kerasbert.load(tmp_path / str(number)).weights[0]))
    assert np.array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


def test_a_student_is_distilled_by_the_command(monkeypatch):
    """What the recipe says is what the command is given; what it says at its end is the error."""
    asked = []

    def ended(command, **settings):
        asked.append(command)
        return subprocess.CompletedProcess(command, len(asked) - 1, "", "a warning\nerror: no such student\n")

    monkeypatch.setattr(work.measure.subprocess, "run", ended)
    settings = {"out": "small", "learning_rate": 1e-3, "changes": {"hidden": 8, "blocks.share": "all"}}
    work._distil(Path("large"), settings)
    assert asked[0][-5:] == [
        "large",
        "--set=hidden=8",
        '--set=blocks.share="all"',
        "--out=small",
        "--learning-rate=0.001",
    ]
    parser().parse_args(["distill", *asked[0][-5:], "--student=half", "--data=rows"])
    with pytest.raises(InputError, match="kerasbert-mobile distill: no such student"):
        work._distil(Path("large"), settings)


def test_a_recipe_with_a_mistake_is_refused():
    with pytest.raises(InputError, match="no key of a recipe 'claims'. Nearest: 'claim'"):
        recipes.read("two", RECIPE.replace("claim:", "claims:"))
    with pytest.raises(InputError, match="recipe two, arm 'b': no step 'train', expected data"):
        recipes.read("two", RECIPE.replace("b: {pretrain", "b: {train"))
    with pytest.raises(InputError, match="no arm 'c'"):
        recipes.read("two", RECIPE.replace("worse: b", "worse: c"))


def test_a_budget_scales_the_updates_of_every_arm_alike(experiment):
    assert plan.scale(experiment, 5, 2, None) == plan.scale(experiment, 5, 2, 100.0) == 1.0
    factor = plan.scale(experiment, 5, 2, 5.0)
    assert plan.estimate(experiment, 5, 2, factor) == pytest.approx(5.0)
    assert {arm["pretrain"]["steps"] for arm in experiment.scaled(factor).values()} == {round(100 * factor)}
    with pytest.raises(InputError, match="1.7 minutes leave less than a tenth of the updates of two with 5 seeds"):
        plan.scale(experiment, 5, 2, 1.7)


def test_arms_that_pretrain_alike_share_a_process():
    alike = plan.alike(recipes.find("transfer"))
    assert [len(arms) for arms in alike] == [6, 2]
    assert all(arm.startswith("scratch") for arm in alike[1])


def test_a_single_update_is_no_training_and_stays():
    arms = recipes.find("transfer").scaled(0.5)
    assert arms["scratch, 20"]["pretrain"]["steps"] == 1
    assert arms["LoRA, 20"]["pretrain"]["steps"] == recipes.find("transfer").arms["LoRA, 20"]["pretrain"]["steps"] / 2


def test_another_plan_in_the_folder_is_refused(experiment, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("a line\n")
    out = tmp_path / "lab"
    with pytest.raises(InputError, match="mine.txt has 6 characters, and an update of two reads 512 tokens"):
        plan.make("two", out, seeds=3, minutes=5.0, text=text)
    assert not out.exists()
    text.write_text("a line\n" * 100)
    begun = plan.make("two", out, seeds=3, minutes=5.0, text=text)
    assert plan.make("two", out, seeds=3, minutes=5.0, text=text).factor == begun.factor < 1
    assert (out / plan.TEXT).read_text() == "a line\n" * 100
    for said, change in (
        ("seeds", {"seeds": 4}),
        ("minutes", {"minutes": 6.0}),
        ("text", {"text": None}),
    ):
        with pytest.raises(InputError, match=f"was begun with another {said}"):
            plan.make("two", out, **{"seeds": 3, "minutes": 5.0, "text": text, **change})
    text.write_text("another line\n")
    with pytest.raises(InputError, match="was begun with another text. Choose another --out"):
        plan.make("two", out, seeds=3, minutes=5.0, text=text)
    (out / plan.MARKER).write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        plan.make("two", out, seeds=3)


def test_only_what_is_missing_is_run(experiment, tmp_path, monkeypatch):
    """A line that a kill cut off is run again; the others are kept as they are."""
    made = plan.make("two", tmp_path / "lab", seeds=2)
    kept = lines([2.0, 2.1], [3.0])
    whole = "".join(json.dumps(line) + "\n" for line in kept)
    (made.folder / plan.LINES).write_text(whole + '{"arm": "b", "se')
    asked = []

    def process(plan, seed, arms, *rest):
        asked.append((seed, arms.get("arms")))
        for arm in arms.get("arms", ()):
            yield json.dumps({"arm": arm, "seed": int(seed), "figure": 3.2, "parameters": 9, "seconds": 1.0})

    monkeypatch.setattr(runner, "_process", process)
    found = runner.run(made)
    assert asked == [("-", None), ("1", ["b"])]
    assert [arm["figures"] for arm in found["arms"]] == [{"0": 2.0, "1": 2.1}, {"0": 3.0, "1": 3.2}]
    assert runner.run(made) == found
    assert len(asked) == 2
    assert json.loads((made.folder / "results.json").read_text()) == json.loads(json.dumps(found))


def test_a_folder_has_one_run_at_a_time(experiment, tmp_path):
    made = plan.make("two", tmp_path / "lab", seeds=2)
    from kerasbert.storage import files

    with (made.folder / plan.MARKER).open("rb") as marker:
        files.lock(marker, "taken")
        with pytest.raises(InputError, match="another process runs the lab in"):
            runner.run(made)


def test_what_a_process_refuses_is_told(experiment, tmp_path, monkeypatch):
    made = plan.make("two", tmp_path / "lab", seeds=2)
    monkeypatch.setattr(runner, "WORK", "import sys; sys.exit('error: no room')")
    with pytest.raises(InputError, match="preparation: no room"):
        runner.run(made)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([2.0, 2.1, 2.2], [3.0, 3.2, 3.1], "seen"),
        ([3.0, 3.2, 3.1], [2.0, 2.1, 2.2], "opposite"),
        ([2.0, 3.0, 2.5], [2.5, 2.5, 2.5], "not seen"),
        ([2.0, 2.1, None], [3.0, 3.2, 3.1], "not seen"),
    ],
)
def test_verdicts_of_losses(experiment, a, b, expected):
    """Less is better; a seed without a figure leaves the claim undecided, and is told."""
    found = results.summary(experiment, lines(a, b), 3)
    assert found["verdict"] == expected
    assert found["comparisons"][0]["missing"] == ([2] if None in a else [])
    pairs = [(x, y) for x, y in zip(a, b) if None not in (x, y)]
    agree = sum(x < y for x, y in pairs)
    assert found["comparisons"][0]["agree"] == agree
    assert page.compared_rows(found)[0][2] == f"{agree} of {len(pairs)}"
    assert expected in (made := page.page(found))
    seeds = sum(value is not None for value in (*a, *b))
    assert made.count('r="3" fill="#fff"') == seeds
    assert 'aria-label="held_out/loss: means and intervals of a, b"' in made
    assert "a minus b" in page.text(found)


def test_a_size_is_judged_by_its_exponent(experiment):
    slope = dataclasses.replace(experiment, compare=[{"slope": ["a", "b"]}])
    rows = lines([4.0, 4.1, 4.2], [3.0, 3.1, 3.15])
    rows = [row | {"parameters": 1000 if row["arm"] == "a" else 9000} for row in rows]
    found = results.summary(slope, rows, 3)
    assert found["verdict"] == "seen"
    assert found["comparisons"][0]["by_seed"][0] == pytest.approx(intervals.exponent([1000, 9000], [4.0, 3.0]))


def test_every_comparison_bears_its_share_of_the_errors(experiment):
    two = dataclasses.replace(experiment, compare=[*experiment.compare, {"better": "b", "worse": "a"}])
    found = results.summary(two, lines([2.0, 2.1, 2.2], [3.0, 3.2, 3.1]), 3)
    assert [each["level"] for each in found["comparisons"]] == [0.975, 0.975]
    assert [each["verdict"] for each in found["comparisons"]] == ["seen", "opposite"]
    assert found["verdict"] == "in part"


def test_the_command_lists_and_prints(experiment, tmp_path, monkeypatch, capsys):
    made = plan.make("two", tmp_path / "lab", seeds=3)
    rows = lines([2.0, 2.1, 2.2], [3.0, 3.2, 3.1])
    (made.folder / plan.LINES).write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["lab", "two", "--out", str(tmp_path / "lab"), "--seeds", "3"]) == 0
    assert re.search(r"a minus b +-1\.0000 .* seen", capsys.readouterr().out)
    assert "http" not in (tmp_path / "lab/lab.html").read_text().replace("http-equiv", "")
    monkeypatch.undo()
    assert cli.main(["lab"]) == 0
    said = capsys.readouterr().out
    assert "ALBERT (Lan et al., 2020), table 4" in said
    assert said.endswith(f"kerasbert lab NAME --out DIR (2 cores, {recipes.SEEDS} seeds)\n")
    for name in recipes.names():  # the minutes that are listed are those that a run of the default tells
        found = recipes.find(name)
        assert re.search(rf"^{name} +{found.minutes:g} min ", said, re.MULTILINE)
        assert plan.estimate(found, recipes.SEEDS, 2) == pytest.approx(found.minutes)


def test_rows_are_drawn_by_the_seed(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tauthor\n" + "".join(f'"It is {i}," said "x\t{"ab"[i % 2]}\n' for i in range(40)))
    drawn = work.drawn_rows(path, "author", 5, 0)
    header, *rows = drawn.splitlines()
    assert header == "text\tauthor"
    assert sorted(row[-1] for row in rows) == ["a"] * 5 + ["b"] * 5
    assert set(rows) <= set(path.read_text().splitlines())
    assert work.drawn_rows(path, "author", 5, 0) == drawn != work.drawn_rows(path, "author", 5, 1)


FAKE = """
import json, sys
for arm in json.loads(sys.argv[3]).get("arms", ()):
    figure = (2.0 if arm == "a" else 3.0) + int(sys.argv[2]) / 8
    print(json.dumps({"arm": arm, "seed": int(sys.argv[2]), "figure": figure, "parameters": 9, "seconds": 1.0}))
"""


def test_seeds_run_in_processes(experiment, tmp_path, monkeypatch):
    made = plan.make("two", tmp_path / "lab", seeds=3)
    monkeypatch.setattr(runner, "WORK", FAKE)
    found = runner.run(made)
    assert [arm["figures"] for arm in found["arms"]] == [
        {"0": 2.0, "1": 2.125, "2": 2.25},
        {"0": 3.0, "1": 3.125, "2": 3.25},
    ]
    assert found["verdict"] == "not seen"  # the differences have no spread
    assert len((made.folder / plan.LINES).read_text().splitlines()) == 6


@pytest.mark.slow
def test_an_experiment_runs(experiment, tmp_path, monkeypatch):
    """Really, in this process: what children run, whose start is TensorFlow's import each."""
    from kerasbert.quickstart import books

    def process(plan, seed, asked, *rest):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            work.main(str(plan.folder), seed, json.dumps(asked), str(text))
        yield from said.getvalue().splitlines()

    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(chapter) for chapter in books.chapters("carroll")))
    monkeypatch.setattr(runner, "_process", process)
    made = dataclasses.replace(plan.make("two", tmp_path / "lab", seeds=2, text=text), processes=1)
    found = runner.run(made)
    kept = (made.folder / plan.LINES).read_text().splitlines()
    figures = [arm["figures"] for arm in found["arms"]]
    assert len(kept) == 4
    assert all(figures[0][seed] < figures[1][seed] for seed in "01")  # a is trained, b is not
