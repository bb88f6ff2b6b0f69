"""Our metrics equal scikit-learn's and scipy's; where theirs are undefined, ours are 0."""

import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as theirs

from kerasbert.answers.base import softmax
from kerasbert.tasks import classification, metrics, multi_label, regression
from kerasbert.tasks.base import Task

EXACT = {"rel": 0, "abs": 1e-12}


def task(labels, metric="f1_macro"):
    return Task("t", labels={str(i): f"label {i}" for i in range(labels)}, metric=metric)


def cases(count=40):
    """Random logits and targets: ties, labels that never occur or are never answered, a few rows or many."""
    draw = np.random.default_rng(0)
    for number in range(count):
        labels, rows = int(draw.integers(2, 6)), int(draw.integers(2, 60))
        logits = draw.normal(size=(rows, labels)) if number % 2 else draw.integers(-2, 3, (rows, labels))
        # the scores of ties are equal in single precision too
        yield logits.astype("float32"), draw.integers(0, max(1, labels - number % 3), rows)


@pytest.fixture(autouse=True)
def quiet():
    """scikit-learn and scipy warn of what is undefined; ours must not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def with_warnings(function, *arguments, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **settings)


def test_metrics_of_labels_equal_scikit_learns():
    kind = classification.KIND
    for logits, targets in cases():
        labels, predicted = list(range(logits.shape[1])), logits.argmax(-1)
        found = kind.metrics(task(len(labels)), logits, targets)
        scores = with_warnings(theirs.f1_score, targets, predicted, average="macro", zero_division=0)
        assert found["f1_macro"] == pytest.approx(scores, **EXACT)
        assert found["accuracy"] == pytest.approx(theirs.accuracy_score(targets, predicted), **EXACT)
        expected = with_warnings(theirs.matthews_corrcoef, targets, predicted)
        assert found["matthews"] == pytest.approx(expected, **EXACT)
        probabilities = softmax(logits.astype("float64"))
        expected = with_warnings(theirs.log_loss, targets, probabilities, labels=labels)
        assert found["loss"] == pytest.approx(expected, **EXACT)
        if len(labels) == 2:
            expected = with_warnings(theirs.f1_score, targets, predicted, pos_label=1, zero_division=0)
            assert found["f1_positive"] == pytest.approx(expected, **EXACT)


def test_what_is_told_of_each_label_equals_scikit_learns():
    kind = classification.KIND
    for logits, targets in cases():
        labels, predicted = list(range(logits.shape[1])), logits.argmax(-1)
        found = kind.details(task(len(labels)), logits, targets)
        assert found["confusion"] == theirs.confusion_matrix(targets, predicted, labels=labels).tolist()
        per_label = theirs.precision_recall_fscore_support(targets, predicted, labels=labels, zero_division=0)
        for i, row in enumerate(found["labels"].values()):
            names = ("precision", "recall", "f1", "rows")
            assert [row[name] for name in names] == pytest.approx([column[i] for column in per_label], **EXACT)
            # of two labels the same number for both, as scikit-learn's of the positive one
            scores = softmax(logits.astype("float64"))[:, i]
            if 0 < (targets == i).sum() < len(targets):
                assert row["roc_auc"] == pytest.approx(theirs.roc_auc_score(targets == i, scores), **EXACT)
            else:
                assert row["roc_auc"] == 0.0


def test_roc_auc_of_several_labels_is_one_against_the_rest():
    draw = np.random.default_rng(1)
    for labels in (2, 3, 5):
        logits, targets = draw.normal(size=(50, labels)).astype("float32"), np.arange(50) % labels
        found = classification.KIND.metrics(task(labels, "roc_auc"), logits, targets)["roc_auc"]
        scores = softmax(logits.astype("float64"))
        scores, settings = (scores[:, 1], {}) if labels == 2 else (scores, {"multi_class": "ovr"})
        assert found == pytest.approx(theirs.roc_auc_score(targets, scores, **settings), **EXACT)


def test_correlations_equal_scipys():
    draw, kind = np.random.default_rng(2), regression.KIND
    for number in range(40):
        rows = int(draw.integers(2, 50))
        x, y = (draw.integers(0, 5, rows) if number % 2 else draw.normal(size=rows) for _ in range(2))
        x, y = x.astype("float32"), y.astype("float32")
        found = kind.metrics(Task("t", kind="regression"), x, y)
        constant = len(set(x)) == 1 or len(set(y)) == 1
        assert found["pearson"] == pytest.approx(
            0 if constant else stats.pearsonr(*map(np.float64, (x, y)))[0], **EXACT
        )
        assert found["spearman"] == pytest.approx(0 if constant else stats.spearmanr(x, y)[0], **EXACT)
        expected = theirs.mean_squared_error(y.astype("float64"), x.astype("float64"))
        assert found["mean_squared_error"] == pytest.approx(expected, **EXACT)


def test_constant_answers_give_0_and_no_warning():
    targets = np.array([0, 1, 1, 0])
    found = classification.KIND.metrics(task(2), np.zeros((4, 2), "float32"), targets)
    assert (found["f1_positive"], found["matthews"], found["roc_auc"]) == (0, 0, 0.5)
    alone = classification.KIND.metrics(task(2), np.zeros((4, 2), "float32"), np.zeros(4, int))
    assert (alone["matthews"], alone["roc_auc"], alone["f1_positive"]) == (0, 0, 0)
    assert metrics.pearson(np.full(10, 0.1), np.arange(10)) == 0.0  # the mean of ten 0.1 is not 0.1
    assert metrics.spearman(np.arange(3), np.ones(3)) == 0.0
    for rows in (targets, np.zeros(4)):
        found = regression.KIND.metrics(Task("t", kind="regression"), np.full(4, 0.1, "float32"), rows)
        assert (found["pearson"], found["spearman"]) == (0, 0)
    no = multi_label.KIND.metrics(Task("t", kind="multi_label"), np.full((4, 3), -1.0), np.zeros((4, 3)))
    assert (no["f1_micro"], no["f1_macro"], no["exact_match"]) == (0, 0, 1)


def test_metrics_of_several_labels_equal_scikit_learns():
    kind, draw = multi_label.KIND, np.random.default_rng(3)
    for number in range(30):
        labels, rows = int(draw.integers(1, 6)), int(draw.integers(2, 40))
        logits = draw.normal(size=(rows, labels)).astype("float32")
        targets = (draw.random((rows, labels)) < 0.2 * (number % 5)).astype("float32")
        several = Task("t", kind="multi_label", labels={str(i): str(i) for i in range(labels)}, metric="f1_micro")
        found, predicted = kind.metrics(several, logits, targets), (logits >= 0).astype("float32")
        settings = {"zero_division": 0, "labels": list(range(labels))}
        for average in ("micro", "macro"):
            if labels > 1:
                expected = with_warnings(theirs.f1_score, targets, predicted, average=average, **settings)
                assert found[f"f1_{average}"] == pytest.approx(expected, **EXACT)
        assert found["exact_match"] == pytest.approx(np.mean((targets == predicted).all(1)), **EXACT)
        probabilities = 1 / (1 + np.exp(-logits.astype("float64")))
        losses = [
            with_warnings(theirs.log_loss, targets[:, i], probabilities[:, i], labels=[0, 1]) for i in range(labels)
        ]
        assert found["loss"] == pytest.approx(np.mean(losses), rel=0, abs=1e-9)
        told = list(kind.details(several, logits, targets)["labels"].values())
        columns = theirs.precision_recall_fscore_support(targets, predicted, zero_division=0, average=None)
        if labels > 1:
            for i, name in enumerate(("precision", "recall", "f1", "rows")):
                assert [row[name] for row in told] == pytest.approx(columns[i].tolist(), **EXACT)


def test_the_area_of_a_sample_is_that_of_its_rows():
    """Of random scores with equal ones among them; rows are drawn none, one or several times."""
    draw = np.random.default_rng(3)
    for _ in range(50):
        scores, wanted = np.round(draw.random(12), 1), draw.random(12) < 0.5
        numbers = draw.integers(0, 12, 12)
        expected = metrics.roc_auc(scores[numbers], wanted[numbers])
        assert metrics.roc_auc_of(scores, wanted)(np.bincount(numbers, minlength=12)) == pytest.approx(expected)
    area = metrics.roc_auc_of(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, True, False, True]))
    assert area(np.ones(4)) == (0.5 + 1 + 2) / 4
    assert area(np.array([1, 2, 0, 0])) == 1.0
    assert area(np.array([1, 0, 1, 0])) == 0.0  # nothing to be told apart


def test_losses_by_hand():
    logits, targets = np.array([[0.0, 0.0], [np.log(3), 0.0], [1000.0, 0.0]], "float32"), np.array([1, 0, 0])
    assert metrics.nats(logits, targets) == pytest.approx([np.log(2), np.log(4 / 3), 0])
    assert metrics.log_loss(logits, targets) == pytest.approx((np.log(2) + np.log(4 / 3)) / 3)
    binary = metrics.binary_log_loss(np.array([[0.0, np.log(3)], [-1000.0, 1000.0]]), np.array([[1, 0], [0, 0]]))
    assert binary == pytest.approx((np.log(2) + np.log(4) + 0 + 1000) / 4)


def test_ranks_and_correlations_by_hand():
    assert metrics.ranks(np.array([3, 1, 1, 2])).tolist() == [3, 0.5, 0.5, 2]
    assert metrics.pearson([1, 2, 3], [2, 4, 6.0]) == pytest.approx(1.0)
    assert metrics.pearson([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert metrics.spearman([1, 10, 100], [2, 3, 9]) == pytest.approx(1.0)
    assert metrics.spearman([1, 10, 100], [9, 9, 9]) == metrics.pearson([], []) == 0.0
