"""Several models that answer as one, and a task that begins where another ended."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.mobile import compress
from kerasbert.tasks.base import Task
from kerasbert.tasks.ensemble import Ensemble
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.predict import outputs
from kerasbert.testing.battery import eagerly
from tests import tiny

LABELS = {"0": "neg", "1": "pos"}
TEXTS = ["the happy cat", "a bad film sees the dog"]
pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config")


def model(kind: str, seed: int, **task):
    """A task's model with random weights far from zero."""
    encoder = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = tiny.tokenizer()
    made = TaskModel(encoder, Task(kind, kind=kind, **{"labels": LABELS, "length": 16} | task))
    made.build()
    generator = np.random.default_rng(seed)
    for weight in made.weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return made


def test_probabilities_numbers_and_logits_are_averaged():
    with eagerly():
        pair = [model("classification", seed) for seed in (0, 1)]
        each = [[answer.scores for answer in kb.predict(one, TEXTS)] for one in pair]
        for i, answer in enumerate(kb.predict(pair, TEXTS)):
            wanted = {label: (each[0][i][label] + each[1][i][label]) / 2 for label in answer.scores}
            assert answer.scores == pytest.approx(wanted, abs=1e-6)
            assert answer.label == max(wanted, key=wanted.__getitem__)
        assert abs(each[0][0]["pos"] - each[1][0]["pos"]) > 0.01
        pair = [model("multi_label", seed) for seed in (0, 1)]
        each = [[answer.scores["pos"] for answer in kb.predict(one, TEXTS)] for one in (*pair, pair)]
        assert each[2] == pytest.approx(np.mean(each[:2], axis=0), abs=1e-6)
        pair = [model("regression", seed, labels={}, mean=float(seed)) for seed in (0, 1)]
        each = [[answer.value for answer in kb.predict(one, TEXTS)] for one in (*pair, pair)]
        assert each[2] == pytest.approx(np.mean(each[:2], axis=0), abs=1e-6)
        pair = [model("tags", seed) for seed in (0, 1)]
        words = [text.split() for text in TEXTS]
        logits = [outputs(one, words) for one in (*pair, Ensemble(pair))]
        for row in zip(*logits):
            one, two, both = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in row)
            np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)
        pair = [model("span", seed, labels={}, text="question", text_b="context") for seed in (0, 1)]
        asked = [("the cat", "the old dog sees the new house"), ("a film", "bad film")]
        logits = [outputs(one, asked) for one in (*pair, Ensemble(pair))]
        for one, two, both in zip(*logits):
            np.testing.assert_allclose(both, (one + two) / 2, atol=1e-5)
        assert kb.predict(pair, asked)[0].text


def test_thresholds_are_the_means_whatever_the_order(capsys):
    """The first model's were taken: A with B and B with A answered otherwise."""
    with eagerly():
        pair = [
            model("multi_label", seed, options={"thresholds": each})
            for seed, each in enumerate(([0.1, 3e-7], [0.9, 1e-7]))
        ]
        both = Ensemble(pair)
        assert both.task.options["thresholds"] == pytest.approx([0.5, 2e-7], rel=1e-6)
        assert both.remarks == ["thresholds is the mean of those of the 2 models"]
        assert kb.predict(pair, TEXTS) == kb.predict(pair[::-1], TEXTS)
        assert kb.predict(pair, TEXTS)[0].labels == tuple(
            name for name, least in zip(both.labels, (0.5, 2e-7)) if kb.predict(pair, TEXTS)[0].scores[name] >= least
        )
        one = model("multi_label", 2)  # 0.5, which no file holds
        assert Ensemble([pair[0], one]).task.options["thresholds"] == pytest.approx([0.3, 0.25], rel=1e-6)
        assert Ensemble([one, one]).remarks == ["thresholds is the mean of those of the 2 models"]
        options = [{"unanswerable": True, "null_threshold": each} for each in (-2.0, 5.0)]
        asked = {"labels": {}, "text": "question", "text_b": "context"}
        spans = [model("span", seed, options=each, **asked) for seed, each in enumerate(options)]
        assert Ensemble(spans).task.options == {"unanswerable": True, "null_threshold": 1.5}
        assert Ensemble([model("classification", 0)]).remarks == []


def test_models_that_do_not_go_together_are_refused():
    one = model("classification", 0)
    with pytest.raises(InputError, match="needs one set of labels: the first has neg, pos, another has no, pos"):
        Ensemble([one, model("classification", 1, labels={"0": "no", "1": "pos"})])
    with pytest.raises(
        InputError, match="needs one kind of task: the first has classification, another has multi_label"
    ):
        Ensemble([one, model("multi_label", 1)])
    with pytest.raises(InputError, match="needs one number of texts: the first has 1, another has 2"):
        Ensemble([one, model("classification", 1, text_b="b")])
    with pytest.raises(InputError, match="model 2 has no task, expected a fine-tuned model"):
        Ensemble([one, one.encoder])
    crf = model("tags", 0, options={"crf": True})
    with pytest.raises(InputError, match="model 1 answers by its crf too, of which there is no mean"):
        Ensemble([crf, crf])
    spans = {"labels": {}, "text": "question", "text_b": "context"}
    with pytest.raises(InputError, match="needs one set of options: the first has max_answer 30, .* has max_answer 9"):
        Ensemble([model("span", 0, **spans), model("span", 1, options={"max_answer": 9}, **spans)])
    with pytest.raises(InputError, match="needs one language: the first has en, another has de"):
        Ensemble([model("classification", seed, settings={"language": each}) for seed, each in enumerate(("en", "de"))])
    weighted = model("classification", 2, options={"class_weights": {"pos": 2.0}})  # of its training alone
    assert Ensemble([one, weighted]).labels == ("neg", "pos")
    with pytest.raises(InputError, match="an ensemble of no models, expected one or more"):
        kb.predict([], TEXTS)
    other = model("classification", 1)
    other.tokenizer = type(tiny.tokenizer())([*tiny.tokenizer().vocabulary[:-1], "zebra"])
    with pytest.raises(InputError, match="needs one tokenizer: the first has [0-9a-f]{12}, another has [0-9a-f]{12}"):
        Ensemble([one, other])
    assert Ensemble([one, model("classification", 1, length=9)]).task.length == 9


def test_vectors_have_no_head_that_could_be_left_out(pretrained, tmp_path, capsys):
    rows = [("a cat", "the cat"), ("a film", "the film")] * 4
    settings = {"steps": 1, "batch": 2, "warmup": 0}
    with eagerly():
        first = kb.finetune(pretrained, "pairs", {"train": rows, "dev": rows}, out=tmp_path / "first", **settings)
        kb.finetune(first.directory, "pairs", {"train": rows, "dev": rows}, out=tmp_path / "next", **settings)
        kb.finetune(
            first.directory, "classification", tiny.labelled(tmp_path / "my.tsv", 30), out=tmp_path / "more", steps=1
        )
    assert "left out" not in capsys.readouterr().err


def test_a_task_that_starts_from_another_takes_its_encoder_and_leaves_its_head(classifier, tmp_path, capsys):
    """And both answer as one on the command line."""
    path, out = tiny.labelled(tmp_path / "my.tsv", 30), tmp_path / "next"
    with eagerly():
        kb.finetune(classifier, "classification", path, out=out, steps=1, batch=10, learning_rate=0.0, warmup=0)
    told = f"starts from the encoder of {classifier}; its head, of classification, is left out (its labels fit: --keep-head, "
    assert told in capsys.readouterr().err
    before, after = read_tensors(classifier), read_tensors(out)
    encoder = names(kb.load(classifier).encoder)
    assert all((before.read(name) == after.read(name)).all() for name in encoder)
    assert (before.read("heads/classifier/kernel") != after.read("heads/classifier/kernel")).any()
    with eagerly():
        assert main(["predict", str(classifier), "--ensemble", str(out), "--json", "the happy cat"]) == 0
        scores = json.loads(capsys.readouterr().out)["scores"]
        each = [kb.predict(run, ["the happy cat"])[0].scores["pos"] for run in (classifier, out)]
        assert scores["pos"] == pytest.approx(sum(each) / 2, abs=1e-5)
        assert main(["evaluate", str(classifier), "--ensemble", str(out), "--data", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"].startswith("30 rows of ")


def test_what_needs_one_model_refuses_several(tmp_path):
    both, out = Ensemble([model("classification", seed) for seed in (0, 1)]), tmp_path / "out"
    rows = [("a", "neg"), ("b", "pos")]
    uses = [
        lambda: kb.finetune(both, "classification", rows, out=out),
        lambda: kb.save(both, out),
        lambda: kb.export(both, out),
        lambda: kb.encode(both, ["a"]),
        lambda: kb.explain(both, ["a"]),
        lambda: compress(both, out=out),
        lambda: kb.Index.build(both, ["a"], out),
    ]
    for use in uses:
        with pytest.raises(
            InputError, match="an ensemble of 2 models predicts and is evaluated, and no more: give one"
        ):
            use()
    assert not out.exists()
