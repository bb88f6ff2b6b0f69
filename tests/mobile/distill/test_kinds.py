"""What a student of every kind is compared by, and what of a batch counts; a student of tags learns from texts without labels."""

import dataclasses
import types

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.mobile.distill import Distillation, distill
from kerasbert.mobile.distill.program import LabelImitation
from kerasbert.mobile.distill.texts import TextsFeed, teachers_answers
from kerasbert.tasks.base import Rows
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.span import Target
from kerasbert.tasks.task import find_task, joined
from tests.mobile.distill.worlds import TOKENIZER, model

LONG = ("the old cat sees a dog near the river " * 3).split()
WORDS = [(tuple(LONG),), (("the", "cat"),), (("a", "good", "film"),), (tuple(LONG[:20]),)]
TAGS = [np.arange(len(words)) % 3 for (words,) in WORDS[:2]]
ASKED = [("cat ?", " ".join(LONG)), ("dog", "the dog sees"), ("river", "a cat"), ("house", "the old house " * 4)]
CHOSEN = [("the", ("cat", "dog", "river")), ("old", ("good", "bad")), ("a", ("film", "cat")), ("the", ("a", "the"))]
TEXTS = ["the cat", "a good film", "bad dog", "the old river"]
# kind -> (task, labels, options, texts, targets of the first two)
KINDS = {
    "tags": ("ner", "XYO", {"stride": 6}, WORDS, TAGS),
    "crf": ("ner", "XYO", {"stride": 6, "crf": True}, WORDS, TAGS),
    "span": ("squad2", "", {"stride": 6}, ASKED, [Target(("cat",), 8, 11), Target(())]),
    "choice": ("choice", "", {}, CHOSEN, np.array([2, 0], "int32")),
    "multi_label": ("multi_label", "XYZ", {}, TEXTS, np.array([[1, 0, 1], [0, 0, 0]], "float32")),
}


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def divergence(teacher, student):
    """Nats over the last axis."""
    return np.sum(softmax(teacher) * (np.log(softmax(teacher)) - np.log(softmax(student))), axis=-1)


def prepared(kind):
    """Task, feed of half-labelled texts, teacher, student."""
    name, labels, options, texts, targets = KINDS[kind]
    task = dataclasses.replace(find_task(name), labels={label: label for label in labels}).optioned(options)
    teacher, student = (model("bert", task=task, seed=seed) for seed in (1, 2))
    rows, labelled = joined(task, Rows(texts[:2], targets), texts[2:])
    encoded = encode_texts(TOKENIZER, rows.texts, 18, kind=task.how)
    settings = types.SimpleNamespace(batch=12, seed=0, updates=1, accumulate=1)
    return task, TextsFeed(encoded, rows, labelled, None, settings, 18, None, task), teacher, student


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_compared_where_they_count(kind):
    task, feed, teacher, student = prepared(kind)
    batch = next(feed.made(0))
    assert batch["label_weight"].sum() < batch["compared"].sum()  # two texts have no labels, and the batch is not full
    assert 0 in batch["weight"]
    program = LabelImitation(student, teacher, Distillation({"soft": 1.0, "logits": 1.0, "labels": 1.0}))
    found = {name: float(value) for name, value in program.losses(batch, training=False).items()}
    counts = {name: float(value) for name, value in program.counts(batch).items()}
    one, two = (np.array(each.logits(each.body(batch), batch)) for each in (teacher, student))
    if kind in ("tags", "crf"):
        at = np.concatenate([each.about.tokens + 18 * i for i, each in enumerate(feed.encoded.rows)])
        assert counts["soft"] == len(at) == sum(len(words) for (words,) in WORDS)
        logits = {}
        for name, of in (("one", teacher), ("two", student)):
            rows = feed.encoded.arrays(range(len(feed.encoded.rows)), 18)
            logits[name] = np.array(of.logits(of.body(rows), rows)).reshape(-1, 3)[at]
        wanted = divergence(logits["one"], logits["two"]).sum()
    elif kind == "span":
        seen = batch["padding_mask"][:, None] > 0
        ends = [np.where(seen, each.swapaxes(1, 2), -1e4) for each in (one, two)]
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = softmax(ends[0]) * (np.log(softmax(ends[0])) - np.log(softmax(ends[1])))
        wanted = (np.nansum(wanted, -1).mean(-1) * batch["weight"]).sum()
    elif kind == "choice":
        shape = batch["choices"].shape
        scores = (np.where(batch["choices"], each.reshape(shape), -99) for each in (one, two))
        wanted = (divergence(*scores) * batch["compared"]).sum()
        assert (counts["soft"], counts["labels"]) == (4, 2)
    else:
        pairs = (np.stack([each, 0 * each], -1) for each in (one, two))
        wanted = (divergence(*pairs).mean(-1) * batch["weight"]).sum()
    assert found["soft"] == pytest.approx(wanted, rel=1e-3)
    assert found["soft/agreement"] < counts["soft"]
    assert found["labels"] == pytest.approx(float(task.how.losses_of(student, two, batch)["label"]), rel=1e-5)

    for weight, variable in names(student).items():
        variable.assign(names(teacher)[weight])
    found = {name: float(value) for name, value in program.losses(batch, training=False).items()}
    assert (found["soft"], found["logits"]) == (pytest.approx(0, abs=1e-4), pytest.approx(0, abs=1e-6))
    assert found["soft/agreement"] == pytest.approx(counts["soft"])


def test_answers_worked_out_before_are_those_beside(tmp_path):
    _, feed, teacher, student = prepared("multi_label")
    program = LabelImitation(student, teacher, Distillation({"soft": 1.0}))
    beside = float(program.losses(next(feed.made(0)), training=False)["soft"])
    feed.answers, program.teacher = teachers_answers(teacher, feed.encoded, 18, tmp_path, "x"), None
    assert float(program.losses(next(feed.made(0)), training=False)["soft"]) == pytest.approx(beside, rel=1e-5)
    for kind in ("tags", "choice"):
        _, feed, teacher, _ = prepared(kind)
        assert teachers_answers(teacher, feed.encoded, 18, tmp_path, "x") is None


def test_vectors_are_not_taught(tmp_path):
    task = find_task("pairs")
    kb.save(model("bert", task=task), tmp_path / "teacher")
    with pytest.raises(InputError, match="a student cannot be taught the answers of a vector: fine-tune the student"):
        distill(
            tmp_path / "teacher", 1, {"train": [("a", "b")], "dev": [("a", "b")]}, out=tmp_path / "student", quiet=True
        )


@pytest.mark.slow
def test_a_student_of_tags_learns_from_texts_without_labels(pretrained, tmp_path):
    """With a CRF: the student's transitions are its teacher's."""
    from tests.tasks.test_tags import columns

    columns(tmp_path / "train.conll", 160, 0), columns(tmp_path / "dev.conll", 30, 1)
    settings = {"batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}
    kb.finetune(pretrained, "ner", tmp_path, out=tmp_path / "teacher", epochs=4, changes={"task.crf": True}, **settings)
    few = {"train": columns(tmp_path / "few.conll", 4, 2), "dev": tmp_path / "dev.conll"}
    more = columns(tmp_path / "more.conll", 160, 3)
    student = distill(
        tmp_path / "teacher", 1, few, out=tmp_path / "student", unlabelled=[more], steps=40, metric="loss", **settings
    )
    teacher = kb.load(tmp_path / "teacher")
    assert student.spec.blocks.layers == 1
    np.testing.assert_array_equal(student.heads["crf"].transitions, teacher.heads["crf"].transitions)
    assert kb.evaluate(student, tmp_path / "dev.conll")["metrics"]["f1"] > 0.85
