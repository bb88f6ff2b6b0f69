"""Models that write, whole: a toy translation, files of parallel texts, SavedModels that say what Python says."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.answers.generation import text_of
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.export import signatures
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from kerasbert.text.train import train
from tests import tiny
from tests.support import once, shared

TOY = {word: f"{word[::-1]}o" for word in tiny.WORDS}


def toy(count: int, seed: int) -> list[tuple[str, str]]:
    """Words mapped one by one, their order reversed."""
    draw = random.Random(seed)
    lines = [draw.choices(tiny.WORDS, k=draw.randint(4, 7)) for _ in range(count)]
    return [(" ".join(line), " ".join(TOY[word] for word in reversed(line))) for line in lines]


def writer(family: str, options: dict, folder, kind: str | None = None):
    """A tiny model of random weights that writes."""
    subject = battery.Subject(family, folder)
    subject.tokenizer = battery.tokenizer(kind or subject.family.tokenizer)
    subject.spec = subject.spec.derive({"embeddings.vocabulary": subject.tokenizer.size})
    encoder, task = subject.encoder(), find_task("generation").optioned({"target_length": 10, **options})
    model = TaskModel(encoder, task.how.of_family(task, subject.family))
    model.build()
    return model


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A run that has learnt the toy translation."""
    import keras

    def make(folder):
        keras.utils.set_random_seed(0)
        sizes = {"hidden": 64, "feedforward.width": 128, "attention.heads": 4, "blocks.layers": 2}
        model = kb.build("t5/small", **sizes, **{"embeddings.vocabulary": 120, "dropout": 0.0})
        model.tokenizer = train("unigram", [line for pair in toy(400, 9) for line in pair], 120)
        rows, settings = (toy(3000, 0), toy(20, 1)), {"steps": 800, "learning_rate": 5e-3, "length": 32, "quiet": True}
        options = {"task.target_length": 32}
        kb.finetune(model, "translation", rows, out=folder / "run", changes=options, evaluate_every=800, **settings)

    return once(tmp_path_factory, "translator", make)[0] / "run"


@pytest.mark.full
def test_a_toy_translation_is_learnt(translator):
    unseen = toy(100, 2)
    assert not {line for line, _ in toy(3000, 0)} & {line for line, _ in unseen}
    found = kb.evaluate(translator, unseen)["metrics"]
    assert found["bleu"] > 90  # 100.0 in the run that this was written on
    assert kb.evaluate(translator, unseen[:20], options={"beams": 4})["metrics"]["bleu"] > 90


def same_texts(model, texts, folder, length):
    """What Python and the SavedModel write; returns Python's."""
    wanted = kb.predict(model, texts, length=length)
    serve = tf.saved_model.load(str(kb.export(model, folder, length=length))).signatures
    given = signatures.given(kind_of(model), ("text",), texts)
    served = {name: value.numpy() for name, value in serve["serving_default"](**given).items()}
    assert [text.decode() for text in served["text"]] == [each.text for each in wanted]
    assert served["truncated"].tolist() == [each.truncated for each in wanted]
    np.testing.assert_allclose(served["score"], [each.score for each in wanted], rtol=1e-4, atol=1e-4)
    return wanted


@pytest.mark.full  # in CI: tests.checkpoints.test_parity_generation_config::test_served_and_on_the_phone
@pytest.mark.parametrize("beams", [1, 4])
def test_the_saved_model_translates_as_python(translator, beams, tmp_path):
    model = kb.load(translator)
    model.task = model.task.optioned({"beams": beams})
    texts = [line for line, _ in toy(48, 3)] + ["café! the the", "the cat " * 40]
    wanted = same_texts(model, texts, tmp_path / "serving", 32)
    assert len({each.text for each in wanted}) == 50
    assert [each.truncated for each in wanted] == [False] * 49 + [True]
    alone = kb.predict(model, texts[:1])  # a text is written alone as beside others
    assert alone[0].text == wanted[0].text == toy(48, 3)[0][1]
    packed = model.tokenizer(texts[:9])
    read = {"token_ids": tf.constant(packed["token_ids"]), "lengths": tf.reduce_sum(packed["padding_mask"], axis=1)}
    ids = tf.saved_model.load(str(tmp_path / "serving")).signatures["ids"](**read)["token_ids"].numpy()
    assert [text_of(model.tokenizer, row) for row in ids] == [each.text for each in wanted[:9]]


WRITERS = [
    pytest.param("gpt2", "bpe", {"temperature": 0.7, "top_k": 20, "separator": " :"}, marks=pytest.mark.slow),
    pytest.param("bart", "bpe", {"min_new_tokens": 3, "repetition_penalty": 1.5}, marks=pytest.mark.full),
    pytest.param("gpt2", "bpe", {"beams": 2, "repetition_penalty": 1.3}, marks=pytest.mark.full),
    pytest.param("t5", "wordpiece", {"prefix": "the ", "repetition_penalty": 1.5}, marks=pytest.mark.full),
    pytest.param("transformer", "unigram", {"beams": 3, "repetition_penalty": 1.5}, marks=pytest.mark.full),
    pytest.param("mass", "bpe", {"repetition_penalty": 1.5}, marks=pytest.mark.full),
    pytest.param("bert2bert", None, {"beams": 2}, marks=pytest.mark.full),
    pytest.param("unilm", None, {"repetition_penalty": 1.5}, marks=pytest.mark.slow),
    pytest.param("gpt", None, {"separator": " . ", "repetition_penalty": 1.5}, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("family", "tokenizer", "options"), WRITERS)
def test_the_saved_model_writes_what_python_writes(family, tokenizer, options, tmp_path):
    model = writer(family, options, tmp_path, tokenizer)
    texts = [*tiny.sentences(46, 3), "café! 一二三", "a", "the cat " * 40, "?"]
    wanted = same_texts(model, texts, tmp_path / "serving", 28)
    assert len({each.text for each in wanted}) > 5
    assert sum(each.truncated for each in wanted) >= 1


def tiny_run(family, folder):
    """The directory of a tiny model."""
    subject = battery.Subject(family, folder)
    encoder = subject.encoder(scale=0.05)
    kb.save(encoder, folder / family)
    return folder / family


QUICK = {"steps": 20, "batch": 8, "length": 32, "learning_rate": 1e-3, "quiet": True, "log_every": 1}


SST2 = [("bart", "glue/sst2"), ("gpt2", "glue/sst2"), ("t5", "text_to_text/sst2")]


@pytest.mark.full
@pytest.mark.parametrize(("family", "task"), SST2)
def test_sst2_is_classified(family, task, tmp_path):
    """By the decoder's last </s>, by the last token, and by writing the label."""
    rows = shared("data/glue/SST-2/train.tsv").read_text().splitlines()
    for name, lines in (("train", rows[1:161]), ("dev", rows[161:181])):
        (tmp_path / f"{name}.tsv").write_text("\n".join([rows[0], *lines]) + "\n")
    files = {name: tmp_path / f"{name}.tsv" for name in ("train", "dev")}
    with battery.eagerly():
        kb.finetune(tiny_run(family, tmp_path), task, files, out=tmp_path / "run", **QUICK)
    losses = [json.loads(line).get("loss") for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [loss for loss in losses if loss is not None]
    assert len(losses) == 20
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert kb.evaluate(tmp_path / "run", files["dev"])["examples"] == 20
    (answer,) = kb.predict(tmp_path / "run", ["a gripping film"])
    assert answer.to_json()


@pytest.mark.slow
def test_questions_in_two_languages_run_through(tmp_path, capsys):
    """xquad's questions, English and German, joined by their id and written as tsv: two updates, no BLEU is claimed."""
    read = [
        {
            qa["id"]: " ".join(qa["question"].split())
            for article in json.loads(shared(f"data/xquad/xquad.{language}.json").read_text())["data"]
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        }
        for language in ("en", "de")
    ]
    pairs = [(read[0][name], read[1][name]) for name in read[0]]
    assert len(pairs) == 769
    for name, some in (("train", pairs[:64]), ("dev", pairs[64:72])):
        lines = ["source\ttarget", *("\t".join(pair) for pair in some)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    run, model = str(tmp_path / "run"), str(tiny_run("t5", tmp_path))
    command = ["finetune", model, "--task", "translation", "--data", str(tmp_path), "--out", run, "--steps", "2"]
    prefix = "translate English to German: "
    with battery.eagerly():
        assert (
            main([*command, "--prefix", prefix, "--set", "task.target_length=12", "--batch", "4", "--length", "64"])
            == 0
        )
        assert " of 64 targets (" in (said := capsys.readouterr().err)
        assert "have more than 12 tokens and are cut" in said
        assert kb.load(run).task.options["prefix"] == prefix
        assert main(["evaluate", run, "--data", str(tmp_path), "--set", "task.beams=2"]) == 0
        assert "bleu: " in capsys.readouterr().out
        assert main(["predict", run, "--json", " ".join(4 * [pairs[80][0]])]) == 0
        assert json.loads(capsys.readouterr().out).keys() == {"text", "score", "truncated"}
        assert main(["predict", model, "--task", "translation", "--prefix", "to German: ", pairs[80][0]]) == 0
        assert capsys.readouterr().out
        assert main(["predict", run, "--set", "beams=2", "x"]) == 2
        assert "--set 'beams' is no option of a task, expected task.NAME=VALUE" in capsys.readouterr().err
        assert main(["predict", run, "--data", str(tmp_path / "dev.tsv"), "--out", str(tmp_path / "out.tsv")]) == 0
    header, *rows = (tmp_path / "out.tsv").read_text().splitlines()
    assert header.split("\t")[:4] == ["source", "target", "text", "score"]
    assert len(rows) == 8


@pytest.mark.full
def test_a_mixture_of_tasks_as_texts(tmp_path):
    """One model, drawn by examples up to a limit; an empty task is refused by its name."""
    tasks = {"translation": (toy(24, 0), toy(4, 1)), "generation": (toy(6, 2), toy(4, 3))}
    base = tiny_run("t5", tmp_path)
    settings = {"steps": 8, "batch": 4, "length": 24, "quiet": True, "sampling": "temperature", "sampling_limit": 8}
    with battery.eagerly():
        models = kb.finetune_tasks(base, tasks, out=tmp_path / "run", changes={"task.target_length": 8}, **settings)
    assert models.keys() == tasks.keys()
    assert kb.predict(models["translation"], ["the cat"])[0].to_json().keys() == {"text", "score"}
    tasks["generation"] = {"train": [], "dev": toy(4, 3)}
    with pytest.raises(InputError, match="generation: the rows in memory are none, expected at least one"):
        kb.finetune_tasks(base, tasks, out=tmp_path / "other", **settings)
    with pytest.raises(InputError, match="sampling_limit goes with sampling 'temperature'. Received: 'uniform'"):
        kb.finetune_tasks(base, tasks, out=tmp_path / "other", **settings | {"sampling": "uniform"})
