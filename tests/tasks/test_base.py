"""A task as a value, and what every kind does that says nothing else."""

import types

import numpy as np
import pytest

from kerasbert import answers, registry
from kerasbert.errors import InputError
from kerasbert.tasks import base
from kerasbert.tasks.base import Task, TaskKind, find, kind_of


class Plain(TaskKind):
    """Nothing of its own but a name."""

    name = "classification"


PLAIN = Plain()


def test_a_task_there_and_back_and_what_stands_at_its_default_is_left_out():
    bare = Task("t")
    told = bare.to_json()
    left_out = {"length", "mean", "std", "settings", "reader", "files", "options", "layers", "auxiliary_lm"}
    assert not left_out & told.keys()
    assert (told["inputs"], Task.from_json(told)) == ("text", bare)
    full = Task(
        "t", text_b="b", length=7, mean=1.0, std=2.0, settings={"language": "en"}, layers="mix", auxiliary_lm=0.5
    )
    assert left_out - full.to_json().keys() == {"reader", "files", "options"}
    assert (full.to_json()["inputs"], Task.from_json(full.to_json())) == ("pair", full)
    imported = Task.from_json({"kind": "regression", "inputs": "pair", "strange": 1})
    assert (imported.name, imported.kind, imported.text_b, imported.pair) == (
        "regression",
        "regression",
        "text_b",
        True,
    )
    assert Task.from_json({"inputs": "text"}).name == "classification"


def test_columns_and_parts_of_a_task():
    pair = Task("t", text="a", text_b="b", label="c")
    assert (pair.parts, pair.asked, pair.pair, pair.columns) == (("a", "b"), ("a", "b"), True, ["a", "b", "c"])
    vector = Task(
        "t", kind="vector", text="a", text_b="b", label="c", options={"loss": "cosine"}
    )  # answers one text, learns of two
    assert (vector.parts, vector.asked, vector.pair) == (("a", "b"), ("a",), False)
    assert Task("t", text="a", label="").columns == ["a"]
    assert Task("t", kind="of a plug-in", text="a", text_b="b").asked == ("a", "b")


def test_settings_and_options_of_a_call():
    task = Task("t", settings={"language": "en"})
    assert task.called_with() is task
    assert task.called_with(language=None) is task
    assert task.called_with(language="fr", other="x").settings == {"language": "fr", "other": "x"}
    assert task.optioned({}) is task
    assert task.optioned({"label_smoothing": 0.1}).optioned({"label_smoothing": 0.2}).options == {
        "label_smoothing": 0.2
    }
    with pytest.raises(InputError, match="no option of a classification 'label_smooth'. Nearest: 'label_smoothing'"):
        task.optioned({"label_smooth": 0.1})
    learned = Task("t", kind="vector")
    assert learned.answering({"normalize": True}).options == {"normalize": True}
    with pytest.raises(InputError, match="loss is an option of training alone, and the model is trained: leave it out"):
        learned.answering({"loss": "cosine"})


def test_a_metric_of_ones_own_is_measured_beside_the_kinds(monkeypatch):
    monkeypatch.setitem(registry.METRICS.rows, "always", lambda outputs, targets: len(targets))
    outputs, targets = np.eye(2), np.array([0, 1])
    named = Task("t", labels={"a": "a", "b": "b"}, metric="always")
    assert named.measured(outputs, targets)["always"] == 2.0
    assert "always" not in Task("t", labels=named.labels).measured(outputs, targets)
    assert Task("t", labels=named.labels, metric="accuracy").measured(outputs, targets)["accuracy"] == 1.0


def test_a_tolerance_is_in_the_unit_of_the_answers():
    assert Task("t").rounding(1e-3) == 1e-3
    assert Task("t", mean=-50.0, std=4.0).rounding(1e-3) == pytest.approx(4e-3 + 5e-5)


def test_what_a_kind_does_that_says_nothing_else():
    task, targets = Task("t", labels={"a": "a", "b": "b"}), np.array([1, 0])
    for method in ("with_labels", "fitted", "continued", "imported", "started"):
        more = {"with_labels": ("x", [], []), "fitted": ("x", targets)}.get(method, ({},))
        assert getattr(PLAIN, method)(task, *more) is task, method
    assert PLAIN.settled(task, {}) is task
    assert PLAIN.tuned(task, None, None, None) is task
    assert (PLAIN.told("x", None), PLAIN.absent(task, None, None)) == ([], [])
    assert (PLAIN.group(3), PLAIN.begin, PLAIN.goes_on({}), PLAIN.whole) == (3, 0, (), ())
    assert PLAIN.scaled(task, targets) is targets
    assert PLAIN.begun(task, "encoder", None) == PLAIN.network("encoder", {}) == "encoder"
    assert PLAIN.unlabelled(task, "abc").tolist() == [0, 0, 0]
    assert (PLAIN.details(task, None, None), PLAIN.baseline(task, None, None)) == ({}, {})
    assert PLAIN.shown(task, None, None, 5, 7) == ("5", "7")
    with pytest.raises(InputError, match="a classification is no single number to explain"):
        PLAIN.explained(task, None, None, None)
    for method, arguments in (
        ("targets", "xxxxx"),
        ("batch", "xxxxx"),
        ("heads", "xx"),
        ("metrics", "xxx"),
        ("of_examples", "xx"),
    ):
        with pytest.raises(NotImplementedError):
            getattr(PLAIN, method)(*arguments)


def test_losses_and_counts_of_labels():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [5.0, 0.0]], "float32")
    batch = {"label": np.array([0, 0, 1]), "label_weight": np.array([1, 1, 0], "float32")}
    expected = np.log(1 + np.exp(-2)) + np.log(1 + np.exp(1))
    model = types.SimpleNamespace(declaration=None, heads={}, logits=lambda outputs, inputs, training: logits)
    for found in (PLAIN.losses(None, logits, batch), PLAIN.losses_of(model, logits, batch)):
        assert float(found["label"]) == pytest.approx(expected, rel=1e-6)
        assert float(found["label/accuracy"]) == 1.0
    assert float(PLAIN.counts(batch)["label"]) == 2.0
    assert PLAIN.outputs(None, logits) == {"logits": logits}
    assert PLAIN.compared(None, logits, batch) is logits
    assert PLAIN.trained(model, None, None) is logits
    assert PLAIN.logits(model, logits, None) is logits
    headed = types.SimpleNamespace(heads={"classifier": lambda read, training: (read, training)})
    assert PLAIN.logits(headed, 3, None, training=True) == (3, True)


def test_outputs_of_a_file_are_logits_again():
    probabilities = [np.array([0.25, 0.75]), np.array([0.0, 1.0])]
    found = PLAIN.from_exported(probabilities)
    np.testing.assert_allclose(found, np.log(np.maximum(probabilities, 1e-30)))
    vector = find("vector")
    assert TaskKind.from_exported(vector, probabilities) is probabilities
    rows = find("tags").from_exported([np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]] * 3)])
    assert [each.shape for each in rows] == [(1, 2), (3, 2)]


def test_which_readout_a_kind_has():
    encoder = types.SimpleNamespace(readout="mean")
    assert PLAIN.readout(Task("t"), encoder) == "mean"
    assert TaskKind.readout(find("tags"), Task("t"), encoder) is None


def test_kinds_are_found_by_name_and_registered_once(monkeypatch):
    monkeypatch.setattr(base, "_MAKERS", {})
    monkeypatch.setattr(base, "_KINDS", dict(base._KINDS))
    monkeypatch.setitem(answers.KINDS, "mine", answers.Kind())
    with pytest.raises(InputError, match="no kind of task 'tag'. Nearest: 'tags'"):
        find("tag")
    with pytest.raises(InputError, match="the kind 'tags' is registered already"):
        base.register("tags", Plain)
    with pytest.raises(InputError, match=r"no kind of answer 'yours'.*answers.register it first. Registered: "):
        base.register("yours", Plain)
    with pytest.raises(InputError, match="the kind 'mine' is registered with 3, expected a function that makes"):
        base.register("mine", types.SimpleNamespace(__qualname__="x") and 3)
    base.register("mine", Plain)
    first = find("mine")
    assert isinstance(first, Plain)
    assert find("mine") is first
    base.register("mine", Plain)  # the same file, run once more
    assert find("mine") is not first
    with pytest.raises(InputError, match="the kind 'mine' is registered already"):
        base.register("mine", lambda: None)


def test_the_kind_of_a_model():
    headed = types.SimpleNamespace(heads={}, task=Task("t", kind="regression"))
    assert kind_of(headed).name == "regression"
    assert kind_of(types.SimpleNamespace(heads={})).name == "vector"
    assert kind_of(types.SimpleNamespace(task=headed.task)).name == "vector"
