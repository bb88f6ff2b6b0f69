"""SetFit: pairs of few rows, vectors and then a head, and what does not go with it."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.tasks.base import Rows
from kerasbert.testing.battery import eagerly
from kerasbert.training.config import FinetuneConfig, TasksConfig
from kerasbert.training.early import declared
from tests import tiny


def test_each_text_is_paired_with_its_label_and_with_another():
    from kerasbert.training.few_shot import ROUNDS, contrasted

    labels = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1, "alone": 2}
    rows = Rows(list(labels), np.array(list(labels.values())))
    pairs = contrasted(rows, seed=0)
    assert len(pairs) == 2 * ROUNDS * len(labels)
    assert sum(score for *_, score in pairs) == ROUNDS * len(labels)
    for one, other, score in pairs:
        assert (labels[one] == labels[other]) == score
        assert one != other or one == "alone"
    for text in labels:
        partners = {other for one, other, score in pairs if one == text and not score}
        assert partners == {other for other in labels if labels[other] != labels[text]}  # 20 draws reach all
    assert contrasted(rows, seed=0) == pairs != contrasted(rows, seed=1)
    assert [score for *_, score in pairs[:20]] != [1] * 20  # shuffled


def test_what_does_not_go_with_few_rows_is_refused():
    for given, message in (
        ({"keep_head": True}, "few_shot trains vectors, then a head of its own: leave keep_head out"),
        ({"lora": 4, "patience": 2}, "leave lora, patience out"),
        ({"layers": "mix"}, "leave layers out"),
    ):
        with pytest.raises(InputError, match=message):
            FinetuneConfig(out="x", few_shot=True, **given)
    for task, given, message in (
        (
            "regression",
            {},
            "few_shot is of a classification of single texts.*received the task regression of kind regression",
        ),
        ("glue/mrpc", {}, "received the task glue/mrpc"),
        ("sts", {}, "received the task sts of kind vector"),
        ("classification", {"changes": {"dropout": 0.0}}, "without changes of the model: received dropout"),
    ):
        with pytest.raises(InputError, match=message):
            declared(task, FinetuneConfig(out="x", few_shot=True, **given))
    with pytest.raises(InputError, match="few_shot is of one task, received several"):
        kb.finetune_tasks("x", {"classification": "y"}, **{"out": "x", "few_shot": True, "quiet": True})
    assert TasksConfig(out="x").few_shot is False


def test_a_full_disk_is_told_without_the_temporary_run(tmp_path, monkeypatch):
    from kerasbert.tasks.task import Task
    from kerasbert.training import few_shot, job

    def full(job, program, run):
        raise InputError("cannot write x: full") from OSError(28, "full")

    monkeypatch.setattr(job, "_go_on", full)
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    encoder.tokenizer = tiny.tokenizer()
    task = Task("few_shot", "vector", "text", "other", "score", metric="spearman", options={"loss": "cosine"})
    pairs = [("a cat", "a dog", 1), ("a dog", "a cat", 0)] * 2
    settings = {"batch": 2, "steps": 2, "length": 8, "quiet": True}
    with pytest.raises(InputError, match=r"^cannot write x: full$"):
        few_shot._with_vectors(encoder, task, pairs, FinetuneConfig(out="x", few_shot=True, **settings))
    with pytest.raises(InputError, match=r"full. What was made is kept in .*/run: the same command goes on$"):
        kb.finetune(encoder, task, {"train": pairs, "dev": pairs}, out=tmp_path / "run", **settings)


def test_a_head_reads_the_pooling_that_its_task_names():
    from kerasbert.layers.readout import readout
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import find_task

    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1, "pooler": True})
    inputs = tiny.tokenizer()(["the cat sees the old house .", "a dog"])
    task = find_task("classification", labels={"0": "no", "1": "yes"})
    for pooling, name in (("mean", "mean"), ("max", "max"), ("cls", "first")):
        model = TaskModel(encoder, task.optioned({"pooling": pooling}))
        model.build()
        vectors = readout(encoder(inputs)["sequence"], inputs["padding_mask"], name)
        np.testing.assert_allclose(model(inputs)["logits"], model.heads["classifier"](vectors), atol=1e-6)
    with pytest.raises(InputError, match="readout must be one of first, last, mean"):
        TaskModel(encoder, task.optioned({"pooling": "middle"}))


@eagerly()
def test_a_head_of_vectors_made_once_learns_what_it_learns_with_the_encoder_in_each_update(tmp_path, monkeypatch):
    from kerasbert.tasks.task import find_task
    from kerasbert.training.few_shot import Head
    from kerasbert.training.finetune import FineTuning
    from kerasbert.training.job import run

    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1, "dropout": 0.0, "attention.dropout": 0.0})
    encoder.tokenizer = tiny.tokenizer()
    texts, call, trained = tiny.sentences(11, 0), type(encoder).call, []
    monkeypatch.setattr(
        type(encoder),
        "call",
        lambda self, inputs, training=False, **rest: (
            trained.append(training) or call(self, inputs, training=training, **rest)
        ),
    )
    rows = [(text, number % 3) for number, text in enumerate(texts)]  # 11 of 4 a batch: the last one is filled up
    task = find_task("classification", labels={str(i): str(i) for i in range(3)}).optioned({"pooling": "mean+max"})
    settings = {"steps": 7, "batch": 4, "length": 24, "learning_rate": 1e-2, "freeze": ["encoder"], "quiet": True}
    found = []
    for kind in (FineTuning, Head):
        config = FinetuneConfig(out=tmp_path / kind.__name__, evaluate_every=0, **settings)
        job = kind(encoder, task, {"train": rows, "dev": rows}, config)
        job.asked, trained[:] = {}, []
        model = run(job)
        assert any(trained) == (kind is FineTuning)
        found.append(np.array([list(answer.scores.values()) for answer in kb.predict(model, texts)]))
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    assert np.ptp(found[0], axis=0).min() > 1e-3


@pytest.mark.slow
def test_few_rows_make_a_classifier_for_server_and_phone(tmp_path, monkeypatch, capsys):
    """rows -> --few-shot -> evaluate, SavedModel, .tflite; theirs cannot say the pooling and refuse it."""
    import keras
    import tensorflow as tf

    from kerasbert import mobile
    from kerasbert.cli import main
    from kerasbert.mobile.runtime import load

    keras.utils.set_random_seed(0)  # of 60 rows .73 to .78 are right with five seeds
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    encoder.tokenizer = tiny.tokenizer()
    kb.save(encoder, tmp_path / "model")
    tiny.labelled(tmp_path / "few.tsv", 16, 0)
    tiny.labelled(tmp_path / "dev.tsv", 60, 1)
    run, words = (
        tmp_path / "run",
        ["--task", "classification", "--few-shot", "--epochs", "3", "--learning-rate", "3e-3", "--length", "24"],
    )
    few = str(tmp_path / "few.tsv")
    assert main(["finetune", str(tmp_path / "model"), *words, "--data", few, "--quiet", "--out", str(run)]) == 0
    monkeypatch.setattr("kerasbert.training.few_shot.contrasted", None)  # nothing is trained again
    again = ["finetune", str(tmp_path / "model"), *words, "--data", few, "--out", str(run)]
    assert main(again) == 0
    assert capsys.readouterr().err.endswith(f"{run} is finished: 100 steps were made\n")
    assert main([*again, "--seed", "1"]) == 2
    assert f"{run} holds another run: other seed. Choose another --out or pass --overwrite" in capsys.readouterr().err
    model = kb.load(run)
    assert (model.task.options["pooling"], model.task.hidden_layer) == ("mean", False)
    assert kb.evaluate(model, tmp_path / "dev.tsv")["metrics"]["accuracy"] > 0.7
    texts = tiny.sentences(8, 2)
    wanted = [answer.scores for answer in kb.predict(model, texts)]
    kb.export(model, tmp_path / "serving")
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"](text=tf.constant(texts))
    found = served["probabilities"].numpy()
    np.testing.assert_allclose(found, [list(each.values()) for each in wanted], atol=1e-5)
    mobile.compress(model, out=tmp_path / "x.tflite", quantize="none", data=tmp_path / "dev.tsv")
    phone = [answer.scores for answer in load(tmp_path / "x.tflite", cache=False)(texts)]
    np.testing.assert_allclose([list(x.values()) for x in phone], [list(x.values()) for x in wanted], atol=1e-5)
    with pytest.raises(InputError, match="their classes read the first token, the head of .* the pooling 'mean'"):
        kb.export_checkpoint(run, tmp_path / "theirs")
