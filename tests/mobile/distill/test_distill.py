"""Whole distillations in the tiny world: run directories, resume, students of every kind, errors."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.base import softmax
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import values
from kerasbert.mobile.cli import main
from kerasbert.mobile.distill import distill, models
from kerasbert.mobile.distill.student_start import copy_encoder
from kerasbert.mobile.distill.texts import TextsFeed
from kerasbert.tasks import predict
from kerasbert.testing.battery import eagerly
from tests import tiny
from tests.mobile.distill import replicas
from tests.support import forked

QUICK = {"batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Labelled train and dev rows."""
    folder = tmp_path_factory.mktemp("texts")
    return {"train": tiny.labelled(folder / "train.tsv", 60, 2), "dev": tiny.labelled(folder / "dev.tsv", 40, seed=1)}


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Text without labels."""
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("\n".join(tiny.sentences(40, 5)) + "\n")
    return path


@pytest.fixture(scope="module")
def student(classifier, files, lines, tmp_path_factory):
    """A student that half of the teacher's layers were copied into."""
    out = tmp_path_factory.mktemp("student") / "run"
    losses = {"soft": 1.0, "labels": 0.5}
    distill(classifier, "half", files, out=out, losses=losses, unlabelled=[lines], steps=12, save_every=4, **QUICK)
    return out


def weights(run) -> dict[str, np.ndarray]:
    """A run's weights by name."""
    tensors = read_tensors(run)
    return {name: tensors.read(name) for name in tensors.names()}


def test_the_student_is_a_model_like_any_other(student, classifier):
    model, teacher = kb.load(student), kb.load(classifier)
    assert (model.spec.blocks.layers, model.spec.hidden) == (1, teacher.spec.hidden)
    assert model.labels == teacher.labels
    assert {answer.label for answer in kb.predict(model, ["the happy cat", "a bad film"])} <= {"neg", "pos"}
    assert {name.split("/")[0] for name in weights(student)} == {"embeddings", "block_0", "pooler", "heads"}
    run = json.loads((student / "run.json").read_text())
    assert run["kind"] == "distill"
    assert run["finished_steps"] == 12
    assert run["settings"]["recipe"] == {"losses": {"soft": 1.0, "labels": 0.5}, "temperature": 1.0, "layers": None}
    logs = [json.loads(line) for line in (student / "metrics.jsonl").read_text().splitlines()]
    assert {"soft", "labels", "soft/agreement", "dev/accuracy"} <= set().union(*logs)


@pytest.mark.slow
def test_a_killed_distillation_goes_on_to_the_same_bits(student, classifier, files, lines, tmp_path, monkeypatch):
    made = TextsFeed.made

    def killed(self, step):
        for number, arrays in enumerate(made(self, step), step):
            if number == 7:
                raise KeyboardInterrupt
            yield arrays

    call = {"losses": {"soft": 1.0, "labels": 0.5}, "unlabelled": [lines], "steps": 12, "save_every": 4, **QUICK}
    monkeypatch.setattr(TextsFeed, "made", killed)
    with pytest.raises(KeyboardInterrupt):
        distill(classifier, "half", files, out=tmp_path / "run", **call)
    with pytest.raises(InputError, match="unfinished run"):
        kb.load(tmp_path / "run")
    monkeypatch.setattr(TextsFeed, "made", made)
    distill(classifier, "half", files, out=tmp_path / "run", **call)
    one, other = weights(student), weights(tmp_path / "run")
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)
    # nothing is made again by a third call, and another recipe is refused
    monkeypatch.setattr(TextsFeed, "made", None)
    distill(classifier, "half", files, out=tmp_path / "run", **call)
    with pytest.raises(InputError, match=r"another run: recipe.temperature is 1.0 there, 2.0 asked for"):
        distill(classifier, "half", files, out=tmp_path / "run", temperature=2.0, **call)


@pytest.mark.slow
def test_two_stages_of_tinybert(classifier, files, tmp_path):
    """Layers first, without a head; then answers. No matrix of the training is left."""
    changes = {**tiny.SPEC, "hidden": 8, "blocks.layers": 1}
    call = {**QUICK, "steps": 4}
    with eagerly():
        first = distill(
            classifier, "tinybert/4x312", files, out=tmp_path / "1", recipe="tinybert", changes=changes, **call
        )
        second = distill(classifier, tmp_path / "1", files, out=tmp_path / "2", **call)
    assert type(first).__name__ == "Encoder"
    assert not [name for name in weights(tmp_path / "1") if name.startswith("heads")]
    training = Safetensors(tmp_path / "1" / "checkpoints" / "step_4" / "weights.safetensors").names()
    assert {"heads/widen_hidden/kernel", "heads/widen_embeddings/kernel"} < set(training)
    assert len(training) == len(weights(tmp_path / "1")) + 2  # of the teacher nothing
    assert second.labels == ("neg", "pos")
    # the teacher's answers can be shared; they are read, not worked out again
    (kept,) = (tmp_path / "2" / "cache").glob("teacher-*.safetensors")
    before = kept.stat().st_mtime_ns
    with eagerly():
        again = distill(classifier, tmp_path / "1", files, out=tmp_path / "3", cache=tmp_path / "2" / "cache", **call)
    assert kept.stat().st_mtime_ns == before
    assert all((value == values(again)[name]).all() for name, value in values(second).items())


@pytest.mark.slow
def test_distilbert_on_records(pretrained, tmp_path):
    """The triple loss; the student starts from the teacher's first layer, embeddings and token head."""
    records = tiny.records(tmp_path)
    distill(
        pretrained, 1, records, out=tmp_path / "run", recipe="distilbert", steps=3, batch=8, log_every=1, quiet=True
    )
    kept = weights(tmp_path / "run")
    assert "heads/mlm/transform/kernel" in kept
    logs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {"soft", "labels", "cosine"} <= set(logs[0])
    # a rate of 1e-4: still near the weights that were copied
    assert max(float(np.abs(kept[n] - v).max()) for n, v in weights(pretrained).items() if n in kept) < 1e-3


def test_layers_are_copied(classifier, tmp_path):
    source, _, tokenizer = models.find_teacher(classifier)
    teacher = models.build_encoder(source, tokenizer)
    target = models.find_student(1, source, tokenizer)
    student = models.build_encoder(target, tokenizer)
    copy_encoder(student, teacher, target.layers)
    mine, theirs = values(student), values(teacher)
    assert all((value == theirs[name]).all() for name, value in mine.items())
    # into a DistilBERT too, which has no segments and no pooler; not into another width
    changes = {**tiny.SPEC, "blocks.layers": 2}
    target = models.find_student("distilbert/base", source, tokenizer, changes=changes, copy_layers=True)
    student = models.build_encoder(target, tokenizer)
    copy_encoder(student, teacher, (1, 0))
    assert (values(student)["block_0/attention/query/kernel"] == theirs["block_1/attention/query/kernel"]).all()
    assert "pooler/kernel" not in values(student)
    narrow = models.find_student("distilbert/base", source, tokenizer, changes=changes | {"hidden": 8})
    with pytest.raises(InputError, match="the teacher has no weights for 34 of the student's: embeddings"):
        copy_encoder(models.build_encoder(narrow, tokenizer), teacher, (0, 1))


def test_embeddings_are_narrowed_to_the_rank_they_have(pretrained):
    """Tables of rank 6 in 6 columns: the narrow embeddings give what the wide ones give, up to the norm's scale."""
    source, _, tokenizer = models.find_teacher(pretrained)
    teacher = models.build_encoder(source, tokenizer)
    generator = np.random.default_rng(0)
    axes = generator.normal(size=(6, 16))
    axes -= axes.mean(1, keepdims=True)
    for name in ("tokens", "positions", "segments"):
        table = getattr(teacher.embeddings, name).table
        size = 1 if name == "tokens" else 0.1
        table.assign(size * generator.normal(size=(table.shape[0], 6)) @ axes)
    target = models.find_student(2, source, tokenizer, changes={"embeddings.width": 6})
    student = models.build_encoder(target, tokenizer)
    copy_encoder(student, teacher, target.layers)
    ids = np.arange(5, 25, dtype="int32")[None]
    mine, theirs = (np.asarray(model.embeddings(ids)) for model in (student, teacher))
    assert np.square(mine - theirs).mean() < 0.1 * theirs.var()
    names = values(student)
    assert names["embeddings/tokens/table"].shape == (75, 6)
    assert (names["block_1/attention/query/kernel"] == values(teacher)["block_1/attention/query/kernel"]).all()


def test_specs_of_a_pruned_teacher():
    spec = kb.build("bert/tiny").spec.derive(
        {"blocks.layers": 3, "attention.heads": [2, 1, 2], "attention.head_size": 64}
    )
    assert models.fewer(spec, (0, 2)).attention.heads == (2, 2)


SMALL = {**tiny.SPEC, "hidden": 8, "blocks.layers": 2}


@pytest.mark.parametrize(
    ("student", "given", "text"),
    [
        ("bert/tinny", {}, "no model 'bert/tinny'. Nearest: 'bert/tiny'"),
        (9, {}, "a student of 9 layers, expected 1 to 2"),
        ("bert/tiny", {"temperature": 0}, "temperature must be a number above 0"),
        (
            "bert/tiny",
            {"recipe": "tinybert", "layers": [1, 7], "changes": SMALL},
            "teacher's layer 7, which has layers 1",
        ),
        ("bert/tiny", {"recipe": "mobilebert", "changes": SMALL | {"attention.heads": 4}}, "student has 4 heads"),
        ("bert/tiny", {"changes": SMALL | {"embeddings.vocabulary": 9}}, "the student has 9 token embeddings"),
        ("bert/tiny", {"changes": SMALL, "metric": "acuracy"}, "no metric 'acuracy' for a classification"),
        ("bert/tiny", {"changes": SMALL, "batch": 0}, "batch must be a whole number of at least 1"),
    ],
)
def test_what_is_refused_before_anything_is_written(classifier, files, tmp_path, student, given, text):
    with pytest.raises(InputError, match=text):
        distill(classifier, student, files, out=tmp_path / "run", **{**QUICK, **given})
    assert not (tmp_path / "run").exists()


def test_files_and_teachers_that_are_refused(classifier, pretrained, files, tmp_path):
    def refused(text, teacher=classifier, data=files, student="half", **given):
        with pytest.raises(InputError, match=text):
            distill(teacher, student, data, out=tmp_path / "run", **{**QUICK, **given})
        assert not (tmp_path / "run").exists()

    (tmp_path / "empty.txt").write_text("\n\n")
    refused("empty.txt holds no text, expected at least one", unlabelled=[tmp_path / "empty.txt"])
    refused("the teacher has no task and data are no records", teacher=pretrained)
    refused("is no model directory", teacher=tmp_path)
    refused("the loss labels needs a train file", data={"dev": files["dev"]}, losses={"labels": 1.0})
    refused("empty corpus: neither train rows nor unlabelled", data={"dev": files["dev"]})
    records = tiny.records(tmp_path)
    refused("steps is missing", teacher=pretrained, data=records)
    refused("has no head 'mlm'", data=records, steps=2)
    refused("records are unlabelled text already", teacher=pretrained, data=records, unlabelled=["x"], steps=2)
    other = tmp_path / "other"
    models.checkpoints.save_model(
        other,
        encoder=kb.load(pretrained),
        name="bert/tiny",
        tokenizer=type(tiny.tokenizer())(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]),
    )
    refused("has another tokenizer", student=other)


def test_the_command(classifier, files, tmp_path, capsys):
    call = [
        "distill",
        str(classifier),
        "--student",
        "half",
        "--data",
        str(files["train"]),
        "--out",
        str(tmp_path / "run"),
    ]
    rest = ["--loss", "logits=1", "--loss", "labels=0.1", "--steps", "2", "--batch", "20", "--length", "16", "--quiet"]
    with eagerly():
        assert main([*call, *rest, "--learning-rate", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(tmp_path / "run")}
    assert kb.load(tmp_path / "run").spec.blocks.layers == 1
    assert main([*call, "--recipe", "sofd"]) == 2
    assert capsys.readouterr().err == (
        "error: no recipe 'sofd'. Nearest: 'soft'. All: soft, logits, distilbert, tinybert, mobilebert, "
        "mobilebert-answers\n"
    )


@pytest.mark.slow
def test_two_replicas_are_one(classifier, files, tmp_path):
    """All losses, dropout on; and a whole run from the command line."""
    forked("-m", "tests.mobile.distill.replicas", "cpu:2", tmp_path / "two.npz")
    replicas.main("cpu", tmp_path / "one.npz")
    found = [(dict(np.load(tmp_path / "one.npz")), dict(np.load(tmp_path / "two.npz")))]
    call = [
        "distill",
        classifier,
        "--student",
        "half",
        "--data",
        files["train"],
        "--steps",
        "4",
        "--batch",
        "20",
        "--quiet",
    ]
    forked("-m", "kerasbert.mobile.cli", *call, "--out", tmp_path / "two", "--strategy", "cpu:2", "--length", "16")
    assert main([*map(str, call), "--out", str(tmp_path / "one"), "--length", "16"]) == 0
    found.append((weights(tmp_path / "one"), weights(tmp_path / "two")))
    for one, two in found:
        assert one.keys() == two.keys()
        assert max(float(np.abs(one[name] - two[name]).max()) for name in one) < 1e-6


@pytest.mark.full
def test_a_distilled_student_agrees_more_than_one_of_the_labels_alone(classifier, pretrained, tmp_path):
    """Few labels, text without them: the same start, the same number of updates."""
    few = {"train": tiny.labelled(tmp_path / "few.tsv", 16, 7), "dev": tiny.labelled(tmp_path / "dev.tsv", 200, 1)}
    tiny.labelled(tmp_path / "more.tsv", 400, 9)
    call = {**QUICK, "batch": 16, "steps": 150, "seed": 3, "metric": "loss"}
    alone = kb.finetune(pretrained, "classification", few, out=tmp_path / "alone", **call)
    taught = distill(classifier, pretrained, few, out=tmp_path / "taught", unlabelled=tmp_path / "more.tsv", **call)
    texts = [line.split("\t")[0] for line in few["dev"].read_text().splitlines()[1:]]
    teacher, alone, taught = (softmax(predict.outputs(m, texts)) for m in (kb.load(classifier), alone, taught))
    agreement = [float((x.argmax(-1) == teacher.argmax(-1)).mean()) for x in (alone, taught)]
    distance = [float(np.abs(x - teacher).mean()) for x in (alone, taught)]
    print("agreement alone, taught", agreement, "mean difference of probability", distance)
    assert agreement[1] >= agreement[0] + 0.02
    assert distance[1] < distance[0] / 2


@pytest.mark.slow
def test_a_regression_is_imitated_in_its_unit(classifier, tmp_path):
    rows = [line.split("\t") for line in tiny.labelled(tmp_path / "rows.tsv", 120).read_text().splitlines()[1:]]
    rows = [(text, 1000 if label == "neg" else 2000) for text, label in rows]
    kb.finetune(classifier, "regression", rows, out=tmp_path / "teacher", epochs=2, **QUICK)
    losses = {"logits": 1.0, "labels": 0.5}
    student = distill(tmp_path / "teacher", "half", rows, out=tmp_path / "run", losses=losses, epochs=2, **QUICK)
    assert (student.task.mean, student.task.std) == pytest.approx((1500, 500), rel=0.01)
    found = kb.evaluate(tmp_path / "run", rows)
    assert found["rows"].endswith("held out of the rows in memory")
    assert found["metrics"]["mean_squared_error"] < 0.5 * 500**2
    logs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["logits"] < 10 for line in logs if "logits" in line)  # in squared standard deviations
    assert any("logits" in line for line in logs)
