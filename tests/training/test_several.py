"""Several tasks in one run: every kind beside the others, one task alone, sampling, the command line, bad input."""

import dataclasses
import json
import math
import random

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from kerasbert.training import sampling
from tests import tiny

QUICK = {"batch": 6, "learning_rate": 1e-3, "length": 24, "log_every": 1, "quiet": True}


def rows_of_every_kind(count: int = 6, seed: int = 0) -> dict:
    """Task -> rows in memory, of a few words each."""
    draw, found = random.Random(seed), {}

    def words(most: int = 9) -> list[str]:
        return draw.choices(tiny.WORDS, k=draw.randint(2, most))

    texts = [words() for _ in range(count)]
    lines = [" ".join(text) for text in texts]
    found["classification"] = [(line, ("neg", "pos")[i % 2]) for i, line in enumerate(lines)]
    found["regression"] = [(line, float(len(line) + i % 3)) for i, line in enumerate(lines)]
    found["multi_label"] = [(line, ["long"] * (len(text) > 4) + ["the"]) for line, text in zip(lines, texts)]
    tags = [["B-X" if word in tiny.GOOD else "O" for word in text] for text in texts]
    tags[0] = ["B-X"] * len(texts[0])
    found["ner"] = [{"words": text, "tags": tag} for text, tag in zip(texts, tags)]
    found["span"] = [{"question": "who ?", "context": f"{line} cat", "answers": ["cat"]} for line in lines]
    found["span"] = [row for row in found["span"] if row["context"].count("cat") == 1] * 3
    found["choice"] = [
        {"context": line, "choices": ["good", "bad", "old"][: 2 + i % 2], "label": i % 2}
        for i, line in enumerate(lines)
    ]
    found["sts"] = [(line, " ".join(words()), float(i % 5)) for i, line in enumerate(lines)]
    return {task: {"train": rows, "dev": rows[:4]} for task, rows in found.items()}


def losses(run) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if "_per_" not in name} for line in lines if "loss" in line]


def weights(directory) -> dict:
    held = read_tensors(directory)
    return {name: held.read(name) for name in held.names()}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Directory of an encoder of one layer."""
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    encoder.tokenizer = tiny.tokenizer()
    folder = tmp_path_factory.mktemp("several") / "model"
    kb.save(encoder, folder)
    return folder


@pytest.mark.parametrize("updates", [3, pytest.param(20, marks=pytest.mark.full)])
def test_one_task_alone_is_finetune(base, tmp_path, updates):
    train, dev = tiny.labelled(tmp_path / "train.tsv", 60), tiny.labelled(tmp_path / "dev.tsv", 8, seed=1)
    data, settings = {"train": train, "dev": dev}, {**QUICK, "batch": 20, "seed": 3, "steps": updates}
    with battery.eagerly():
        kb.finetune(base, "classification", data, out=tmp_path / "one", **settings)
        models = kb.finetune_tasks(base, {"classification": data}, out=tmp_path / "several", **settings)
    one, several = losses(tmp_path / "one"), losses(tmp_path / "several")
    assert len(one) == updates
    assert [line["loss"] for line in several] == pytest.approx([line["loss"] for line in one], abs=1e-6)
    assert [line["classification/accuracy"] for line in several] == [line["label/accuracy"] for line in one]
    alone, mine = weights(tmp_path / "one"), weights(tmp_path / "several/tasks/classification")
    assert alone.keys() == mine.keys()
    assert max(np.abs(alone[name] - mine[name]).max() for name in alone) < 1e-5
    assert [*models] == ["classification"]
    told = [json.loads((tmp_path / run / "dev.json").read_text()) for run in ("one", "several/tasks/classification")]
    assert told[1]["metrics"] == pytest.approx(told[0]["metrics"], abs=1e-4)


@pytest.mark.slow
def test_every_kind_learns_beside_the_others(base, tmp_path, capsys):
    data = rows_of_every_kind()
    settings = {**QUICK, "epochs": 1, "learning_rate": 0.01, "warmup": 0, "quiet": False}
    with battery.eagerly():
        models = kb.finetune_tasks(base, data, out=tmp_path / "run", **settings)
        said = capsys.readouterr().err
        kb.finetune_tasks(base, data, out=tmp_path / "run", **settings)
    assert f"classification: 6 training rows, 1 of {len(losses(tmp_path / 'run'))} updates" in said
    assert "steps were made" in capsys.readouterr().err
    logged = losses(tmp_path / "run")
    tasks = [[task for task in data if task in line] for line in logged]
    assert all(len(task) == 1 for task in tasks), "the losses of other tasks are not logged"
    assert {task for (task,) in tasks} == set(data) == set(models)
    assert all(line["loss"] == line[task] for line, (task,) in zip(logged, tasks))
    (last,) = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if "dev/mean" in line
    ]
    own = {task: last[f"dev/{task}/{model.task.metric}"] for task, model in models.items()}
    assert last["dev/mean"] == pytest.approx(sum(own.values()) / len(own))
    # each is a model of its own, with the shared encoder
    shared = weights(tmp_path / "run")
    for task, model in models.items():
        run = tmp_path / "run/tasks" / task
        mine = weights(run)
        heads = {name: value for name, value in mine.items() if name.startswith("heads/")}
        assert bool(heads) == bool(model.heads)
        for name, value in mine.items():
            np.testing.assert_array_equal(value, shared[name.replace("heads/", f"heads/{task}/", 1)])
        found = kb.evaluate(run, {"dev": data[task]["dev"]})["metrics"]
        told = json.loads((run / "dev.json").read_text())["metrics"]  # with the thresholds that the dev rows chose
        assert found[model.task.metric] == pytest.approx(told[model.task.metric], abs=1e-5)
        assert model.task.options or told[model.task.metric] == own[task]
    assert kb.load(tmp_path / "run").spec == kb.load(base).spec  # the shared encoder, for what comes next
    text = " ".join(tiny.WORDS[:4])
    assert kb.predict(tmp_path / "run/tasks/ner", [text])[0].to_json()


def test_the_command_line_takes_a_data_for_each_task(base, tmp_path, capsys):
    rows, other = tiny.labelled(tmp_path / "a.tsv", 24), tmp_path / "b.tsv"
    other.write_text("text\tlabel\n" + "".join(f"{word} cat\t{i}\n" for i, word in enumerate(tiny.WORDS)))
    command = ["finetune", str(base), "--task", "classification", "--data", str(rows), "--task", "regression"]
    command += ["--data", str(other), "--steps", "2", "--batch", "4", "--out", str(tmp_path / "run"), "--quiet"]
    with battery.eagerly():
        assert main([*command, "--sampling", "square_root"]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "run/tasks" / task) for task in ("classification", "regression")
    ]
    for wrong, message in {
        ("--folds", "3"): "--folds is of one task, received several",
        ("--data", "x"): "2 tasks, 3 --data, expected --data PATH for each --task, in order",
        ("--sampling", "fair"): "no sampling 'fair'",
        ("--keep-head",): "keep_head is of one task, received several",
    }.items():
        assert main([*command, "--overwrite", *wrong]) == 2
        assert message in capsys.readouterr().err
    single = [
        "finetune",
        str(base),
        "--task",
        "classification",
        "--data",
        str(rows),
        "--out",
        str(tmp_path / "x"),
    ]
    assert main([*single, "--sampling", "uniform"]) == 2
    assert "--sampling is of several tasks, received one --task" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_learnt_together_is_refused_before_anything_is_written(base, tmp_path):
    rows = {"train": [("the cat", "x"), ("a dog", "y")] * 2, "dev": [("the cat", "x")]}
    none = {"train": [], "dev": [("the cat", "x")]}
    task = find_task("classification")
    for tasks, message in (
        ([], "no tasks, expected each with its data"),
        ("glue/sst2", "tasks hold 'g', expected each with its data"),
        ([(task, rows), (task, rows)], "two tasks are called 'classification', expected names of their own"),
        ([(dataclasses.replace(task, name="loss"), rows)], "a task is called 'loss', expected names of their own"),
        ({"classification": rows, "clasification": rows}, "no task 'clasification'. Nearest: 'classification'"),
        ({"classification": rows, "multi_label": none}, "the rows in memory are none, expected"),
        ({"classification": rows, "multi_label": rows}, "1 updates are too few for 2 tasks, expected one for each"),
    ):
        with pytest.raises(InputError, match=message):
            kb.finetune_tasks(base, tasks, out=tmp_path / "run", steps=1, **QUICK | {"batch": 4})
    assert list(tmp_path.iterdir()) == []


def test_tasks_are_drawn_as_the_papers_say():
    rows, batches = [9000, 900, 90], [282, 29, 3]
    epoch = sum(batches)
    order = sampling.task_order(rows, batches, 2 * epoch + 5, "proportional", 1)
    assert len(order) == 2 * epoch + 5
    for start in (0, epoch):
        assert np.bincount(order[start : start + epoch]).tolist() == batches  # every row once an epoch
    assert (order[:epoch] != order[epoch : 2 * epoch]).any()
    # an update's task depends on the seed and its number, not on how many follow
    np.testing.assert_array_equal(order[:epoch], sampling.task_order(rows, batches, epoch, "proportional", 1))
    steps = 100 * epoch
    for name, alpha in (("uniform", 0.0), ("square_root", 0.5)):
        shares = np.array(rows) ** alpha / (np.array(rows) ** alpha).sum()
        found = np.bincount(sampling.task_order(rows, batches, steps, name, 2)) / steps
        assert (np.abs(found - shares) < 3 * np.sqrt(shares * (1 - shares) / steps)).all()
    # Stickland and Murray, section 4.2: from N to N^0.2 over the epochs
    assert [sampling.exponent("annealed", epoch, 5) for epoch in range(5)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    assert sampling.exponent("annealed", 0, 1) == 1.0
    late = sampling.task_order(rows, batches, steps, "annealed", 2)[-epoch:]
    share = 9000**0.2 / sum(count**0.2 for count in rows)
    assert abs((late == 0).mean() - share) < 3 * math.sqrt(share * (1 - share) / epoch)
    for limit, temperature, odds in (
        (None, 1.0, [50, 20, 5]),
        (10, 1.0, [10, 10, 5]),
        (None, 2.0, [50**0.5, 20**0.5, 5**0.5]),
    ):
        found = sampling.task_order([50, 20, 5], [5, 2, 1], 6000, "temperature", 3, limit, temperature)
        np.testing.assert_allclose(np.bincount(found) / 6000, np.array(odds) / sum(odds), atol=0.02)  # 3 sigma
    assert sampling.earlier(np.array([2, 0, 2, 2])).tolist() == [0, 0, 1, 2]
