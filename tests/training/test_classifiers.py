"""What users of classifiers expect: weights of labels, smoothing, numbers by label, a metric of their own, folds."""

import json

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

import kerasbert as kb
from kerasbert import registry, run_report
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.task import Rows, find_task, fold, read_rows
from kerasbert.testing.battery import eagerly
from kerasbert.training.splits import measured, split
from tests import tiny
from tests.support import forgotten

# a tiny model's step takes less than its tracing; what tf.data does is still a graph
pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config")
LABELS = {"0": "no", "1": "yes"}


def task(**options):
    return Task("t", labels=LABELS, options=options)


def losses(task, logits, targets):
    """Loss and accuracy, as the step core divides them."""
    kind = task.how
    batch = kind.batch(task, [], targets, len(targets) + 1, 0)  # a row fills it up
    logits = np.array([*logits, [9.0, 9.0]], "float32")
    sums = {name: float(value) for name, value in kind.losses(task, logits, batch).items()}
    return [value / float(kind.counts(batch)["label"]) for value in sums.values()]


def test_class_weights_and_smoothing_by_hand():
    # errors of the targets 0, 0, 1: log(1 + e^-2), log(1 + e^2), log 2
    logits, targets = [[2, 0], [0, 2], [1, 1]], np.array([0, 0, 1])
    errors = np.array([np.log1p(np.exp(-2)), np.log1p(np.exp(2)), np.log(2)])
    assert losses(task(), logits, targets) == pytest.approx([errors.mean(), 1 / 3])
    # torch's: the sum of weighted errors over the sum of weights
    weighted = losses(task(class_weights={"yes": 3.0}), logits, targets)
    assert weighted == pytest.approx([errors @ [1, 1, 3] / 5, 1 / 5])
    # the mean of both labels' errors has a share of a tenth
    other = np.array([np.log1p(np.exp(2)), np.log1p(np.exp(-2)), np.log(2)])
    smooth = 0.9 * errors + 0.1 * (errors + other) / 2
    assert losses(task(label_smoothing=0.1), logits, targets)[0] == pytest.approx(smooth.mean())
    both = losses(task(class_weights={"0": 2.0}, label_smoothing=0.1), logits, targets)[0]
    assert both == pytest.approx(smooth @ [2, 2, 1] / 5)


def test_balanced_weights_are_scikit_learns():
    targets = np.array([0] * 7 + [1] * 2)
    found = find("classification").configured({"class_weights": "balanced"}).fitted(task(), "a.csv", targets)
    expected = compute_class_weight("balanced", classes=np.arange(2), y=targets)
    assert found.options == {"class_weights": dict(zip(("no", "yes"), expected))}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"class_weights": {"maybe": 2}}, r"class_weights are {'maybe': 2}, expected \"balanced\", or .* no, yes"),
        ({"class_weights": "even"}, "class_weights are 'even', expected \"balanced\""),
        ({"class_weights": {"no": -1}}, "a number of at least 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1. Received: 1.0"),
    ],
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(InputError, match=text):
        task(**options).how.fitted(task(**options), "a.csv", np.array([0, 1]))


def test_options_of_another_name_or_type_are_refused():
    with pytest.raises(InputError, match="no option of a classification 'class_weight'. Nearest: 'class_weights'"):
        task().optioned({"class_weight": {}})
    with pytest.raises(InputError, match="label_smoothing"):
        task().optioned({"label_smoothing": "much"})


def test_f1_of_the_positive_label_needs_two(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb,y\nc,z\n")
    with pytest.raises(InputError, match=r"f1_positive is of the second of two labels, .*a.csv has 3: take f1_macro"):
        read_rows(Task("t", labels={"x": "x", "y": "y", "z": "z"}, metric="f1_positive"), path)


def mistakes(outputs, targets):
    """Fewer are better, so they are negative."""
    return -float((outputs.argmax(-1) != targets).sum())


@pytest.fixture(scope="module")
def judged(pretrained, tmp_path_factory):
    """A run with the options, judged by a function of the user's own, evaluated every 4 updates."""
    folder = tmp_path_factory.mktemp("judged")
    data = {"train": tiny.labelled(folder / "train.tsv", 80), "dev": tiny.labelled(folder / "dev.tsv", 20, seed=1)}
    options = {"task.class_weights": "balanced", "task.label_smoothing": 0.1}
    settings = {"epochs": 2, "batch": 8, "learning_rate": 1e-2, "length": 16, "quiet": True, "changes": options}
    with forgotten(), eagerly():
        kb.finetune(
            pretrained, "classification", data, out=folder / "run", metric=mistakes, evaluate_every=4, **settings
        )
    return folder / "run"


@pytest.mark.slow
def test_a_metric_of_ones_own_chooses_the_best_weights(judged):
    lines = [json.loads(line) for line in (judged / "metrics.jsonl").read_text().splitlines()]
    values = {line["step"]: line["dev/mistakes"] for line in lines if "dev/mistakes" in line}
    assert list(values) == [4, 8, 12, 16, 20]
    told = json.loads((judged / "dev.json").read_text())
    assert told["metrics"]["mistakes"] == max(values.values())
    # elsewhere the function is not known: the other metrics are, and what needs it says so
    found = kb.evaluate(judged, judged.parent / "dev.tsv")["metrics"]
    assert "mistakes" not in found
    assert found["accuracy"] == pytest.approx(1 + told["metrics"]["mistakes"] / 20)
    with pytest.raises(InputError, match="no metric 'mistakes' for a classification.*register_metric in a --plugin"):
        find("classification").check_metric(kb.load(judged).task)
    with forgotten():
        registry.register_metric("accuracy", mistakes)
        with pytest.raises(
            InputError, match="'accuracy' is a metric of a classification already: give yours another name"
        ):
            find("classification").check_metric(task())
    with pytest.raises(InputError, match="has no name, which the run is to record"):
        registry.metric_name(lambda outputs, targets: 0.0)


def test_the_options_of_the_training_are_recorded(judged):
    known = json.loads((judged / "run.json").read_text())["settings"]["task"]["options"]
    assert known == {"class_weights": {"neg": 1.0, "pos": 1.0}, "label_smoothing": 0.1}


def test_numbers_by_label_and_the_confusion_are_shown(judged, capsys):
    assert main(["evaluate", str(judged), "--data", str(judged.parent / "dev.tsv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert np.sum(found["confusion"]) == 20
    assert [row["rows"] for row in found["labels"].values()] == np.sum(found["confusion"], 1).tolist() == [10, 10]
    assert main(["evaluate", str(judged), "--data", str(judged.parent / "dev.tsv")]) == 0
    out = capsys.readouterr().out
    assert "By label:\nlabel  precision  recall" in out
    assert "Confusion:\n" in out
    page = run_report.write(judged).read_text()
    assert "<h2>By label</h2>" in page
    told = json.loads((judged / "dev.json").read_text())["confusion"]
    shade = f"background:rgb(29 78 216/{0.03 * told[1][0]:.2f})"
    assert f'<th scope="row">pos</th><td style="{shade}">{told[1][0]}<span' in page


def test_folds_part_the_rows_by_the_data_alone():
    labels = np.repeat([0, 1], [40, 20])
    rows = Rows([str(i // 2) for i in range(60)], labels)  # every text twice
    folds = [fold(rows, i, 5) for i in range(5)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(60))
    assert [np.bincount(labels[numbers]).tolist() for numbers in folds] == [[8, 4]] * 5
    shuffled = np.random.default_rng(0).permutation(60)
    assert sorted(shuffled[fold(rows.take(shuffled), 2, 5)]) == folds[2].tolist()


@pytest.mark.slow
def test_cross_validation_trains_a_run_a_fold_and_goes_on(pretrained, tmp_path, capsys):
    path = tiny.labelled(tmp_path / "rows.tsv", 12)
    arguments = ["finetune", pretrained, "--task", "classification", "--data", path, "--folds", "2", "--batch", "6"]
    arguments += ["--epochs", "1", "--out", tmp_path / "cv", "--quiet"]
    with eagerly():
        assert main(list(map(str, arguments))) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    columns = ["accuracy", "f1_macro", "matthews", "loss", "roc_auc", "f1_positive"]
    assert lines[0].split() == ["classification,", "12", "rows", *columns]
    assert [line.split("  ")[0] for line in lines[1:]] == ["fold 1", "fold 2", "mean", "median", "standard deviation"]
    assert last == str(tmp_path / "cv")
    found = json.loads((tmp_path / "cv" / "folds.json").read_text())
    assert [each["rows"] for each in found["folds"]] == [6, 6]
    accuracies = [each["metrics"]["accuracy"] for each in found["folds"]]
    assert found["mean"]["accuracy"] == pytest.approx(np.mean(accuracies))
    assert found["standard_deviation"]["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    weights = tmp_path / "cv" / "fold_1" / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    (tmp_path / "cv" / "folds.json").unlink()
    assert kb.cross_validate(
        pretrained, "classification", path, folds=2, epochs=1, batch=6, out=tmp_path / "cv", quiet=True
    ) == found  # fmt: skip
    assert weights.stat().st_mtime_ns == before
    for folds, text in ((1, "folds must be a whole number of at least 2"), (13, "12 rows are too few for 13 folds")):
        with pytest.raises(InputError, match=text):
            kb.cross_validate(pretrained, "classification", path, folds=folds, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_folder_without_dev_rows_is_judged_by_a_tenth_that_is_held_out_and_says_so(tmp_path):
    tiny.labelled(tmp_path / "train.tsv", 40)
    known = split(find_task("classification"), tmp_path)
    assert len(known.dev.texts) == 4
    assert "4 rows are held out to choose the best weights (the same for every seed)" in known.lines[-1]
    with pytest.raises(
        InputError, match="has no dev or test rows: give a file; for the training rows pass --split train"
    ):
        measured(known.task, tmp_path)
