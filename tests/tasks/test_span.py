"""Spans from a file to the server and the phone, and the loss beside transformers'."""

import json
import random

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks import predict, span
from kerasbert.tasks.batches import encode_texts, training_batches
from kerasbert.tasks.span import Target
from kerasbert.tasks.task import read_rows
from tests import tiny
from tests.checkpoints import theirs
from tests.support import once

LENGTH = 24


def squad_file(path, count, seed):
    """A question asks for the one word of GOOD; a fifth of the contexts has none."""
    draw, questions = random.Random(seed), []
    others = [word for word in tiny.WORDS if word not in tiny.GOOD]
    for i in range(count):
        words, answer = draw.choices(others, k=draw.randint(6, 40)), draw.choice(tiny.GOOD)
        place = draw.randint(0, len(words))
        start = len(" ".join([*words[:place], ""]))
        if i % 5:
            words.insert(place, answer)
        answers = [{"text": answer, "answer_start": start}] if i % 5 else []
        asked = {
            "id": f"q{i}",
            "question": draw.choice(["film", "the film"]),
            "answers": answers,
            "is_impossible": not answers,
        }
        questions.append({"context": " ".join(words), "qas": [asked]})
    path.write_text(json.dumps({"version": "2", "data": [{"title": "x", "paragraphs": questions}]}))
    return path


@pytest.fixture(scope="session")
def run(pretrained, tmp_path_factory):
    def make(folder):
        files = {"train": squad_file(folder / "train.json", 250, 0), "dev": squad_file(folder / "dev.json", 60, 1)}
        settings = {"epochs": 4, "batch": 24, "learning_rate": 1e-2, "length": LENGTH, "quiet": True}
        kb.finetune(pretrained, "squad2", files, out=folder / "run", **settings)

    return once(tmp_path_factory, "span", make)[0] / "run"


@pytest.mark.slow
def test_it_learns_and_predicts_over_a_file(run, tmp_path, capsys):
    found = kb.evaluate(run, run.parent / "dev.json")["metrics"]
    assert list(found) == ["exact_match", "f1", "has_answer_exact_match", "has_answer_f1", "no_answer"]
    assert found["exact_match"] > 0.9, found
    model = kb.load(run)
    texts = read_rows(model.task, run.parent / "train.json").texts
    rows = len(predict.encoded_for(model, texts, LENGTH).rows)
    assert rows > 1.5 * len(texts)
    steps = json.loads((run / "run.json").read_text())["settings"]["steps"]
    assert steps == 4 * -(-rows // 24)  # four epochs of rows
    assert "null_threshold" in model.task.options
    assert {name for name in names(model) if name.startswith("heads/")} == {"heads/span/kernel", "heads/span/bias"}
    context = "the dog sees a film " * 8 + "the good river " + "very old stone " * 10
    answer, other, empty, none = kb.predict(
        model, [("film", context), {"question": "film", "context": "a happy cat"}, ("film", ""), ("", "good")]
    )
    assert (answer.text, context[answer.start : answer.end], answer.truncated) == ("good", "good", False)
    assert (other.text, other.start, other.end) == ("happy", 2, 7)
    assert (empty.text, none.text) == ("", "")
    assert kb.predict(model, [("film " * 30, context)])[0].truncated
    assert main(["predict", str(run), "film\ta happy cat", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [said["text"], *(each["text"] for each in said["alternatives"])] == [
        "happy",
        *(a.text for a in other.alternatives),
    ]
    assert said["score"] == pytest.approx(other.score, abs=1e-6)
    out = tmp_path / "answers.json"
    assert main(["predict", str(run), "--data", str(run.parent / "dev.json"), "--out", str(out)]) == 0
    answers = json.loads(out.read_text())
    questions = [p for a in json.loads((run.parent / "dev.json").read_text())["data"] for p in a["paragraphs"]]
    golds = [[answer["text"] for answer in each["qas"][0]["answers"]] for each in questions]
    texts = [answers[each["qas"][0]["id"]] for each in questions]
    assert span.span_metrics.compared(texts, golds, "squad2").mean(0)[0] == found["exact_match"]
    (tmp_path / "x.jsonl").write_text(json.dumps({"question": "film", "context": "a happy cat"}) + "\n")
    assert main(["predict", str(run), "--data", str(tmp_path / "x.jsonl")]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["text"], line["start"], line["end"]) == ("happy", 2, 7)
    assert main(["predict", str(run), "--data", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "y.json")]) == 2
    assert "row 1 has no id" in capsys.readouterr().err


def test_the_threshold_is_the_best_on_the_dev_rows(run):
    model, told = kb.load(run), {}
    for shift in (-20.0, -1.0, 0.0, 1.0, 20.0):
        task = model.task.optioned({"null_threshold": model.task.options["null_threshold"] + shift})
        model.task = task
        told[shift] = kb.evaluate(model, run.parent / "dev.json")["metrics"]["f1"]
        model.task = task.optioned({"null_threshold": task.options["null_threshold"] - shift})
    assert told[0.0] == max(told.values()) > min(told.values())


def test_places_of_an_answer_in_its_windows():
    """Eight tokens in windows of three every two: where a window holds all of it, else at [CLS]."""
    task = registry.task("squad").optioned({"stride": 2, "max_answer": 1})
    kind, context = task.how, "the cat sees the dog runs very old"
    rows = kind.answers.rows(tiny.tokenizer(), ("film", context), 7)
    assert [row.about.begin for row in rows] == [0, 2, 4, 6]
    target = Target(("sees the",), 8, 16)  # tokens 2 and 3
    assert [span.places(row.about, target) for row in rows] == [(0, 0), (3, 4), (0, 0), (0, 0)]
    assert [span.places(row.about, Target((), -1, -1)) for row in rows] == [(0, 0)] * 4
    inside = Target(("ees th",), 9, 15)  # the tokens that cover it
    assert span.places(rows[1].about, inside) == (3, 4)
    arrays = kind.batch(task, rows[:2], [target, target], 3, 16)
    assert arrays["label"].tolist() == [[0, 0], [3, 4], [0, 0]]
    assert arrays["label_weight"].tolist() == [1, 1, 0]


def test_the_loss_by_hand():
    """Two rows of three tokens, the last of the second one is padding; the third row fills up the batch."""
    kind = registry.task("squad").how
    logits = np.zeros((3, 3, 2), "float32")
    logits[0, 1, 0], logits[1, 2] = np.log(2), 99
    label = np.array([[1, 2], [0, 1], [0, 0]], "int32")
    mask = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]], "int32")
    batch = {"label": label, "label_weight": np.array([1, 1, 0], "float32"), "padding_mask": mask}
    losses = kind.losses(None, logits, batch)
    expected = (-np.log(2 / 4) - np.log(1 / 3)) / 2 + (-np.log(1 / 2) - np.log(1 / 2)) / 2
    assert float(losses["label"]) == pytest.approx(expected, abs=1e-6)
    assert float(losses["label/accuracy"]) == 0


def test_metrics_are_of_questions_and_not_of_windows():
    task = registry.task("squad").optioned({"stride": 2, "max_answer": 2, "n_best": 1})
    texts = [("film", "the cat sees the dog runs very old"), ("film", "a cat"), ("film", "old new")]
    encoded = encode_texts(tiny.tokenizer(), texts, 7, kind=task.how)
    assert len(encoded.rows) > 3
    outputs = [np.zeros((row.length, 2), "float32") for row in encoded.rows]
    for row, output in zip(encoded.rows, outputs):
        window = row.about
        wanted = 4 if encoded.owners[encoded.rows.index(row)] == 0 else 1
        if window.begin <= wanted < window.begin + window.count:
            output[window.place + wanted - window.begin] = 3
    targets = [Target(("the dog", "dog")), Target(("cat", "x")), Target(("old",))]
    found = task.how.metrics(task, outputs, targets, encoded)
    assert found == {"exact_match": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}
    assert span.means([], [], task.how.options) == {"exact_match": 0.0, "f1": 0.0}


def test_options_are_checked(run):
    with pytest.raises(InputError, match=r"stride is 0, expected at least 1"):
        registry.task("squad").optioned({"stride": 0})
    with pytest.raises(InputError, match=r"no rules 'squat'. Nearest: 'squad'"):
        registry.task("squad").optioned({"rules": "squat"}).how.metrics(
            None, [], [], encode_texts(tiny.tokenizer(), [], 9)
        )
    with pytest.raises(InputError, match=r"length is 4, expected at least 5"):
        kb.predict(run, [("film", "cat")], length=4)


def test_training_equals_transformers(tmp_path):
    """20 updates of both from the same weights on the same batches: AdamW, decay, no dropout."""
    import tensorflow as tf
    import torch

    from kerasbert.tasks.model import TaskObjective
    from kerasbert.training.optimizers import AdamW
    from kerasbert.training.step import StepCore

    config = {"vocab_size": 80, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"intermediate_size": 48, "max_position_embeddings": 40, "hidden_dropout_prob": 0.0}
    model = theirs.make("BertForQuestionAnswering", config | {"attention_probs_dropout_prob": 0.0}).train()
    whole = theirs.transformers().BertModel(model.config)  # theirs has no pooler, which no span reads
    whole.load_state_dict(model.bert.state_dict(), strict=False)
    whole.save_pretrained(tmp_path)
    encoder = kb.import_checkpoint(tmp_path, tokenizer="none")
    encoder.tokenizer = tiny.tokenizer()
    task = registry.task("squad").optioned({"stride": 8})
    program = TaskObjective(encoder, task)
    head = program.model.heads["span"]
    head.kernel.assign(model.qa_outputs.weight.detach().numpy().T)
    head.bias.assign(model.qa_outputs.bias.detach().numpy())
    draw, texts, targets = random.Random(0), [], []
    for _ in range(60):
        words = draw.choices(tiny.WORDS, k=70)
        place = draw.randrange(68)
        start = len(" ".join([*words[:place], ""]))
        texts.append(("the film", " ".join(words)))
        targets.append(Target((), start, start + len(" ".join(words[place : place + 2]))))
    encoded = encode_texts(encoder.tokenizer, texts, 32, kind=task.how)
    # transformers' loss sees padding and the rows that fill up a batch: neither is here
    full = [i for i, row in enumerate(encoded.rows) if row.length == 32]
    full = full[: len(full) // 16 * 16]
    encoded = span.dataclasses.replace(encoded, rows=[encoded.rows[i] for i in full], owners=encoded.owners[full])
    optimizer = AdamW(1e-3, weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-8)
    step = StepCore(program, optimizer, tf.distribute.get_strategy(), clip=0.0)
    decayed = [p for name, p in model.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    kept = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": kept, "weight_decay": 0.0}]
    other = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    pairs, batches = [], training_batches(encoded, targets, batch=16, longest=32, seed=0, task=task)
    for _, batch in zip(range(20), batches):
        label = torch.tensor(batch["label"]).long()
        renamed = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
        read = {name: torch.tensor(batch[ours]).long() for name, ours in renamed.items()}
        loss = model(**read, start_positions=label[:, 0], end_positions=label[:, 1]).loss
        other.zero_grad()
        loss.backward()
        other.step()
        logs = step.step({name: tf.convert_to_tensor(value) for name, value in batch.items()})
        pairs.append((float(logs["loss"]), float(loss.detach())))
    ours, wanted = np.array(pairs).T
    assert np.abs(ours - wanted).max() < 1e-4, pairs
    assert wanted[-1] < wanted[0] - 0.1


test_training_equals_transformers = theirs.parity(test_training_equals_transformers)
