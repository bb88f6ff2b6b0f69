"""PALs: a set for each task beside one shared encoder; families, replicas, a run that goes on, exports."""

import dataclasses

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.layers.naming import names, values
from kerasbert.tasks.several import beside
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from tests import tiny
from tests.support import forked, often
from tests.training.test_several import QUICK, losses, rows_of_every_kind, weights

PALS = {"pals.width": 6, "pals.heads": 2}
FAMILIES = ("bert", "albert", "electra", "mobilebert")


def two_tasks(count: int = 12) -> dict:
    """A task of texts and one of tokens."""
    return {task: rows for task, rows in rows_of_every_kind(count).items() if task in ("classification", "ner")}


def test_an_encoder_beside_another_has_its_weights_in_memory():
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    other, third = beside(encoder, PALS), beside(encoder, PALS)
    shared, mine, theirs = names(encoder), names(other), names(third)
    inputs = {"token_ids": np.array([[2, 5, 6, 3]], "int32")}
    before = np.asarray(other(inputs)["sequence"])
    np.testing.assert_array_equal(before, encoder(inputs)["sequence"])
    assert all(mine[name].value is variable.value for name, variable in shared.items())
    shared["embeddings/tokens/table"].assign(np.ones(shared["embeddings/tokens/table"].shape))
    assert np.abs(np.asarray(other(inputs)["sequence"]) - before).max() > 1e-3
    np.testing.assert_array_equal(other(inputs)["sequence"], encoder(inputs)["sequence"])
    for name in mine.keys() - shared.keys():
        assert mine[name].value is not theirs[name].value
        if name.endswith("query/kernel"):
            assert np.abs(mine[name].numpy() - theirs[name].numpy()).max() > 0


@pytest.mark.parametrize(
    "family",
    often(("albert", "mobilebert", "bert", "electra"), "mobilebert"),
)
def test_every_family_trains_saves_and_goes_on(family, tmp_path, monkeypatch):
    from kerasbert.training.trainer import Trainer

    subject = battery.Subject(family, tmp_path, **{"blocks.layers": 2 if family == "albert" else 1})
    base, mine = tmp_path / "base", tiny.labelled(tmp_path / "mine.tsv", 30)  # whose dev rows are held out
    data = [(dataclasses.replace(find_task("classification"), name="mine"), mine), ("ner", two_tasks()["ner"])]
    kb.save(subject.encoder(), base)
    settings = {**QUICK, "changes": PALS, "save_every": 2, "steps": 4, "evaluate_every": 2, "learning_rate": 0.01}
    settings |= {"sampling": "annealed", "seed": 1}  # of both tasks in both halves
    evaluate, stops = Trainer._evaluate, [tmp_path / "stopped"]

    def stopping(self, judge, step):
        evaluate(self, judge, step)
        self._save(step)
        if self.run.directory in stops:
            stops.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_evaluate", stopping)
    with battery.eagerly():
        models = kb.finetune_tasks(base, data, out=tmp_path / "whole", **settings)
        with pytest.raises(KeyboardInterrupt):
            kb.finetune_tasks(base, data, out=tmp_path / "stopped", **settings)
        assert not (tmp_path / "stopped/tasks").exists()
        kb.finetune_tasks(base, data, out=tmp_path / "stopped", **settings)
    assert losses(tmp_path / "whole") == losses(tmp_path / "stopped")
    for run in (".", "tasks/mine", "tasks/ner"):
        one, other = weights(tmp_path / "whole" / run), weights(tmp_path / "stopped" / run)
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    shared = kb.load(tmp_path / "whole")
    assert shared.spec.pals.width == 0
    held = values(shared)
    for task, model in models.items():
        mine = values(model.encoder)
        assert (model.spec.pals.width, model.spec.pals.heads) == (6, 2)
        assert {name for name in mine if name not in held} == {name for name in mine if "/pal/" in name}
        for name, value in held.items():
            np.testing.assert_array_equal(mine[name], value)
        assert max(np.abs(mine[name]).max() for name in mine if name.endswith("/pal/up/kernel")) > 0
        assert kb.predict(tmp_path / "whole/tasks" / task, ["the cat"]) == kb.predict(model, ["the cat"])
    one, other = (values(model.encoder) for model in models.values())
    assert max(np.abs(one[name] - other[name]).max() for name in one if "/pal/" in name) > 0
    found = kb.evaluate(tmp_path / "whole/tasks/mine", tmp_path / "mine.tsv")
    assert found["rows"].endswith("held out of mine.tsv")
    with pytest.raises(InputError, match="holds another run: sampling is 'annealed' there, 'uniform' asked for"):
        kb.finetune_tasks(base, data, out=tmp_path / "whole", **settings | {"sampling": "uniform"})


@pytest.mark.slow
def test_a_frozen_encoder_stays_to_the_bit(tmp_path):
    base = tmp_path / "base"
    kb.save(battery.Subject("electra", tmp_path, **{"blocks.layers": 1}).encoder(), base)
    settings = {**QUICK, "changes": PALS, "steps": 2, "freeze": ["encoder"]}
    with battery.eagerly():
        models = kb.finetune_tasks(base, two_tasks(), out=tmp_path / "run", **settings)
    for name, value in weights(base).items():
        for held in (weights(tmp_path / "run"), *(values(model.encoder) for model in models.values())):
            np.testing.assert_array_equal(held[name], value)


def test_pals_on_pals_are_refused(tmp_path):
    base = battery.Subject("bert", tmp_path, **PALS).encoder()
    with pytest.raises(
        InputError, match="bert has PALs already, of one task: start from the model that it was made of"
    ):
        kb.finetune_tasks(base, two_tasks(), out=tmp_path / "run", changes=PALS, steps=2, **QUICK)
    assert not (tmp_path / "run").exists()


REPLICAS = """
import sys
from pathlib import Path
from kerasbert.training.strategy import strategy as make_strategy
strategy = make_strategy("cpu:2")
import numpy as np
from tests.training.test_pals import after_two_updates
found = {}
for family in sys.argv[3:]:
    after = after_two_updates(family, Path(sys.argv[1]), strategy)
    found |= {f"{family} {name}": value for name, value in after.items()}
np.savez(sys.argv[2], **found)
"""


def after_two_updates(family, folder, strategy) -> dict:
    """Weights after an update of each of two tasks."""
    import keras

    from kerasbert.tasks.base import Task
    from kerasbert.tasks.model import TaskObjective
    from kerasbert.tasks.several import TasksObjective, marked
    from kerasbert.training.optimizers import adamw
    from kerasbert.training.step import StepCore, distribute

    subject = battery.Subject(family, folder, **{"blocks.layers": 1})
    with strategy.scope():
        encoder = subject.encoder()
        keras.utils.set_random_seed(5)
        labels = {"a": "a", "b": "b"}
        tasks = {name: Task(name, kind, labels=labels) for name, kind in (("one", "classification"), ("two", "tags"))}
        programs = {name: TaskObjective(beside(encoder, PALS), task) for name, task in tasks.items()}
        program = TasksObjective(encoder, programs)
        optimizer = adamw(learning_rate=1e-3, steps=10)
    core = StepCore(program, optimizer, strategy)
    batch = subject.inputs(rows=4) | {"row": np.arange(4, dtype="int32")}
    label, weight = np.array([0, 1, 1, 0], "int32"), np.array([1, 1, 1, 0], "float32")  # uneven
    one = batch | {"label": label, "label_weight": weight}
    two = batch | {"label": np.tile(label[:, None], 9), "label_weight": np.tile(weight[:, None], 9)}
    for name, arrays in (("one", one), ("two", two)):
        core.step(distribute(marked(arrays, name, np.zeros(4, "int32")), strategy))
    return values(program.model)


@pytest.mark.parametrize(
    "families",
    [
        pytest.param(("bert",), marks=pytest.mark.slow),
        pytest.param(FAMILIES, marks=pytest.mark.full),
    ],
)
def test_two_replicas_give_the_weights_of_one(families, tmp_path):
    import tensorflow as tf

    forked("-c", REPLICAS, tmp_path, tmp_path / "two.npz", *families)
    two = np.load(tmp_path / "two.npz")
    for family in families:
        with battery.eagerly():
            one = after_two_updates(family, tmp_path, tf.distribute.get_strategy())
        assert any("/pal/" in name for name in one)
        for name, value in one.items():
            np.testing.assert_allclose(two[f"{family} {name}"], value, atol=2e-5, err_msg=f"{family} {name}")


@pytest.mark.full
def test_python_savedmodel_and_phone_answer_alike(tmp_path):
    import tensorflow as tf

    from kerasbert import mobile
    from kerasbert.mobile.runtime import load

    settings = {**QUICK, "changes": PALS, "steps": 6, "learning_rate": 0.05}
    encoder = battery.Subject("bert", tmp_path, **{"blocks.layers": 1}).encoder()
    with battery.eagerly():
        kb.finetune_tasks(encoder, two_tasks(), out=tmp_path / "run", **settings)
    run, texts = tmp_path / "run/tasks/classification", ["the happy cat", "", "a sad film . " * 9]
    scores = [answer.scores["pos"] for answer in kb.predict(run, texts)]
    kb.export(run, tmp_path / "serving")
    serve = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    np.testing.assert_allclose(serve(text=tf.constant(texts))["probabilities"][:, 1], scores, atol=1e-5)
    mobile.compress(run, "float32", tmp_path / "x.tflite")  # a Flex operator is refused
    found = [answer.scores["pos"] for answer in load(tmp_path / "x.tflite", cache=False)(texts)]
    np.testing.assert_allclose(found, scores, atol=1e-5)
