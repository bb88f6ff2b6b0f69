"""Several labels for a text, from a table to the phone."""

import csv
import io
import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.answers import MultiLabel
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.multi_label import best_threshold
from kerasbert.tasks.task import find_labels, find_task, read_rows
from kerasbert.training.splits import split
from tests import tiny
from tests.support import once


def rows(path, count, seed):
    """Texts with two labels, in both orders, or with none, told apart by one word."""
    header, *lines = tiny.labelled(path, count, seed).read_text().splitlines()
    cells = {"pos": ("liked|pos", "pos, liked"), "neg": ("", "")}
    texts = (line.split("\t") for line in lines)
    lines = [f"{text}\t{cells[label][i % 4 // 2]}" for i, (text, label) in enumerate(texts)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def run(pretrained, tmp_path_factory):
    def make(folder):
        data = {"train": rows(folder / "train.tsv", 400, 0), "dev": rows(folder / "dev.tsv", 80, 1)}
        settings = {"epochs": 6, "batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}
        kb.finetune(pretrained, "multi_label", data, out=folder / "run", **settings)

    return once(tmp_path_factory, "multi_label", make)[0] / "run"


@pytest.mark.slow
def test_it_learns_and_answers_with_sets(run, capsys):
    found = kb.evaluate(run, run.parent / "dev.tsv")
    assert found["metrics"]["f1_micro"] > 0.9
    assert list(found["labels"]) == ["liked", "pos"]
    assert found["labels"]["pos"].keys() == {"precision", "recall", "f1", "roc_auc", "rows"}
    model = kb.load(run)
    several, none = kb.predict(model, ["the happy cat", "a sad film"])
    assert isinstance(several, MultiLabel)
    assert (several.labels, none.labels) == (("liked", "pos"), ())
    assert list(several.scores) == ["liked", "pos"]
    # with the thresholds that the dev rows chose
    told = json.loads((run / "dev.json").read_text())
    assert told["metrics"] == pytest.approx(found["metrics"], abs=1e-5)
    assert main(["predict", str(run), "the happy cat", "a sad film"]) == 0
    liked, pos = several.scores.values()
    assert capsys.readouterr().out == f"liked {liked:.4f}, pos {pos:.4f}\n-\n"


@pytest.mark.slow
def test_a_table_gets_the_labels(run, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("text\nthe happy cat\n")
    assert main(["predict", str(run), "--data", str(tmp_path / "in.csv")]) == 0
    (row,) = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert row == {
        "text": "the happy cat",
        "labels": '["liked", "pos"]',
    }


@pytest.mark.full
def test_python_savedmodel_and_phone_answer_alike(run, tmp_path, monkeypatch):
    from kerasbert import mobile
    from kerasbert.mobile.pipeline import ledger
    from kerasbert.mobile.runtime import load

    texts = ["the happy cat", "a sad film", "a film", ""]
    expected = [answer.to_json() for answer in kb.predict(run, texts)]
    kb.export(run, tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    served = {name: value.numpy() for name, value in serve(text=tf.constant(texts)).items()}
    for i, answer in enumerate(expected):
        assert [label.decode() for label in served["labels"][i][: served["label_counts"][i]]] == answer["labels"]
        np.testing.assert_allclose(served["probabilities"][i], list(answer["scores"].values()), atol=1e-5)
    empty = serve(text=tf.constant([], tf.string))
    assert [value.shape[0] for value in empty.values()] == [0, 0, 0]
    report = mobile.compress(run, "dynamic_int8", tmp_path / "x.tflite", data=run.parent / "dev.tsv")
    assert report["agreement"] > 0.95
    runner = load(tmp_path / "x.tflite", cache=False)
    monkeypatch.setattr(ledger, "_times", lambda path, texts: dict.fromkeys(ledger.TIMES, 1.0))
    task, dev = ledger.labelled(run, run.parent / "dev.tsv")
    columns = [ledger.measure(file, task, dev)["f1_micro"] for file in (run, tmp_path / "x.tflite")]
    assert columns == pytest.approx([kb.evaluate(run, run.parent / "dev.tsv")["metrics"]["f1_micro"]] * 2, abs=0.02)
    received = [answer.to_json() for answer in runner(texts)]
    assert [answer["labels"] for answer in received] == [answer["labels"] for answer in expected]


def test_cells_of_labels(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [["b", "a"], "a, b", "b|a, x", '["a, x"]', "", [3]]
    path.write_text("".join(json.dumps({"text": "x", "label": line}) + "\n" for line in lines))
    task = find_labels(find_task("multi_label"), path)
    assert list(task.labels) == ["3", "a", "a, x", "b"]
    assert read_rows(task, path).targets.tolist() == [
        [0, 1, 0, 1],
        [0, 1, 0, 1],
        [0, 0, 1, 1],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    few = Task("t", kind="multi_label", labels={"a": "a"})
    with pytest.raises(InputError, match=r"a.jsonl, line 1: label 'b' is unknown. Expected one of: a"):
        read_rows(few, path)
    path.write_text('{"text": "x", "label": "[1"}\n')
    with pytest.raises(InputError, match=r"a.jsonl, line 1: '\[1' is no json list of labels"):
        find_labels(find_task("multi_label"), path)
    path.write_text('{"text": "x", "label": [["a"]]}\n')
    with pytest.raises(InputError, match=r"a.jsonl, line 1: \[\['a'\]\] are no labels, expected a list of texts"):
        find_labels(find_task("multi_label"), path)


def test_rows_in_memory_hold_lists():
    rows = [("the cat", ["a", "b"]), ("a dog", []), ("the film", "b")]
    for data in (rows, {"train": rows}, [dict(zip(("text", "label"), row)) for row in rows], (rows, rows)):
        known = split(find_task("multi_label"), data, dev=False)
        assert known.train.texts == ["the cat", "a dog", "the film"]
        assert known.train.targets.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_the_loss_is_torchs_mean_and_what_fills_up_weighs_nothing():
    # max(x, 0) - x y + log(1 + exp(-|x|)): log 2 at 0; of a row the mean
    kind, task = find("multi_label"), Task("t", kind="multi_label", labels={"a": "a", "b": "b"})
    batch = kind.batch(task, [], [np.array([1, 0])], 2, 0)
    assert batch["label_weight"].tolist() == [1, 0]
    losses = kind.losses(task, np.array([[0, 2.0], [5, 5]], "float32"), batch)
    assert float(losses["label"]) == pytest.approx((np.log(2) + 2 + np.log1p(np.exp(-2))) / 2)
    assert float(losses["label/accuracy"]) == 0.5
    assert float(kind.counts(batch)["label"]) == 1


def test_a_threshold_is_the_one_with_the_best_f1_nearest_to_a_half():
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.9])
    assert best_threshold(scores, scores > 0.15) == 0.15
    assert best_threshold(scores, scores > 0.35) == 0.35
    assert best_threshold(scores, scores > 0.8) == 0.5  # any between 0.4 and 0.9 is as good
    assert best_threshold(scores, scores > 1) == best_threshold(scores, scores < 1) == 0.5
    # all that are answered rightly and one wrongly (F1 4/5) is better than one of two (2/3)
    assert best_threshold(np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, False, True, False])) == 0.5


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7, 1e-20, 1e-34])
def test_a_threshold_of_any_scale_answers_what_it_was_chosen_for(scale):
    """Those of rare labels were rounded to 0.0, which every text reaches."""
    scores = np.float32(np.array([1e-2, 2e-2, 3e-2, 3.000001e-2, 0.4]) * scale)
    for count in range(1, 5):
        wanted = np.arange(5) >= count
        threshold = best_threshold(scores, wanted)
        kind = find("multi_label").answers.configured({"thresholds": json.loads(json.dumps([threshold]))})
        assert kind.chosen(scores[:, None])[:, 0].tolist() == wanted.tolist()


def test_a_threshold_between_two_neighbours_of_float32_is_the_upper_one():
    low = np.float32(1e-7)
    scores = np.array([low, np.nextafter(low, np.float32(1))], "float32")
    threshold = best_threshold(scores, np.array([False, True]))
    assert (scores >= np.float32(threshold)).tolist() == [False, True]
    assert best_threshold(np.float32([0.0, 0.0, 0.4]), np.array([True, True, False])) == 0.0  # every text, rightly


def test_agreement_is_the_share_of_equal_labels():
    kind = find("multi_label").answers.configured({"thresholds": [0.5, 0.2]})
    expected, received = [np.array([0.6, 0.3]), np.array([0.1, 0.1])], [np.array([0.9, 0.25]), np.array([0.1, 0.3])]
    assert kind.agreement(expected, received) == 0.75
    near = [np.array([0.6, 0.2001]), np.array([0.1, 0.1])]
    assert kind.agreement(near, [near[0] - [0, 2e-4], near[1]]) == 0.75
    assert kind.agreement(near, [near[0] - [0, 2e-4], near[1]], ties=True) == 1
    assert kind.agreement(expected, [np.array([np.nan, 0]), received[0]]) == 0.0
    with pytest.raises(InputError, match="2 thresholds, expected one for each of the 3 labels"):
        kind.chosen(np.zeros(3))
    logits = np.array([[-3.0, 0.5], [40.0, -90.0]], "float32")
    exported = find("multi_label").answers.probabilities(logits)
    back = find("multi_label").from_exported(list(exported))
    np.testing.assert_allclose(back[0], logits[0], rtol=1e-5)
    assert np.isfinite(back).all()
