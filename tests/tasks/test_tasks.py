"""Tasks: files, labels, batches, metrics, answers."""

import json
import logging

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.inputs import row
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import Encoded, encode_texts, epoch_order, ordered_batches, training_batches
from kerasbert.tasks.task import Rows, Task, find_labels, find_task, held_out, read_rows, split_files
from tests import tiny
from tests.support import forked


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_sst2_knows_its_columns_and_labels(tmp_path):
    path = write(tmp_path / "dev.tsv", "sentence\tlabel", 'it "works\t1', "awful\t0")
    rows = read_rows(find_task("glue/sst2"), path)
    assert rows.texts == ['it "works', "awful"]
    assert rows.targets.tolist() == [1, 0]
    assert find_task("glue/sst2").labels == {"0": "negative", "1": "positive"}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.tsv", ["q\tr\ty", "one\ttwo\tb", "three\tfour\ta"]),
        ("a.csv", ["q,r,y", '"one",two,b', "three,four,a"]),
        ("a.jsonl", ['{"q": "one", "r": "two", "y": "b"}', '{"q": "three", "r": "four", "y": "a"}']),
    ],
)
def test_a_users_own_pairs_in_three_formats(tmp_path, name, lines):
    path = write(tmp_path / name, *lines)
    task = find_labels(find_task("classification", text="q", text_b="r", label="y"), path)
    assert task.labels == {"a": "a", "b": "b"}
    rows = read_rows(task, path)
    assert rows.texts == [("one", "two"), ("three", "four")]
    assert rows.targets.tolist() == [1, 0]
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_numeric_labels_are_ordered_as_numbers(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel", *(f"x\t{i}" for i in (10, 9, 2)))
    assert list(find_labels(find_task("classification"), path).labels) == ["2", "9", "10"]


@pytest.mark.parametrize(
    ("task", "lines", "text"),
    [
        (
            "glue/sst2",
            ["sentence\tlabel", "x\t1", "y\t2"],
            r"a.tsv, line 3: label '2' is unknown. Expected one of: 0, 1",
        ),
        ("glue/sst2", ["text\tlabel", "x\t1"], "no column 'sentence'"),
        ("regression", ["text\tlabel", "x\tlow"], "a.tsv, line 2: 'low' is not a number"),
    ],
)
def test_wrong_rows_are_named(tmp_path, task, lines, text):
    with pytest.raises(InputError, match=text):
        read_rows(find_task(task), write(tmp_path / "a.tsv", *lines))


def test_folders_and_files(tmp_path):
    with pytest.raises(InputError, match="holds no train or dev file"):
        split_files(tmp_path)
    train, dev = write(tmp_path / "train.csv", "x"), write(tmp_path / "validation.jsonl", "{}")
    assert split_files(tmp_path) == split_files((train, dev)) == {"train": train, "dev": dev}
    with pytest.raises(InputError, match="no file or folder"):
        split_files(tmp_path / "absent")


def test_holding_out_is_a_tenth_of_every_label_and_of_the_data_alone():
    labels = np.repeat([0, 1, 2], [2000, 900, 100])
    rows = Rows([str(i // 2) for i in range(3000)], labels)  # every text twice
    numbers = held_out(rows)
    assert np.bincount(labels[numbers]).tolist() == [200, 90, 10]
    texts = {rows.texts[i] for i in numbers}
    assert texts.isdisjoint(rows.texts[i] for i in set(range(3000)) - set(numbers.tolist()))
    shuffled = np.random.default_rng(0).permutation(3000)
    again = held_out(rows.take(shuffled))
    assert sorted(shuffled[again]) == numbers.tolist()
    with pytest.raises(InputError, match="9 rows are too few to hold some out"):
        held_out(rows.take(range(0, 18, 2)))


def test_batches_hold_every_row_once_an_epoch_and_can_start_anywhere():
    lengths = np.random.default_rng(0).integers(3, 30, 50)
    encoded = Encoded([row([2] + [7] * (n - 1), [0] * n) for n in lengths], np.arange(50))
    arguments = {"batch": 8, "longest": 30, "seed": 3}
    made = training_batches(encoded, np.arange(50), **arguments)
    epochs = [[next(made) for _ in range(7)] for _ in range(2)]
    for batches in epochs:
        seen = np.concatenate([batch["label"][batch["label_weight"] == 1] for batch in batches])
        assert sorted(seen.tolist()) == list(range(50))
        assert {batch["token_ids"].shape for batch in batches} == {(8, 16), (8, 30)}
    fourth = next(training_batches(encoded, np.arange(50), start=10, **arguments))
    for name, value in epochs[1][3].items():
        np.testing.assert_array_equal(fourth[name], value)
    assert [o.tolist() for o in epoch_order(encoded, 8, 3, 0)] != [o.tolist() for o in epoch_order(encoded, 8, 3, 1)]
    assert sorted(np.concatenate([i for i, _ in ordered_batches(encoded, 30, 8)]).tolist()) == list(range(50))


def test_pads_are_the_tokenizers():
    tokenizer = tiny.tokenizer()
    arrays = encode_texts(tokenizer, ["the cat", ("the", "dog sees")], 16).arrays([0, 1], 16)
    assert arrays["token_ids"].shape == (2, 16)
    assert (arrays["token_ids"][arrays["padding_mask"] == 0] == tokenizer.pad_id).all()
    assert arrays["padding_mask"].sum(1).tolist() == [4, 6]
    assert arrays["segment_ids"].sum(1).tolist() == [0, 3]


def test_metrics_by_hand():
    # targets 0 0 1 1, predicted 0 1 1 1: accuracy 3/4; F1 2/3 and 4/5; Matthews 2 / sqrt(12)
    logits = np.array([[2, 0], [0, 2], [0, 2], [0, 2]], "float32")
    found = find("classification").metrics(Task("t", labels={"a": "a", "b": "b"}), logits, np.array([0, 0, 1, 1]))
    assert found["accuracy"] == 0.75
    assert found["f1_macro"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert found["matthews"] == pytest.approx(2 / np.sqrt(12))
    assert found["loss"] == pytest.approx(np.log(1 + np.exp(-2)) + 2 / 4)
    # ranks of 1 2 2 3 are 0 1.5 1.5 3
    found = find("regression").metrics(Task("t", kind="regression"), np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4]))
    assert found["pearson"] == pytest.approx(0.9486832)
    assert found["spearman"] == pytest.approx(0.9486832)
    assert found["mean_squared_error"] == 0.5


def test_a_classifier_learns_predicts_and_is_evaluated(classifier, tmp_path):
    model = kb.load(classifier)
    assert (model.labels, model.task.kind, model.spec.hidden) == (("neg", "pos"), "classification", 16)
    dev = tiny.labelled(tmp_path / "dev.tsv", 80, seed=2)
    found = kb.evaluate(classifier, dev)
    assert found["examples"] == 80
    assert found["metrics"]["accuracy"] > 0.9
    good, bad = kb.predict(model, ["the happy cat", "a sad dog"])
    assert (good.label, bad.label) == ("pos", "neg")
    assert good.score == good.scores["pos"] == max(good.scores.values())
    assert sum(good.scores.values()) == pytest.approx(1, abs=1e-5)
    assert kb.predict(model, []) == []


def test_order_and_neighbours_do_not_change_an_answer(classifier):
    model = kb.load(classifier)
    texts = tiny.sentences(70, 5)
    together = [answer.scores["pos"] for answer in kb.predict(model, texts)]
    assert together[::-1] == pytest.approx([a.scores["pos"] for a in kb.predict(model, texts[::-1])], abs=1e-6)
    assert kb.predict(model, texts[3:4])[0].scores["pos"] == pytest.approx(together[3], abs=1e-6)


def test_weights_too_large_to_compute_with_are_told(classifier):
    """Damage that stays finite: a file without a hash (Hugging Face's) may hold it."""
    model = kb.load(classifier)
    kernel = model.encoder.get_layer("block_0").feedforward.outer.kernel
    kernel.assign(np.full(kernel.shape, 1e38, "float32"))
    with pytest.raises(InputError, match=r"^the model answers with numbers that are not finite: [^\n]*$"):
        kb.predict(model, ["a text"])


@pytest.mark.slow
def test_many_models_in_a_process_are_no_warning(caplog, monkeypatch):
    """TensorFlow warns of a function that is traced again and again; each model here has its own."""
    monkeypatch.setattr(logging.getLogger("tensorflow"), "propagate", True)
    for _ in range(7):
        model = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
        model.tokenizer = tiny.tokenizer()
        kb.encode(model, tiny.sentences(2, seed=0))
    assert [record.getMessage() for record in caplog.records] == []


def test_vectors(pretrained):
    model = kb.load(pretrained)
    vectors = kb.encode(pretrained, ["the cat", "the cat sees a dog"])
    assert vectors.shape == (2, 16)
    ids, _ = model.tokenizer.pack("the cat")
    alone = np.asarray(model({"token_ids": np.array([ids])})["sequence"]).mean(1)
    np.testing.assert_allclose(vectors[:1], alone, atol=1e-5)
    assert not np.allclose(vectors, kb.encode(model, ["the cat", "the cat sees a dog"], pooling="first"))
    with pytest.raises(
        InputError, match="no pooling 'maxi'. Nearest: 'max'. Expected one of: mean, first, last, max, "
    ):
        kb.encode(model, ["x"], pooling="maxi")


@pytest.mark.slow
def test_regression_on_pairs_and_early_stop(pretrained, tmp_path):
    lines = [f"{a}\t{b}\t{len(a) - len(b)}" for a, b in zip(tiny.sentences(60, 1), tiny.sentences(60, 2))]
    path = write(tmp_path / "train.tsv", "a\tb\tn", *lines)
    columns = {"text_column": "a", "text_b_column": "b", "label_column": "n"}
    settings = {"epochs": 9, "batch": 16, "learning_rate": 0.0, "patience": 2, "length": 24, "quiet": True}
    model = kb.finetune(pretrained, "regression", path, out=tmp_path / "run", **columns, **settings)
    # a rate of 0 never improves: the first evaluation and two more
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len([line for line in lines if "dev/spearman" in line]) == 3
    assert isinstance(kb.predict(model, [("the cat", "a dog")])[0].value, float)
    with pytest.raises(InputError, match=r"text 0 is one text, expected a pair \(text_a, text_b\)"):
        kb.predict(model, ["alone"])


def test_of_equal_weights_the_surer_are_kept(tmp_path):
    """Of accuracy 1.0 at three updates the first were kept, with a third of the probability. Patience begins anew."""
    from types import SimpleNamespace

    from kerasbert.tasks.task import find_task
    from kerasbert.training.best_weights import BestWeights

    found = [(0.5, 1.0), (1.0, 0.9), (1.0, 0.6), (1.0, 0.7), (0.9, 0.1)]
    task, kept = find_task("classification"), []
    self = SimpleNamespace(
        task=task, constraint=None, state={"best": None, "step": 0, "worse": 0}, stopped=False, chosen=lambda *_: {}
    )
    self.keep = lambda state: (kept.append(state["step"]), setattr(self, "state", state | {"worse": 0}))
    self._better = lambda metrics: BestWeights._better(self, metrics)
    worse = []
    for step, (accuracy, loss) in enumerate(found, 1):
        self.measured = lambda accuracy=accuracy, loss=loss: (None, {task.metric: accuracy, "loss": loss})
        BestWeights.__call__(self, step)
        worse.append(self.state["worse"])
    assert (kept, worse) == ([1, 2, 3], [0, 0, 0, 1, 2])


def test_the_best_weights_are_kept_not_the_last(classifier):
    lines = [json.loads(line) for line in (classifier / "metrics.jsonl").read_text().splitlines()]
    best = max(line["dev/accuracy"] for line in lines if "dev/accuracy" in line)
    assert kb.evaluate(classifier, classifier.parent / "dev.tsv")["metrics"]["accuracy"] == pytest.approx(best)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"task": "glue/sst3"}, "no task 'glue/sst3'. Nearest: 'glue/sst2'"),
        ({"metric": "bleu"}, "no metric 'bleu' for a classification"),
        ({"length": 2}, "length must be a whole number of at least 3"),
        ({"changes": {"hidden": 8}}, "cannot change hidden of trained weights: dropout may change"),
        ({"batch": 0}, "batch must be a whole number"),
        ({"label_column": "lable"}, "no column 'lable'. Nearest: 'label'"),
    ],
)
def test_bad_settings_leave_nothing(pretrained, tmp_path, arguments, text):
    path = tiny.labelled(tmp_path / "train.tsv", 30)
    with pytest.raises(InputError, match=text):
        kb.finetune(pretrained, data=path, out=tmp_path / "run", quiet=True, **{"task": "classification"} | arguments)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_one_file_on_two_replicas(tmp_path):
    """Rows are held out of it: TensorFlow must not work before the CPU is divided."""
    tiny.labelled(tmp_path / "train.tsv")
    code = f"""
import kerasbert as kb
from tests import tiny
encoder = kb.build("bert/tiny", **tiny.SPEC, **{{"embeddings.vocabulary": tiny.tokenizer().size}})
from kerasbert.checkpoints import save_model
save_model({str(tmp_path / "model")!r}, encoder=encoder, name="bert/tiny", tokenizer=tiny.tokenizer())
"""
    forked("-c", code)
    code = f"""
import kerasbert as kb
kb.finetune({str(tmp_path / "model")!r}, "classification", {str(tmp_path / "train.tsv")!r}, out={str(tmp_path / "run")!r},
            steps=2, batch=8, strategy="cpu:2", quiet=True)
"""
    forked("-c", code)
    assert (tmp_path / "run" / "weights.safetensors").is_file()
