"""When a file is refused: the metric's interval, agreement, fidelity, on which rows; numbers made by hand, nothing is trained."""

import json

import numpy as np
import pytest

from kerasbert.errors import InputError

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def task():
    from kerasbert.tasks.base import Task

    return Task("t", labels={"0": "no", "1": "yes"})


def judged(task, targets, model, file, **more):
    """The report of a file whose probabilities of "yes" are these."""
    from kerasbert.mobile.judging import verdict

    rows = [np.stack([1 - np.asarray(each), each], 1).astype("float32") for each in (model, file)]
    found = verdict.compare(*rows, task.how, targets, task, ties=True)
    source = f"{len(model)} rows of dev.tsv"
    return (
        found | {"quantize": "dynamic_int8", "kind": "classification", "texts": len(model), "texts_from": source} | more
    )


def rows(count, seed=0):
    """Labels of some texts, and probabilities that are right for about nine of ten."""
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, 2, count)
    odds = (2 * targets - 1) * 2.0 + draw.normal(0, 1.6, count)
    return targets, odds, lambda values: 1 / (1 + np.exp(-values)), draw


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_a_file_within_its_rounding_passes_and_one_that_is_ruined_does_not(task, count):
    """On 20 rows too, where no metric says anything; a ruined head, a wrong scale, noise."""
    from kerasbert.mobile.judging import verdict

    targets, odds, share, draw = rows(count)
    good = judged(task, targets, share(odds), share(odds + draw.normal(0, 0.05, count)))
    verdict.check(good, task, None, None)
    assert good["fidelity"] > 0.995
    bad = {
        "another head": draw.normal(0, 2, count),
        "half the scale": odds / 2,
        "noise": odds + draw.normal(0, 1, count),
        "one label": np.full(count, 3.0),
        "nothing": np.full(count, np.nan),
    }
    for values in bad.values():
        report = judged(task, targets, share(odds), share(values))
        with pytest.raises(InputError, match=f"fidelity .*judged on {count} rows of dev.tsv: accuracy"):
            verdict.check(report, task, None, None)
        verdict.check(report, task, 0, None)  # whatever it is worth


def test_a_fall_that_can_be_told_from_chance_is_refused(task):
    """The interval lies below 0; the same number of losses and gains is no fall."""
    from kerasbert.mobile.judging import verdict

    targets = np.tile([0, 1], 200)
    model = np.where(targets, 0.9, 0.1)
    file = model.copy()
    file[::40] = 1 - file[::40]
    report = judged(task, targets, model, file)
    assert report["change"]["by"] == pytest.approx(-0.025)
    assert report["change"]["high"] < 0
    with pytest.raises(
        InputError, match=r"accuracy falls by more than chance. .*1.0000 -> 0.9750 \(-0.0250, 95% interval -0"
    ):
        verdict.check(report, task, 0.5, None)
    verdict.check(report, task, None, 3.0)  # a budget that was met
    wrong = model.copy()
    wrong[20::40] = 1 - wrong[20::40]  # the model's mistakes are others
    report = judged(task, targets, wrong, file)
    assert report["change"]["low"] < 0 < report["change"]["high"]
    assert not verdict.falls(report, task)


def test_an_error_that_grows_is_a_fall():
    from kerasbert.mobile.judging import verdict
    from kerasbert.tasks.base import Task

    task = Task("t", kind="regression", metric="mean_squared_error")
    x = np.random.default_rng(0).normal(size=(300, 1)).astype("float32")
    targets = x[:, 0] + 0.1
    found = verdict.compare(x, x - 0.1, task.how, targets, task)
    assert found["change"]["low"] > 0
    assert verdict.falls(found, task)
    assert not verdict.falls(verdict.compare(x, x + 0.1, task.how, targets, task), task)
    assert not verdict.falls(verdict.compare(x, x - 1e-5, task.how, targets, task), task)  # none
    assert found["offset"] == pytest.approx(0.1, abs=0.01)


def test_scores_that_are_all_off_are_refused_though_every_rank_is_right():
    from kerasbert.mobile.judging import verdict
    from kerasbert.tasks.base import Task

    task = Task("t", kind="regression", metric="spearman")
    x = np.random.default_rng(0).normal(size=(300, 1)).astype("float32")
    report = verdict.compare(x, x + 0.5, task.how, x[:, 0], task, ties=True) | {
        "quantize": "dynamic_int8",
        "kind": "regression",
    }
    with pytest.raises(
        InputError, match=r"all scores are off by 0.49 of their standard deviation, expected at most 0.3"
    ):
        verdict.check(report | {"texts": 300, "texts_from": "300 rows of dev.tsv"}, task, None, None)


def test_the_interval_holds_the_truth_in_19_of_20_sets():
    """Of the difference of two accuracies, on 500 sets of 200 rows."""
    from kerasbert.mobile.judging.verdict import jackknife

    draw, inside = np.random.default_rng(3), 0
    for _ in range(500):
        change = draw.choice([-1.0, 0, 1.0], 200, p=[0.08, 0.87, 0.05])
        low, high = jackknife(change.mean(), lambda out, change=change: np.delete(change, out).mean(), 200)
        inside += low <= -0.03 <= high
    assert 0.92 <= inside / 500 <= 0.98


def test_what_is_told(task):
    from kerasbert.mobile.judging import verdict
    from kerasbert.mobile.model_and_texts import MADE

    targets, odds, share, _ = rows(100)
    first, second = verdict.told(judged(task, targets, share(odds), share(odds), judged_seconds=3.2))
    assert first.startswith("judged on 100 rows of dev.tsv in 3 s: accuracy 0.")
    assert first.endswith("(+0.0000, 95% interval +0.0000 to +0.0000)")
    assert second.startswith(
        "against the Keras model: agreement 1.0000 (labels, ties within the file's rounding aside), fidelity 1.0000"
    )
    report = judged(task, None, share(odds), share(odds), texts_from=MADE, unlabelled="the rows were in memory")
    (first, _) = verdict.told(report)
    assert first == (
        "judged on 100 texts (generated from the vocabulary), without labels (the rows were in memory): they show whether the "
        "file computes what the model does, not what it is worth on your texts (--data)"
    )


@pytest.fixture
def fine_tuned(run, tmp_path):
    """A copy of the tiny classifier whose run.json names rows that it labelled itself, and the path of its dev rows."""
    import shutil

    from kerasbert.storage import files
    from kerasbert.tasks.predict import predict
    from tests.mobile.conftest import TEXTS

    folder, paths = tmp_path / "run", {}
    shutil.copytree(run, folder)
    texts = [f"{one} {two}" for one in TEXTS for two in TEXTS][:30]
    for split in ("train", "dev"):
        paths[split] = tmp_path / f"{split}.tsv"
        lines = [f"{text}\t{answer.label}" for text, answer in zip(texts, predict(run, texts))]
        paths[split].write_text("\n".join(["text\tlabel", *lines]) + "\n")
    hashes = {split: files.sha256(path) for split, path in paths.items()}
    described = {"format": 1, "kind": "finetune", "settings": {"steps": 1, "data": hashes}, "held_out": None}
    described["data"] = {split: str(path) for split, path in paths.items()}
    (folder / "run.json").write_text(json.dumps(described))
    return folder, paths["dev"]


def test_a_runs_own_dev_rows_are_judged_while_they_are_the_same(fine_tuned):
    from kerasbert.mobile import model_and_texts
    from kerasbert.tasks.load import load

    folder, dev = fine_tuned
    model = load(folder)
    cases, targets, told = model_and_texts.cases_of(model, False, None, None, 24, run=folder)
    assert (len(cases), len(targets), told) == (30, 30, "30 rows of dev.tsv")
    few, told = model_and_texts.own_rows(folder, model, 10)
    assert (few.texts, told) == (cases[::3], "10 of 30 rows of dev.tsv, evenly taken")
    with dev.open("a") as file:
        file.write("a film\t0\n")
    assert model_and_texts.missing(folder) == "the rows that run.json names are not there any more, or have changed"
    cases, targets, told = model_and_texts.cases_of(model, False, None, None, 24, run=folder)
    assert (len(cases), targets, told) == (200, None, model_and_texts.MADE)
    assert model_and_texts.missing(None) == "no run.json names rows of the task"


def test_long_rows_are_fewer(fine_tuned, monkeypatch):
    from kerasbert.mobile import model_and_texts
    from kerasbert.tasks.load import load

    folder, _ = fine_tuned
    monkeypatch.setattr(model_and_texts, "TOKENS", 60)
    monkeypatch.setattr(model_and_texts, "VOUCHING", 5)
    rows, told = model_and_texts.own_rows(folder, load(folder), 20)
    assert len(rows.texts) == 5
    assert told == "5 of 30 rows of dev.tsv, evenly taken"


@pytest.mark.slow
def test_compress_judges_a_run_on_its_dev_rows_and_writes_none_of_them(fine_tuned, tmp_path, monkeypatch):
    """At the defaults; a file whose head is another is refused, and nothing is written."""
    from kerasbert.mobile import compress
    from kerasbert.mobile.pipeline import compression

    folder, dev = fine_tuned
    report = compress(folder, out=tmp_path / "x.tflite", lengths=[24], golden=tmp_path / "x.golden")
    assert report["texts_from"] == "30 rows of dev.tsv"
    assert report["change"]["metric"] == "accuracy"
    assert report["fidelity"] > 0.98
    assert dev.read_text().splitlines()[1].split("\t")[0] not in (tmp_path / "x.golden").read_text()
    real = compression.convert.convert

    def other(model, *arguments):
        kernel = model.heads["classifier"].weights[0]
        kept = kernel.numpy()
        kernel.assign(np.random.default_rng(1).normal(0, kept.std(), kept.shape))
        made = real(model, *arguments)
        kernel.assign(kept)
        return made

    monkeypatch.setattr(compression.convert, "convert", other)
    with pytest.raises(InputError, match=r"fidelity .*judged on 30 rows of dev.tsv in \d+ s: accuracy 1.0000 -> "):
        compress(folder, out=tmp_path / "y.tflite", lengths=[24])
    assert not (tmp_path / "y.tflite").exists()
