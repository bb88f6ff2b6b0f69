"""Kinds that extend vectors, of a third party: late interaction and sparse lexical vectors, from training to a phone."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.mobile.testing import check_kind_journey
from kerasbert.tasks.batches import Lengths
from kerasbert.tasks.task import find_task
from kerasbert.testing import check_kind
from kerasbert.testing.battery import eagerly
from kerasbert.training import finetune
from tests.support import ROOT, forgotten, forked
from tests.training import whole_worker
from tests.training.test_whole_batch import same

KINDS = ("late_interaction", "sparse")
DRAW = np.random.default_rng(0)
RANKED = {"loss": "ranking", "steps": 1}


@pytest.fixture(params=KINDS)
def kind(request):
    with forgotten():
        registry.load_plugin(ROOT / "tests" / "plugins" / f"{request.param}.py")
        yield request.param


def test_its_halves_fit(kind, tmp_path):
    check_kind(kind, tmp_path)


@pytest.mark.slow
def test_it_goes_to_a_server_and_a_phone(kind, tmp_path):
    check_kind_journey(kind, tmp_path)


@pytest.mark.parametrize("settings", [{"accumulate": 4}, {"padded": {"first": [16]}}], ids=["micro-batches", "apart"])
def test_gradients_are_those_of_the_whole_batch(kind, settings):
    """With the dropout of one reading of all rows."""
    with eagerly():
        one, other = (whole_worker.run(RANKED | {"plugin": kind} | each) for each in ({}, settings))
    same(one, other)


def test_queries_may_be_shorter_than_documents(kind):
    """Their vectors of tokens meet in one array, with zeros behind the shorter."""
    with eagerly():
        one, other = (
            whole_worker.run(RANKED | {"plugin": kind, "dropout": 0.0, "padded": each})
            for each in ({}, {"first": [24], "longest": 24})
        )
    same(one, other)


@pytest.mark.slow
def test_two_replicas_gather_each_others_texts(kind, tmp_path):
    settings = RANKED | {"plugin": kind}
    forked("-m", "tests.training.whole_worker", tmp_path / "two.npz", json.dumps(settings | {"strategy": "cpu:2"}))
    with eagerly():
        same(whole_worker.run(settings), dict(np.load(tmp_path / "two.npz")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:1], indirect=True)
def test_one_graph_takes_all_lengths_of_queries_and_documents(kind, pretrained, tmp_path, capsys, monkeypatch):
    """In micro-batches, the queries read apart; a graph that must know its lengths is told."""
    monkeypatch.setattr(finetune, "lengths_for", lambda *_: Lengths((16, 32), (4, 8)))
    lengths = (3, 9, 14, 20) * 2
    rows = [("cat " * (1 + i % 5), ("dog " * count, "film " * count)) for i, count in enumerate(lengths)]
    settings = {"epochs": 1, "batch": 4, "length": 32, "accumulate": 2}
    kb.finetune(pretrained, kind, {"train": rows, "dev": rows[:4]}, out=tmp_path / "run", **settings)
    assert "traced by itself" not in capsys.readouterr().err
    closed = type(find_task(kind).how)
    monkeypatch.setattr(closed, "logits", needing_lengths(closed.logits))
    kb.finetune(pretrained, kind, {"train": rows, "dev": rows[:4]}, out=tmp_path / "other", **settings)
    told = capsys.readouterr().err
    assert told.count("each length of a batch is traced by itself, which takes seconds: ValueError: no length") == 1


def needing_lengths(logits):
    def of_known_lengths(self, model, read, inputs, training=False):
        if training and inputs["padding_mask"].shape[1] is None:
            raise ValueError("no length")
        return logits(self, model, read, inputs, training=training)

    return of_known_lengths


@pytest.mark.parametrize(
    "options", [{"pooling": "max"}, {"dims": [4]}, {"depths": [1]}, {"loss": "triplet"}, {"margin": 1.0}]
)
def test_options_of_other_vectors_are_refused(kind, options):
    (name,) = options
    with pytest.raises(InputError, match=f"{name} is .*, an option of other vectors"):
        find_task(kind).optioned(options)


# The formulas, in float64


def ranking(scores):
    """The mean over anchors of what the softmax over all texts leaves of the own positive: [B, N], the positives first."""
    return -np.mean([row[i] - np.logaddexp.reduce(row) for i, row in enumerate(scores)])


def batch(count, width):
    texts = np.arange(count * width, dtype="int32").reshape(count, width)
    return {"label_weight": np.ones(count, "float32"), "label_texts": texts}


def test_late_interaction_is_its_formula():
    with forgotten():
        registry.load_plugin(ROOT / "tests" / "plugins" / "late_interaction.py")
        task = find_task("late_interaction").optioned({"scale": 0.7})
        lengths = np.array([[3, 5, 4], [2, 1, 5]])
        rows = [[DRAW.normal(size=(n, 6)) for n in row] for row in lengths]
        rows = [[x / np.linalg.norm(x, axis=-1, keepdims=True) for x in row] for row in rows]
        padded = np.zeros((6, 5, 6), "float32")
        for i, text in enumerate(text for row in rows for text in row):
            padded[i, : len(text)] = text
        found = task.how.losses(task, padded, batch(2, 3))
        others = [row[k] for k in (1, 2) for row in rows]
        scores = np.array([[sum(max(q @ d for d in text) for q in row[0]) for text in others] for row in rows])
        assert float(found["label"]) / 2 == pytest.approx(ranking(0.7 * scores), abs=1e-6)
        np.testing.assert_allclose(task.answer_kind.compare([row[0] for row in rows], others), scores, atol=1e-12)


def test_sparse_is_its_formula():
    with forgotten():
        registry.load_plugin(ROOT / "tests" / "plugins" / "sparse.py")
        task = find_task("sparse").optioned({"scale": 0.5, "query_flops": 0.1, "document_flops": 0.2})
        vectors = np.abs(DRAW.normal(size=(3, 2, 9)))
        found = task.how.losses(task, vectors.reshape(6, 9).astype("float32"), batch(3, 2))
        flops = [np.square(vectors[:, k].mean(axis=0)).sum() for k in (0, 1)]
        expected = ranking(0.5 * vectors[:, 0] @ vectors[:, 1].T) + 0.1 * flops[0] + 0.2 * flops[1]
        assert float(found["label"]) / 3 == pytest.approx(expected, abs=1e-6)
