"""Vectors by hand: margins, what a report shows, what a server and a phone answer, which rows a loss wants. No network."""

import types

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.inputs import row
from kerasbert.tasks import vector
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.task import find_task

RANKED = find("vector").configured({"loss": "ranking"})


@pytest.mark.parametrize(
    ("value", "negatives", "expected"),
    [
        ("1.5", 1, [1.5]),
        (1.5, 1, [1.5]),
        ("[1, 2]", 2, [1, 2]),
        (" [3, 1]", 1, [2]),
        ([3, 1, 2.5], 2, [2, 0.5]),
        ((3, 3, 3), 3, [3, 3, 3]),
    ],
)
def test_margins_of_a_cell(value, negatives, expected):
    """As many numbers as negatives are margins; one more are scores, the positive's first."""
    assert vector.margins(value, negatives, "a.csv", 2) == expected


@pytest.mark.parametrize(
    ("value", "negatives", "said"),
    [
        ("[1, 2, 3]", 1, r"a.csv, line 2: 3 scores beside 1 negative\(s\), expected 1 margins or 2 scores"),
        ("1", 2, "1 scores beside 2 negative"),
        ("[1, x]", 1, "is not a number"),
        ([], 1, "0 scores beside"),
        (["a"], 1, "is not a number"),
    ],
)
def test_margins_that_are_none(value, negatives, said):
    with pytest.raises(InputError, match=said):
        vector.margins(value, negatives, "a.csv", 2)


def angled(*degrees):
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], -1).astype("float32")


def test_a_report_of_what_belongs_together_by_hand():
    """Of three anchors the own positive is the nearest, one other is nearer, two are nearer."""
    task = find_task("pairs")
    encoded = Encoded([row([2], [0])] * 6, np.array([0, 0, 1, 1, 2, 2]))
    vectors = angled(0, 10, 9, 30, 12, 60)
    judged = RANKED.judged(task, vectors, None, encoded)
    assert [judged.answer(number) for number in range(3)] == judged.errors.tolist() == [0, 1, 2]
    bars = {"the nearest": 1 / 3, "among the 2 nearest": 2 / 3, "among the 5 nearest": 1.0, "among the 10 nearest": 1.0}
    assert judged.picture == {"title": "The positive is", "bars": pytest.approx(bars)}
    assert judged.sampled(np.array([0, 0, 1])) == {"recall": pytest.approx(2 / 3)}
    assert RANKED.baseline(task, None, encoded) == {"recall": 1 / 3}
    wanted = "its positive is the nearest"
    for number, said in enumerate(("0 other text is nearer", "1 other text is nearer", "2 other texts are nearer")):
        assert RANKED.shown(task, None, None, None, number) == (wanted, said)


def test_a_report_of_scores_by_hand():
    task = find_task("sts").optioned({"loss": "cosine", "highest": 5.0})
    encoded = Encoded([row([2], [0])] * 6, np.array([0, 0, 1, 1, 2, 2]))
    vectors, scores = angled(0, 0, 0, 60, 0, 90), np.array([5.0, 4.0, 0.0], "float32")
    judged = task.how.judged(task, vectors, scores, encoded)
    assert [judged.answer(number) for number in range(3)] == [1.0, 0.5, 0.0]
    assert judged.errors == pytest.approx([0, 0.3, 0], abs=1e-6)
    assert (judged.graded, judged.picture["title"], judged.picture["of"]) == (True, "Cosines beside scores", 3)
    assert judged.picture["points"][1] == [0.8, 0.5]
    assert judged.sampled(np.arange(3)) == pytest.approx(task.how.metrics(task, vectors, scores, encoded))
    assert task.how.baseline(task, scores, encoded) == {"spearman": 0.0, "pearson": 0.0}
    assert task.how.shown(task, None, 4.0, None, 0.51234) == ("0.8", "0.5123")
    assert task.how.scaled(task, scores) == pytest.approx([1.0, 0.8, 0.0])
    ordered = task.optioned({"loss": "cosent"})
    assert ordered.how.scaled(ordered, scores) is scores
    assert [each.how.whole != () for each in (task, ordered)] == [False, True]


def test_the_vector_that_servers_and_phones_answer():
    kind, vectors = find("vector"), np.array([[1.0, 2.0]], "float32")
    sequence, mask = np.arange(12, dtype="float32").reshape(2, 3, 2), np.array([[1, 1, 1], [1, 0, 0]], "int32")
    for name in ("vector", "text_vector"):
        assert kind.device({name: vectors, "sequence": sequence}, {"padding_mask": mask}) is vectors
        assert kind.exported(None, {name: vectors}, {})["vector"] is vectors
    mean = [sequence[0].mean(0), sequence[1, 0]]  # of an encoder without a head
    np.testing.assert_allclose(kind.device({"sequence": sequence}, {"padding_mask": mask}), mean)
    np.testing.assert_allclose(kind.exported(None, {"sequence": sequence}, {"padding_mask": mask})["vector"], mean)
    none = kind.exported(None, {"sequence": sequence}, {"padding_mask": mask * 0})["vector"]
    assert np.isfinite(none).all()
    assert kind.pipeline_tag(find_task("sts")) == "sentence-similarity"


def test_prompts_of_a_server():
    kind = find("vector").configured({"prompts": {"query": "Q: "}, "prompt_name": "query"})
    assert [each.numpy().tolist() for each in kind.prompted([np.array(["a", "b"])])] == [[b"Q: a", b"Q: b"]]
    bare = find("vector")
    texts = [np.array(["a"])]
    assert bare.prompted(texts) is texts
    assert "'Q: ' is put before each text" in kind.described()
    assert "takes `prompt_name` too, of query, or empty" in kind.described()
    assert "prompt" not in bare.described()
    short = bare.configured({"normalize": True, "dimensions": 2, "pooling": "first+max"}).described()
    assert "the first token and the largest of each number over the tokens, of length 1, its first 2 numbers" in short
    with pytest.raises(InputError, match="puts the prompt 'Q: ' before each text, which .* does not"):
        kind.check_target("mediapipe")
    assert bare.check_target("mediapipe") is None
    assert kind.program == f"mean False 0 {kind.begin}"


def test_rows_that_a_loss_cannot_learn_from_are_named():
    texts = [("a", ("b", "c")), ("d", "e")]
    triplet = find("vector").configured({"loss": "triplet"})
    with pytest.raises(InputError, match="a.csv, line 3: no negative; the loss triplet learns from a text, one that"):
        triplet.targets(find_task("pairs"), "a.csv", [2, 3], [], texts)
    assert triplet.targets(find_task("pairs"), "a.csv", [2], [], texts[:1]).tolist() == [1.0]
    assert RANKED.targets(find_task("pairs"), "a.csv", [2, 3], [], texts).tolist() == [1.0, 1.0]
    mse = find("vector").configured({"loss": "margin_mse"})
    assert mse.targets(find_task("pairs"), "a.csv", [2], ["[3, 1]"], texts[:1]) == [[2.0]]
    alike = find("vector").configured({"loss": "contrastive"})
    assert alike.targets(find_task("sts"), "a.csv", [2, 3], ["1", 0], [("a", "b")] * 2).tolist() == [1.0, 0.0]
    with pytest.raises(InputError, match="a.csv, line 3: label 0.5; the loss contrastive learns from"):
        alike.targets(find_task("sts"), "a.csv", [2, 3], ["1", 0.5], [("a", "b")] * 2)
    with pytest.raises(InputError, match="a.csv, line 2: a score is of two texts"):
        alike.targets(find_task("sts"), "a.csv", [2], ["1"], ["a"])


def test_texts_alone_choose_no_epoch():
    simcse = find("vector").configured({"loss": "simcse"})
    dev = types.SimpleNamespace(texts=[("a", "a"), ("b", "b")])
    with pytest.raises(InputError, match="texts alone do not say which epoch is best: pass --dev FILE"):
        simcse.absent(find_task("simcse"), None, dev)
    dev.texts.append(("a", "b"))
    assert simcse.absent(find_task("simcse"), None, dev) == []


def test_it_begins_with_what_the_model_has():
    task = find_task("sts")
    held = {"kind": "vector", "options": {"pooling": "first", "normalize": True, "loss": "ranking"}}
    begun = task.how.started(task, held)
    assert (begun.options["pooling"], begun.options["normalize"], begun.options["loss"]) == ("first", True, "cosine")
    own = task.optioned({"pooling": "max"})
    assert own.how.started(own, held).options["pooling"] == "max"
    assert task.how.started(task, {"kind": "tags", "options": {"pooling": "first"}}) is task
    dense = [{"width": 4, "activation": "tanh", "bias": True}]
    deep = find("vector").configured({"dense": dense})
    assert len(deep.goes_on({"kind": "vector", "options": {"dense": dense}})) == 1
    assert not deep.goes_on({"kind": "vector", "options": {}})
    assert not deep.goes_on({"kind": "tags", "options": {"dense": dense}})


def texts_of(*tokens, per=2):
    """Rows of inputs of so many texts each; a repeated last row fills up an input."""
    return [row(list(each), [0] * len(each), about=i % per) for i, each in enumerate(tokens)]


def test_a_batch_of_scored_pairs_by_hand():
    kind = find("vector").configured({"loss": "cosine"})
    rows = texts_of((2, 3), (2, 4), (2, 4), (2, 5))
    found = kind.batch(None, rows, np.array([0.5, 0.5, 0.25, 0.25], "float32"), 3, 8)
    assert found["label"].tolist() == [0.5, 0.25, 0.0]
    assert found["label_weight"].tolist() == [1, 1, 0]
    assert found["label_texts"].tolist() == [[0, 1], [1, 2], [-1, -1]]


def test_a_batch_of_texts_with_negatives_by_hand():
    rows = texts_of((2, 3), (2, 4), (2, 5), (2, 3), (2, 6), (2, 6), per=3)
    rows[5] = row([2, 6], [0, 0], about=1)  # an input of two texts repeats its last
    found = RANKED.batch(None, rows, [1.0] * 6, 3, 8)
    assert found["label"].shape == (3, 1)
    assert found["label_texts"].tolist() == [[0, 1, 2], [0, 3, -1], [-1, -1, -1]]
    margin = find("vector").configured({"loss": "margin_mse"})
    found = margin.batch(None, rows, [[0.5], [0.5], [0.5], [2.0], [2.0], [2.0]], 2, 8)
    assert (found["label"].tolist(), found["label_weight"].tolist()) == ([[0.5], [2.0]], [1, 1])


def test_losses_are_of_vectors_in_their_inputs():
    """Two inputs of two texts in one list; with a norm they are of length 1."""
    kind = find("vector").configured({"loss": "cosine"})
    batch = {"label": np.array([1.0, 0.0], "float32"), "label_weight": np.ones(2, "float32")}
    batch["label_texts"] = np.arange(4).reshape(2, 2)
    vectors = 3 * angled(0, 0, 0, 60)
    assert float(kind.losses(None, vectors, batch)["label"]) == pytest.approx(0.25, rel=1e-5)
    for options, length in (({}, 3.0), ({"normalize": True}, 1.0)):
        found = kind.configured({"loss": "cosine", **options}).outputs(None, vectors)["vector"]
        np.testing.assert_allclose(np.linalg.norm(found, axis=-1), length, rtol=1e-5)
    cut = kind.configured({"loss": "cosine", "dimensions": 1}).outputs(None, vectors)["vector"]
    np.testing.assert_allclose(cut, vectors[:, :1])
