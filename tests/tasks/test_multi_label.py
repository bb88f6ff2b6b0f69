"""Several labels by hand and by trying: cells, targets, thresholds, what a constant answer reaches. No network."""

import dataclasses
import itertools
import types

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import labels, multi_label
from kerasbert.tasks.multi_label import best_threshold, split
from kerasbert.tasks.task import find_task
from tests.tasks import reports

KIND = multi_label.KIND
TASK = dataclasses.replace(find_task("multi_label"), label="tags", labels={name: name for name in ("a", "b", "c")})


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("a", ["a"]),
        ("a|b, c", ["a", "b, c"]),
        ("a, b ,", ["a", "b"]),
        ("", []),
        (" | ", []),
        ('["Albany, NY", " x "]', ["Albany, NY", "x"]),
        (["a", 1], ["a", "1"]),
        (("b",), ["b"]),
    ],
)
def test_labels_of_a_cell(cell, labels):
    assert split(cell, "a.csv", 2) == labels


@pytest.mark.parametrize("cell", ["[a", {"a": 1}, 3, [["a"]], [{"a": 1}]])
def test_what_is_no_list_of_labels(cell):
    with pytest.raises(InputError, match="is no json list of labels|are no labels, expected a list of texts"):
        split(cell, "a.csv", 2)


def test_targets_have_a_1_for_each_label_and_the_names_of_a_table():
    targets = KIND.targets(TASK, "a.csv", [2, 3, 4], ["b|a", "", "c"], [])
    assert (targets.tolist(), targets.dtype) == ([[1, 1, 0], [0, 0, 0], [0, 0, 1]], "float32")
    with pytest.raises(InputError, match="'d'"):
        KIND.targets(TASK, "a.csv", [2], ["d"], [])
    found = KIND.with_labels(dataclasses.replace(TASK, labels={}), "a.csv", [2, 3], ["z|b", "a"])
    assert [*found.labels] == ["a", "b", "z"]
    with pytest.raises(InputError, match="a.csv has no label in column 'tags'"):
        KIND.with_labels(dataclasses.replace(TASK, labels={}), "a.csv", [2], [""])
    batch = KIND.batch(TASK, None, targets[:2], 3, 8)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "label": [[1, 1, 0], [0, 0, 0], [0, 0, 0]],
        "label_weight": [1, 1, 0],
    }
    assert KIND.shown(TASK, "", targets[0], None, ["c"]) == ("a, b", "c")


def test_losses_are_means_over_the_labels_of_a_row():
    logits = np.array([[2.0, -1.0, 0.0], [0.5, 3.0, -4.0], [9.0, 9.0, 9.0]], "float32")
    batch = KIND.batch(TASK, None, np.array([[1, 0, 1], [1, 0, 0]], "float32"), 3, 8)
    found = KIND.losses(TASK, logits, batch)
    share = 1 / (1 + np.exp(-logits[:2].astype("float64")))
    wanted = batch["label"][:2]
    expected = -(wanted * np.log(share) + (1 - wanted) * np.log(1 - share)).mean(-1).sum()
    assert float(found["label"]) == pytest.approx(expected, rel=1e-6)
    assert float(found["label/accuracy"]) == pytest.approx(3 / 3 + 2 / 3)


def f1(answered, wanted):
    return 2 * (answered & wanted).sum() / max(1, answered.sum() + wanted.sum())


def test_the_threshold_is_the_best_of_all_and_of_equals_the_nearest_to_a_half():
    draw = np.random.default_rng(0)
    for _ in range(200):
        scores = np.round(draw.random(draw.integers(1, 9)), 1).astype("float32")
        wanted = draw.random(len(scores)) < 0.4
        found = best_threshold(scores, wanted)
        if wanted.all() or not wanted.any():
            assert found == 0.5
            continue
        places = np.linspace(0, 1, 41)
        reached = np.array([f1(scores >= np.float32(at), wanted) for at in places])
        assert f1(scores >= np.float32(found), wanted) == pytest.approx(reached.max())
        values = np.unique(scores.astype("float64"))
        tried = [0.5, values[0] / 2, *(values[1:] + values[:-1]) / 2]
        best = [at for at in tried if f1(scores >= np.float32(at), wanted) > reached.max() - 1e-9]
        assert abs(found - 0.5) == pytest.approx(min(abs(at - 0.5) for at in best), abs=1e-6)


def test_a_baseline_is_the_best_constant_answer():
    wanted = np.random.default_rng(0).random((40, 3)) < [0.7, 0.4, 0.1]
    found = KIND.baseline(TASK, wanted.astype("float32"), None)
    constants = [np.tile(each, (40, 1)) for each in itertools.product((False, True), repeat=3)]
    assert found["f1_micro"] == pytest.approx(max(f1(each, wanted) for each in constants))
    assert found["exact_match"] == pytest.approx(max((each == wanted).all(-1).mean() for each in constants))
    assert found["f1_macro"] == pytest.approx(np.mean([f1(np.ones(40, bool), column) for column in wanted.T]))


def test_answers_without_any_label_are_told():
    outputs, targets = np.full((4, 3), -3.0), np.eye(4, 3)
    assert KIND.collapsed(TASK, outputs, targets).startswith("none of the 4 answers has a label")
    assert KIND.collapsed(TASK, outputs + [[0], [0], [0], [9]], targets) == ""
    assert KIND.collapsed(TASK, outputs, 0 * targets) == KIND.collapsed(TASK, outputs[:1], targets[:1]) == ""
    found = KIND.judged(TASK, np.array([[3.0, -3, 3], [3, -3, -3]]), np.array([[1.0, 0, 0], [1, 0, 0]]), None)
    assert (found.answer(0), found.answer(1)) == (["a", "c"], ["a"])
    assert found.errors == pytest.approx([1 / (1 + np.exp(-3)), 0])


LOGITS = np.array([[3.0, -3, 3], [3, -3, -3], [-1, 2, -3], [-1, -2, 1]])
WANTED = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]], "float32")


def area(scores, wanted):
    return np.mean([(a > b) + 0.5 * (a == b) for a in scores[wanted] for b in scores[~wanted]])


def test_metrics_by_hand():
    """Answered: a c; a; b; c. Wanted: a; a; a b; c. Right: a twice, b, c."""
    found = KIND.metrics(TASK, LOGITS, WANTED)
    areas = [area(LOGITS[:, i], WANTED[:, i] > 0) for i in range(3)]
    share = 1 / (1 + np.exp(-LOGITS))
    assert found == pytest.approx(
        {
            "f1_micro": 2 * 4 / (5 + 5),
            "f1_macro": np.mean([2 * 2 / (2 + 3), 2 * 1 / (1 + 1), 2 * 1 / (2 + 1)]),
            "exact_match": 2 / 4,
            "roc_auc": np.mean(areas),
            "loss": -np.mean(WANTED * np.log(share) + (1 - WANTED) * np.log(1 - share)),
        }
    )
    told = KIND.details(TASK, LOGITS, WANTED)["labels"]
    assert told["a"] == pytest.approx(
        {"precision": 1.0, "recall": 2 / 3, "f1": 0.8, "roc_auc": areas[0], "rows": 3}, abs=1e-6
    )
    alone = KIND.metrics(TASK, LOGITS, np.ones((4, 3)))
    assert alone["roc_auc"] == 0.0
    mixed = KIND.metrics(TASK, LOGITS, np.concatenate([WANTED[:, :1], np.ones((4, 1)), np.zeros((4, 1))], 1))
    assert mixed["roc_auc"] == pytest.approx(areas[0])  # of the labels that some rows have and others have not
    sampled = KIND.judged(TASK, LOGITS, WANTED, None).sampled(np.arange(4))
    assert sampled == pytest.approx(found)


def test_thresholds_are_tuned_label_by_label_and_decide():
    tuned = KIND.tuned(TASK, LOGITS, WANTED, None)
    share = 1 / (1 + np.exp(-LOGITS))
    assert tuned.options["thresholds"] == [best_threshold(*each) for each in zip(share.T, WANTED.T > 0)]
    assert tuned.how.metrics(tuned, LOGITS, WANTED)["f1_macro"] >= KIND.metrics(TASK, LOGITS, WANTED)["f1_macro"]
    strict = TASK.optioned({"thresholds": [0.99, 0.5, 0.5]})
    assert strict.how.judged(strict, LOGITS, WANTED, None).answer(0) == ["c"]


def test_what_a_server_answers_is_as_wide_as_its_longest_list():
    model = types.SimpleNamespace(labels=("a", "b", "c"))
    found = KIND.exported(model, {"logits": LOGITS.astype("float32")}, {})
    np.testing.assert_allclose(found["probabilities"], 1 / (1 + np.exp(-LOGITS)), rtol=1e-5)
    assert found["labels"].numpy().tolist() == [[b"a", b"c"], [b"a", b""], [b"b", b""], [b"c", b""]]
    assert found["label_counts"].numpy().tolist() == [2, 1, 1, 1]
    edge = TASK.optioned({"thresholds": [0.5, 1.0, 1.0]}).how.exported(
        model, {"logits": np.zeros((1, 3), "float32")}, {}
    )
    assert edge["labels"].numpy().tolist() == [[b"a"]]  # a probability that equals its threshold reaches it
    assert all(f"`{name}`" in KIND.described() for name in found)
    assert KIND.pipeline_tag(TASK) == "text-classification"


def test_probabilities_of_a_phone_are_logits_again():
    share = (1 / (1 + np.exp(-LOGITS))).astype("float32")
    np.testing.assert_allclose(KIND.from_exported([*share]), LOGITS, atol=1e-4)
    ends = KIND.from_exported([np.array([0.0, 1.0], "float32")])
    assert np.isfinite(ends).all()
    assert ends[0, 0] < -60
    assert ends[0, 1] > 15


def test_a_label_beside_its_absence_and_what_is_explained():
    both = np.asarray(KIND.compared(TASK, LOGITS.astype("float32"), None))
    assert both.shape == (4, 3, 2)
    np.testing.assert_array_equal(both[..., 0], LOGITS)
    assert not both[..., 1].any()
    row, what, value = KIND.explained(TASK, None, LOGITS[:1], "b")
    assert (row, what, value(LOGITS).tolist()) == (0, "log-odds of b", LOGITS[:, 1].tolist())
    assert KIND.explained(TASK, None, LOGITS[2:3], None)[1] == "log-odds of b"
    assert KIND.unlabelled(TASK, ["x", "y"]).tolist() == [[0.0] * 3] * 2
    assert KIND.group(WANTED[2]) == (1, 1, 0)


def test_labels_of_columns_or_of_what_it_goes_on_from():
    bare = dataclasses.replace(TASK, labels={})
    columns = dataclasses.replace(bare, label="x,y")
    if len(columns.label_columns) == 2:
        assert KIND.with_labels(columns, "a.csv", [2], ["x"]).labels == {"x": "x", "y": "y"}
    assert KIND.with_labels(TASK, "a.csv", [2], ["x"]) is TASK
    assert KIND.continued(TASK, {"labels": {"x": "x"}}) is TASK
    assert KIND.continued(bare, {"labels": {"x": "x"}}).labels == {"x": "x"}
    train, dev = (types.SimpleNamespace(targets=targets) for targets in (WANTED, WANTED[:2]))
    assert KIND.absent(TASK, train, dev) == labels.absent(["b", "c"])
    many = [f"l{i}" for i in range(labels.MOST)]
    assert len(KIND.with_labels(bare, "a.csv", [2], [many]).labels) == labels.MOST
    with pytest.raises(InputError, match=f"has {labels.MOST + 1} different labels in column 'tags': is it the label"):
        KIND.with_labels(bare, "a.csv", [2], [[*many, "more"]])


def test_a_report():
    reports.check_report("multi_label")
    reports.check_baseline("multi_label")
    assert KIND.shown(TASK, "", WANTED[0] * 0, None, []) == (labels.NO_LABEL, labels.NO_LABEL)
