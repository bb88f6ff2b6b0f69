"""Fine-tuning runs: rows and length that hold, numbers in their unit, more epochs."""

import json
import shutil

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.task import find_labels, find_task, held_out, read_rows
from kerasbert.testing.battery import eagerly
from kerasbert.training import runs
from tests import tiny

QUICK = {"batch": 20, "learning_rate": 1e-2}


def history(run) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def numbers(path, low: float, high: float, count: int = 120):
    """Texts with one number for good words and another for bad ones, give or take a tenth of their distance."""
    rows = [line.split("\t") for line in tiny.labelled(path, count).read_text().splitlines()[1:]]
    step = (high - low) / 10
    lines = [
        f"{text}\t{(high if label == 'pos' else low) + step * (i % 3 - 1)}" for i, (text, label) in enumerate(rows)
    ]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


@pytest.mark.slow
def test_the_rows_held_out_stand_in_the_run_and_are_what_evaluate_measures(pretrained, tmp_path, capsys):
    path, run = tiny.labelled(tmp_path / "my.tsv", 60), tmp_path / "run"
    kb.finetune(pretrained, "classification", path, out=run, epochs=2, length=8, seed=1, **QUICK)
    held = [int(number) for number in runs.description_of(run)["held_out"].split()]
    assert held == held_out(read_rows(find_labels(find_task("classification"), path), path)).tolist()
    said = capsys.readouterr().err
    assert f"{len(held)} rows are held out to choose the best weights (the same for every seed)" in said
    assert "train: " in said
    assert "have more than 8 tokens and are truncated" in said
    found = kb.evaluate(run, path)
    assert found["rows"] == f"{len(held)} rows held out of my.tsv"
    best = max((line for line in history(run) if "dev/accuracy" in line), key=lambda line: line["dev/accuracy"])
    assert {f"dev/{name}": value for name, value in found["metrics"].items()} == pytest.approx(
        {name: value for name, value in best.items() if name != "step"}, abs=1e-6
    )


def test_the_length_of_the_task_holds_unless_another_is_asked_for(classifier):
    model = kb.load(classifier)
    assert (model.task.length, model.spec.longest) == (16, 32)
    late = "the cat sees the dog and " * 3  # the word that tells comes after 16 tokens
    texts = [late + "good", late + "bad"]
    scores = [answer.scores["pos"] for answer in kb.predict(model, texts)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    longer = [answer.scores["pos"] for answer in kb.predict(model, texts, length=32)]
    assert longer[0] - longer[1] > 0.1
    rows = [(text, "pos") for text in [*texts, "the cat"]]
    found = kb.evaluate(model, rows)
    assert (found["rows"], found["length"], found["truncated"]) == ("3 rows of the rows in memory", 16, 2)
    assert "2 of 3 texts (66.7%) have more than 16 tokens and are truncated (--length)" in found["remarks"]
    assert (kb.evaluate(model, rows, length=32)["truncated"], kb.evaluate(model, rows, batch=1)["truncated"]) == (0, 2)
    with pytest.raises(InputError, match="length must be between 3 and 32, the model's positions. Received: 4096"):
        kb.evaluate(model, rows, length=4096)


@pytest.mark.slow
def test_a_regression_learns_and_answers_in_the_unit_of_its_targets(classifier, tmp_path):
    path, texts = numbers(tmp_path / "large.tsv", 1000, 2000), ["the good cat", "a bad dog"]
    run = tmp_path / "large"
    model = kb.finetune(classifier, "regression", path, out=run, epochs=2, quiet=True, **QUICK)
    found = kb.evaluate(model, path)["metrics"]
    assert found["pearson"] > 0.9
    assert found["mean_squared_error"] < 0.5 * 500**2  # half of the variance
    large = [answer.value for answer in kb.predict(model, texts)]
    assert large[0] > 1500 > large[1]
    # others' readers know no mean: the exported head is in the unit
    kb.export_checkpoint(run, tmp_path / "hf")
    kb.import_checkpoint(tmp_path / "hf", out=tmp_path / "back")
    assert [answer.value for answer in kb.predict(tmp_path / "back", texts)] == pytest.approx(large, rel=1e-5)


@pytest.mark.full
def test_the_unit_of_the_targets_changes_nothing_else_and_a_saved_model_has_unit_and_length(classifier, tmp_path):
    import tensorflow as tf

    found, models = [], []
    for name, low, high in (("small", 0, 1), ("large", 1000, 2000)):
        path, out = numbers(tmp_path / f"{name}.tsv", low, high), tmp_path / name
        models.append(kb.finetune(classifier, "regression", path, out=out, epochs=2, length=8, quiet=True, **QUICK))
        found.append(kb.evaluate(out, path)["metrics"])
    assert found[1]["pearson"] == pytest.approx(found[0]["pearson"], abs=1e-3)
    assert found[1]["mean_squared_error"] == pytest.approx(1e6 * found[0]["mean_squared_error"], rel=1e-2)
    texts = ["the good cat", "a bad dog"]
    small, large = ([answer.value for answer in kb.predict(model, texts)] for model in models)
    assert large == pytest.approx([1000 + 1000 * value for value in small], abs=1)
    kb.export(tmp_path / "large", tmp_path / "saved")
    texts = [*texts, "the cat sees the dog and the house " + "bad " * 8]
    large = [answer.value for answer in kb.predict(models[1], texts)]
    assert abs(large[2] - kb.predict(models[1], texts, length=32)[2].value) > 1
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    np.testing.assert_allclose(serve(text=tf.constant(texts))["value"].numpy(), large, rtol=1e-5)
    # a head that is kept goes on in its own unit, whatever the rows
    rows = [("the good cat", 3000.0), ("a bad dog", 1000.0)] * 10
    settings = {"steps": 1, "keep_head": True, "learning_rate": 0.0, "batch": 4, "quiet": True}
    kept = kb.finetune(
        tmp_path / "large", "regression", {"train": rows, "dev": rows}, out=tmp_path / "kept", **settings
    )
    assert [answer.value for answer in kb.predict(kept, texts)] == pytest.approx(large, rel=1e-5)


def test_a_head_that_is_kept_keeps_the_order_of_its_labels(classifier, tmp_path, capsys):
    """Checkpoints of others have any order; rows have that of their letters. A rate of 0 changes no answer."""
    shutil.copytree(classifier, run := tmp_path / "theirs", ignore=shutil.ignore_patterns("run.json", "checkpoints"))
    content = json.loads((run / "model.json").read_text())
    content["labels"] = ["pos", "neg"]  # the answers are turned round with it
    content["task"]["labels"] = {"pos": "pos", "neg": "neg"}
    del content["sha256"]
    (run / "model.json").write_text(json.dumps(content))
    path, settings = (
        tiny.labelled(tmp_path / "my.tsv", 30),
        {"steps": 1, "learning_rate": 0.0, "length": 16, "batch": 10},
    )
    with eagerly():
        model = kb.finetune(run, "classification", path, out=tmp_path / "kept", keep_head=True, **settings)
        assert model.labels == ("pos", "neg")
        (kept,), (theirs,), (before,) = (kb.predict(each, ["the good cat"]) for each in (model, run, classifier))
    assert kept.scores == pytest.approx(theirs.scores, abs=1e-6)
    assert theirs.scores["neg"] == pytest.approx(before.scores["pos"], abs=1e-6)
    assert "is left out" not in capsys.readouterr().err
    other = [(f"the cat {i}", ("great", "pos")[i % 2]) for i in range(40)]
    with pytest.raises(
        InputError, match="has the labels pos, neg, expected great, pos: leave keep_head out to train a new"
    ):
        kb.finetune(run, "classification", other, out=tmp_path / "other", keep_head=True, **settings)


def test_equal_targets_are_refused(pretrained, tmp_path):
    rows = [(f"text {i}", 5) for i in range(20)]
    with pytest.raises(InputError, match="all 20 numbers in column 'label' of the training rows are 5"):
        kb.finetune(pretrained, "regression", {"train": rows, "dev": rows}, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_more_epochs_say_how_the_rate_jumps_and_both_schedules_are_kept(pretrained, tmp_path, capsys):
    rows = [("the cat", "x"), ("the dog", "y")] * 8
    data = {"train": rows, "dev": [("the cat", "x"), ("a house", "x")]}  # in memory
    settings = {"batch": 4, "learning_rate": 1e-3}
    kb.finetune(pretrained, "classification", data, out=tmp_path / "run", epochs=1, **settings)
    said = capsys.readouterr().err
    assert "no dev row has the label 'y'" in said
    assert "dev, best weights: all 2 rows are labelled 'x': their metrics say little" in said
    assert "all 2 answers are" in said
    kb.finetune(pretrained, "classification", data, out=tmp_path / "run", epochs=2, **settings)
    # the 4th of 4 updates of a linear schedule to 0, then the 5th of 8
    said = capsys.readouterr().err
    assert "was to have 4 updates and now has 8: the learning rate goes from 0.0002 at update 4 to 0.000444 at" in said
    (entry,) = runs.description_of(tmp_path / "run")["history"]
    assert (entry["steps"], entry["until"]) == (4, 4)
    assert entry["learning_rates"] == pytest.approx([1e-3 / 5, 4e-3 / 9])
    kb.finetune(pretrained, "classification", data, out=tmp_path / "run", epochs=2, **settings)
    assert "is finished: 8 steps were made" in capsys.readouterr().err
    with pytest.raises(InputError, match="holds another run: the train rows in memory are not those of the run"):
        kb.finetune(pretrained, "classification", data | {"train": rows[1:]}, out=tmp_path / "run", **settings)


def test_a_command_does_not_load_what_it_has_written(pretrained, tmp_path, monkeypatch):
    path, run = tiny.labelled(tmp_path / "my.tsv", 20), tmp_path / "run"
    line = ["finetune", pretrained, "--task", "classification", "--data", path, "--steps", 1, "--quiet", "--out", run]
    with monkeypatch.context() as patch:
        patch.setattr("kerasbert.training.job.load", lambda folder: pytest.fail(f"{folder} is loaded"))
        assert [main([str(word) for word in line]) for _ in range(2)] == [0, 0]  # trained, and finished before
    assert kb.finetune(pretrained, "classification", path, steps=1, quiet=True, out=run).task.name == "classification"


def test_predict_takes_what_holds_texts(classifier):
    class Frame:
        columns = ("id", "text")

        def __getitem__(self, name):
            return {"id": [1, 2], "text": ["the good cat", "a bad dog"]}[name]

    model = kb.load(classifier)
    expected = [answer.score for answer in kb.predict(model, ["the good cat", "a bad dog"])]
    assert [answer.score for answer in kb.predict(model, Frame(), batch=1)] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InputError, match="text 1 is a float, expected str"):
        kb.predict(model, ["x", float("nan")])
    Frame.columns = ("id", "review")
    with pytest.raises(InputError, match="the DataFrame has no column 'text'. It has: id, review"):
        kb.predict(model, Frame())
