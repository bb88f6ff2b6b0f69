"""Zero-shot classification over a model of entailment."""

import dataclasses

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.base import softmax
from kerasbert.cli import main
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from tests import tiny
from tests.checkpoints.theirs import parity, transformers

LABELS = ["the cat", "a good film", "house"]
TEXTS = ["the cat sees the dog", "very sad"]


@pytest.fixture(scope="module")
def model():
    """A classifier of pairs at random, whose second label is entailment."""
    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    names = ("contradiction", "entailment", "neutral")
    made = TaskModel(encoder, Task("nli", text_b="b", labels=dict(zip(names, names))), name="label_model")
    made.build()
    rng = np.random.default_rng(0)
    for variable in made.weights:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    return made


def logits(model, template="This example is {}."):
    from kerasbert.tasks.predict import outputs

    pairs = [(text, template.format(label)) for text in TEXTS for label in LABELS]
    return outputs(model, pairs).reshape(2, 3, 3)


def test_scores_by_hand(model):
    expected = softmax(logits(model)[..., 1].astype("float64"))
    for answer, row in zip(kb.zero_shot(model, TEXTS, LABELS), expected, strict=True):
        assert list(answer.scores) == [LABELS[i] for i in np.argsort(-row)]
        np.testing.assert_allclose([answer.scores[label] for label in LABELS], row, atol=1e-6)
        assert (answer.label, answer.score) == next(iter(answer.scores.items()))
    alone = softmax(logits(model, "about {}")[..., [0, 1]].astype("float64"))[..., 1]
    for answer, row in zip(kb.zero_shot(model, TEXTS, LABELS, multi_label=True, template="about {}"), alone):
        np.testing.assert_allclose([answer.scores[label] for label in LABELS], row, atol=1e-6)
    # of one label alone too, as theirs
    assert kb.zero_shot(model, TEXTS[:1], ["house"], template="about {}")[0].score == pytest.approx(
        alone[0, 2], abs=1e-6
    )
    against = softmax(logits(model, "about {}")[..., [0, 2]].astype("float64"))[0, 2, 1]
    named = kb.zero_shot(model, TEXTS[:1], ["house"], template="about {}", entailment="Neutral")
    assert named[0].score == pytest.approx(against, abs=1e-6)
    assert kb.zero_shot(model, [], LABELS) == []


def test_the_command(model, tmp_path, capsys):
    kb.save(model, tmp_path / "nli")
    assert main(["zero-shot", str(tmp_path / "nli"), TEXTS[0], "--labels", "the cat, a good film,house"]) == 0
    (answer,) = kb.zero_shot(model, TEXTS[:1], LABELS)
    wanted = "\t".join(f"{label} {score:.4f}" for label, score in answer.scores.items())
    assert capsys.readouterr().out == wanted + "\n"
    assert main(["zero-shot", str(tmp_path / "nli"), "the old cat " * 40, "x", "--labels", "house"]) == 0
    assert "1 of 2 texts have more tokens than are read and were truncated (--length)" in capsys.readouterr().err
    assert main(["zero-shot", str(tmp_path / "nli"), "x", "--labels", "a,a"]) == 2


def test_what_is_refused(model, classifier):
    for settings, message in (
        ({"labels": []}, "labels must be a list of names"),
        ({"labels": "cat"}, "labels must be a list of names"),
        ({"labels": LABELS, "template": "about"}, "template must hold {} once"),
        ({"labels": LABELS, "entailment": "yes"}, "no label 'yes'. It has: contradiction, entailment, neutral"),
        ({"labels": LABELS, "texts": ["a text", None]}, "texts must be a list of str, and text 1 is None"),
    ):
        with pytest.raises(kb.InputError, match=message):
            kb.zero_shot(model, **({"texts": TEXTS} | settings))
    with pytest.raises(kb.InputError, match="needs a classifier of pairs"):
        kb.zero_shot(classifier, TEXTS, LABELS)
    task, labels = model.task, model.labels
    try:
        model.labels = ("no", "maybe", "yes")
        with pytest.raises(kb.InputError, match="no label of the model is called entailment. It has: no, maybe, yes"):
            kb.zero_shot(model, TEXTS, LABELS)
        assert kb.zero_shot(model, TEXTS, LABELS, entailment="yes")
    finally:
        model.task, model.labels = dataclasses.replace(task), labels


@parity
def test_transformers_scores_labels_alike(model, tmp_path):
    theirs = transformers()
    kb.save(model, tmp_path / "nli")
    kb.export_checkpoint(tmp_path / "nli", tmp_path / "hf")
    pipe = theirs.pipeline("zero-shot-classification", str(tmp_path / "hf"))
    kb.import_checkpoint(tmp_path / "hf", out=tmp_path / "back", build=False)
    for settings in ({}, {"multi_label": True}):
        expected = pipe(TEXTS, LABELS, hypothesis_template="about {}.", **settings)
        for answer, wanted in zip(
            kb.zero_shot(tmp_path / "back", TEXTS, LABELS, template="about {}.", **settings), expected
        ):
            assert list(answer.scores) == wanted["labels"]
            np.testing.assert_allclose(list(answer.scores.values()), wanted["scores"], atol=1e-5)
