"""Several labels by hand and by trying: cells, targets, thresholds, what a constant answer reaches. No network."""

import dataclasses
import itertools

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import multi_label
from kerasbert.tasks.multi_label import best_threshold, split
from kerasbert.tasks.task import find_task

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
