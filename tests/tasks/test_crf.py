"""A CRF over tags: learned, kept, refused where it was not trained."""

import dataclasses
import random

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from tests.tasks.test_tags import NOUNS, random_model


def handed_on(path, count, seed):
    """Words that say nothing of their labels, which are all those of the sentence: which, nothing says."""
    draw, lines = random.Random(seed), []
    for number in range(count):
        label = "AB"[number % 2]
        lines += [f"{word}\t{label}" for word in draw.choices(NOUNS, k=6)] + [""]
    path.write_text("\n".join(lines))


def test_a_head_that_was_not_trained_cannot_be_kept(tmp_path):
    handed_on(tmp_path / "train.conll", 4, 0), handed_on(tmp_path / "dev.conll", 2, 1)
    model = random_model()
    model.task = dataclasses.replace(model.task, labels={"A": "A", "B": "B"})
    model = type(model)(model.encoder, model.task)
    model.build()
    kb.save(model, tmp_path / "plain")
    asked = {"keep_head": True, "changes": {"task.crf": True}, "steps": 1, "length": 16, "quiet": True}
    with pytest.raises(InputError, match="has no head 'crf', it has: classifier. Leave out what asks for that head"):
        kb.finetune(tmp_path / "plain", "ner", tmp_path, out=tmp_path / "run", **asked)


@pytest.mark.slow
def test_a_crf_learns_what_emissions_cannot_see(pretrained, tmp_path):
    """One of two labels for all words of a sentence, by a coin: log 2 a word is the least for labels by themselves."""
    handed_on(tmp_path / "train.conll", 120, 0), handed_on(tmp_path / "dev.conll", 20, 1)
    settings = {"steps": 16, "batch": 10, "learning_rate": 3e-3, "length": 16, "quiet": True, "metric": "loss"}
    model = kb.finetune(pretrained, "ner", tmp_path, out=tmp_path / "run", changes={"task.crf": True}, **settings)
    assert kb.evaluate(model, tmp_path)["metrics"]["loss"] < 0.2  # log 2 / 6 is 0.116
    assert "transitions" not in (tmp_path / "run" / "model.json").read_text()
    for labels in (answer.labels for answer in kb.predict(model, ["cat dog stone river", "house film"])):
        assert len(set(labels)) == 1
    table = np.array(model.task.options["transitions"])
    assert (np.diag(table[:2]) > table[[0, 1], [1, 0]]).all()
    model.heads["crf"].transitions.assign([[-9.0, 9], [9, -9]])  # the task follows the weights
    assert len(set(kb.predict(model, ["cat dog"])[0].labels)) == 2
    kb.save(model, tmp_path / "again")
    assert kb.predict(tmp_path / "again", ["cat dog"]) == kb.predict(model, ["cat dog"])
    assert "transitions" not in (tmp_path / "again" / "model.json").read_text()
    with pytest.raises(InputError, match="no class of theirs has exactly the heads classifier, crf"):
        kb.export_checkpoint(tmp_path / "again", tmp_path / "hf")
