"""Every page that a command writes, in headless Chromium: axe-core (WCAG) finds nothing at 1100 and 400 px, light and dark.

Nothing is wider than the window, and nothing is fetched. `PICTURES=FOLDER` keeps what was seen.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from kerasbert.cli import main
from kerasbert.lab import page, recipes, results
from tests.lab.test_lab import RECIPE, lines
from tests.mobile.native.tools import needed, npm

pytestmark = pytest.mark.native
KINDS = {  # task -> files of `kerasbert samples`, and what names their columns
    "classification": ("novels.csv", "novels-test.csv", "--label-column", "author"),
    "multi_label": ("tags.csv", "tags.csv", "--label-column", "labels"),
    "ner": ("entities/train.conll", "entities/dev.conll"),
    "squad": ("questions/train.json", "questions/dev.json"),
    "choice": ("choices.jsonl", "choices.jsonl"),
    "sts": ("pairs.csv", "pairs.csv"),
    "regression": (
        "pairs.csv",
        "pairs.csv",
        "--text-column",
        "sentence1",
        "--text-b-column",
        "sentence2",
        "--label-column",
        "score",
    ),
    "translation": ("translations.csv", "translations.csv"),
}


def command(*arguments: object) -> None:
    assert main([*map(str, arguments)]) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Samples, and an encoder that was hardly pretrained on them."""
    npm("playwright-core", "axe-core")
    needed("node", "chromium")
    folder = tmp_path_factory.mktemp("pages")
    command("samples", folder / "samples")
    command("vocab", folder / "samples/corpus.txt", "--size", 800, "--out", folder / "vocabulary")
    records = ("--tokenizer", folder / "vocabulary", "--length", 64, "--out", folder / "records")
    command("data", folder / "samples/corpus.txt", *records)
    command(
        "pretrain", "bert/tiny", "--data", folder / "records", "--steps", 20, "--batch", 16, "--out", folder / "bert"
    )
    return folder


def check(*paths: Path) -> None:
    """Nothing that axe-core or the width complains of, and nothing from elsewhere."""
    node, chromium = needed("node", "chromium")
    environment = {**os.environ, "KERASBERT_NPM": str(npm("playwright-core", "axe-core")), "CHROMIUM": chromium}
    run = [node, Path(__file__).parent / "accessibility.mjs", *paths]
    done = subprocess.run(run, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 4 * len(paths)
    wrong = [each for each in found if each["violations"] or each["outside"] or each["wider"] > 0]
    assert wrong == [], json.dumps(wrong)


@pytest.mark.parametrize("task", KINDS)
def test_the_report_of_a_run(folder, task):
    train, dev, *columns = KINDS[task]
    rows = ("--train", folder / "samples" / train, "--dev", folder / "samples" / dev, *columns)
    out = folder / task
    command("finetune", folder / "bert", "--task", task, *rows, "--steps", 12, "--out", out)
    command("report", out, "--out", folder / f"{task}.html")
    check(folder / f"{task}.html")


def test_marked_entities(folder):
    rows = ("--train", folder / "samples/spans.jsonl", "--dev", folder / "samples/spans.jsonl")
    command("finetune", folder / "bert", "--task", "ner", *rows, "--steps", 12, "--out", folder / "spans")
    data = ("--data", folder / "samples/entities/dev.conll")
    command("predict", folder / "spans", *data, "--out", folder / "marked.html")
    check(folder / "marked.html")


def test_a_look_at_a_model(folder):
    command("look", folder / "bert", "--out", folder / "look.html")
    check(folder / "look.html")


def test_an_experiment_of_the_lab(folder):
    found = results.summary(recipes.read("two", RECIPE), lines([2.0, 2.1, 2.2], [3.0, 3.2, None]), 3)
    (folder / "lab.html").write_text(page.page(found))
    check(folder / "lab.html")


def test_a_page_that_has_faults_is_found(folder, tmp_path):
    """The check can fail: no language, a picture without a name, grey on white, too wide."""
    faulty = '<img src="data:,"><p style="color:#bbb;width:3000px">grey</p>'
    (tmp_path / "faulty.html").write_text(faulty)
    with pytest.raises(AssertionError, match="html-has-lang"):
        check(tmp_path / "faulty.html")
