"""Choices in training: batches that keep an input's rows together, the loss by hand, the files of SWAG and RACE."""

import json
import random

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.export import signatures
from kerasbert.mobile.golden import verify
from kerasbert.tasks.answer_tables import read
from kerasbert.tasks.base import Task, kind_of
from kerasbert.tasks.batches import encode_texts, epoch_order, training_batches
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.support import forked
from tests.tasks import reports

TASK = Task("choice", kind="choice", text="context", text_b="choices")
TEXTS = [
    ("the cat", ("runs", "sees the dog")),
    ("a dog", ("the old house", "a cat", "happy")),
    ("the river", ("good", "bad", "very sad", "new")),
]


def encoded(texts=TEXTS):
    return encode_texts(tiny.tokenizer(), texts, 16, kind=TASK.how)


def test_the_rows_of_an_input_stay_together_and_the_last_fills_up():
    rows = encoded()
    assert rows.units(True).tolist() == [[0, 1, 1, 1], [2, 3, 4, 4], [5, 6, 7, 8]]
    assert rows.units().tolist() == [[i] for i in range(9)]
    orders = [np.concatenate(epoch_order(rows, 2, 3, epoch, True)).tolist() for epoch in range(20)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_a_batch_has_inputs_times_choices_and_a_row_number_each():
    batches = training_batches(encoded(), np.array([1, 2, 3], "int32"), batch=2, longest=16, seed=0, task=TASK)
    seen, numbers = [], []
    for _ in range(2):
        batch = next(batches)
        numbers += np.split(batch["example"], 2)
        assert batch["token_ids"].shape == (8, 16)
        assert batch["row"].tolist() == list(range(8))
        assert batch["choices"].shape == (2, 4)
        for chosen, label, weight in zip(batch["choices"], batch["label"], batch["label_weight"]):
            # as many choices as the input has, of which the label is the last here
            assert chosen.tolist() == [bool(weight) and i <= label for i in range(4)]
        seen += batch["label"][batch["label_weight"] == 1].tolist()
    assert sorted(seen) == [1, 2, 3]
    assert sorted(map(tuple, numbers)) == [(-1,) * 4, (0, 1, 1, 1), (2, 3, 4, 4), (5, 6, 7, 8)]


def test_the_loss_by_hand_and_what_fills_up_has_no_say():
    batch = {
        "label": np.array([1, 0, 0], "int32"),
        "label_weight": np.array([1, 1, 0], "float32"),
        "choices": np.array([[True, True, False], [True, True, True], [False] * 3]),
    }
    logits = np.array([[0.0], [np.log(3)], [50.0], [1.0], [1.0], [1.0], [7.0], [9.0], [8.0]], "float32")
    losses = TASK.how.losses(TASK, logits, batch)
    assert float(losses["label"]) == pytest.approx(-np.log(3 / 4) - np.log(1 / 3), abs=1e-6)
    assert float(losses["label/accuracy"]) == 2.0
    assert float(TASK.how.counts(batch)["label"]) == 2.0


def test_metrics_are_of_inputs():
    outputs = np.array([[0.0], [1.0], [3.0], [1.0], [2.0], [0.0], [0.0], [0.0], [1.0]], "float32")
    found = TASK.how.metrics(TASK, outputs, np.array([1, 2, 3]), encoded())
    wanted = [np.log1p(np.exp(-1)), np.log(np.exp([3, 1, 2]).sum()) - 2, np.log(3 + np.e) - 1]
    assert found == {"accuracy": pytest.approx(2 / 3), "loss": pytest.approx(np.mean(wanted))}
    assert TASK.how.remarks(TASK, np.ones((4, 1), "float32"), None) == ["all 4 choices have the score 1"]


def test_a_report_of_choices():
    reports.check_report("choice")
    reports.check_baseline("choice")


JUDGED = np.array([[2.0], [1.0], [0.0], [5.0], [5.0], [1.0], [2.0], [3.0], [0.0]], "float32")


def test_what_a_report_shows_by_hand():
    """The right choice is the best, the second of two that are alike, and the third of four; probabilities by softmax."""
    rows, targets = encoded(), np.array([0, 2, 1])
    judged = TASK.how.judged(TASK, JUDGED, targets, rows)
    first, last = np.e / (1 + np.e), np.exp(3) / np.exp([1, 2, 3, 0]).sum()
    assert judged.answer(0) == {"index": 0, "score": pytest.approx(first, abs=1e-4)}
    assert judged.answer(1) == {"index": 1, "score": pytest.approx(0.5, abs=1e-2)}
    assert judged.answer(2) == {"index": 2, "score": pytest.approx(last, abs=1e-4)}
    np.testing.assert_allclose(judged.errors, [0, np.exp(5) / (2 * np.exp(5) + 1), last], rtol=1e-6)
    bars = {"the best": 1 / 3, "among the 2 best": 1.0, "among the 3 best": 1.0}
    assert judged.picture == {"title": "The right choice is", "bars": pytest.approx(bars)}
    assert judged.sampled([0, 0, 2])["accuracy"] == pytest.approx(2 / 3)
    logs = [-np.log(first), -np.log(np.exp(2) / np.exp([1, 2, 3, 0]).sum())]
    assert judged.sampled([0, 2])["loss"] == pytest.approx(np.mean(logs))
    assert TASK.how.shown(TASK, TEXTS[1], 2, "2", judged.answer(1)) == ("happy", "a cat (0.50)")
    guess = np.mean([1 / 2, 1 / 3, 1 / 4])
    assert TASK.how.baseline(TASK, np.array([0, 1, 2]), rows)["accuracy"] == pytest.approx(guess)
    assert TASK.how.baseline(TASK, np.array([1, 1, 2]), rows)["accuracy"] == pytest.approx(2 / 3)


def test_scores_that_are_all_one_number_are_told():
    told = TASK.how.collapsed
    assert told(TASK, np.full((3, 1), 2.0, "float32"), None) == "all 3 choices have the score 2"
    assert told(TASK, np.array([[2.0], [2.0 + 1e-6]]), None) == "all 2 choices have the score 2"
    assert told(TASK, np.array([[2.0], [2.1]]), None) == told(TASK, np.ones((1, 1)), None) == ""


def test_the_choice_that_is_explained():
    best, name, value = TASK.how.explained(TASK, [], np.array([[0.5], [2.0], [1.0]]), None)
    assert (best, name) == (1, "score of choice 1")
    assert value(np.array([[3.0], [4.0]])).tolist() == [3.0, 4.0]
    assert TASK.how.explained(TASK, None, None, None)[:2] == (0, "score of choice 0")
    assert TASK.how.unlabelled(TASK, TEXTS).tolist() == [0, 0, 0]


def test_what_a_server_is_asked():
    assert TASK.how.strings(TASK) == ("context", "choices")
    assert TASK.how.probes(["a", "", "b", "c"], 2) == [
        ("a", ("c", "b", "a")),
        ("b", ("a", "c", "b")),
        ("c", ("b", "a", "c")),
    ]
    assert TASK.how.numbers([*TEXTS, ("x", '["1", "2"]')]) == {"choice_counts": [2, 3, 4, 2]}
    assert "`choice_counts` [B]" in TASK.how.described()
    assert TASK.how.pipeline_tag(TASK) == "multiple-choice"


def score(ids):
    """A number of a row that no other of these has."""
    return float(np.sin(np.arange(1, len(ids) + 1) * ids).sum())


@pytest.mark.parametrize("length", [8, 16])
def test_the_graph_answers_as_python_over_the_same_scores(length):
    """Behind the counted choices stands what a batcher fills up with."""
    import tensorflow as tf

    tokenizer, kind, texts = tiny.tokenizer(), TASK.how, [*TEXTS, ("old " * 20, ("bad", "a good dog"))]

    def run(packed):
        assert packed["owners"].numpy().tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3]
        ids, lengths = packed["token_ids"].numpy(), packed["padding_mask"].numpy().sum(1)
        return {"score": tf.constant([[score(row[:n])] for row, n in zip(ids, lengths)], tf.float32)}

    given = signatures.given(kind, ("context", "choices"), texts)
    given["choices"] = tf.where(given["choices"] == "", "a stranger's", given["choices"])
    served = kind.served(run, graph_tokenizer(tokenizer), given, length, ())
    found = kind.unserved({name: value.numpy() for name, value in served.items()}, ())
    for text, answer in zip(texts, found):
        rows = kind.answers.rows(tokenizer, text, length)
        wanted = kind.answers.decode(text, rows, [[score(row.token_ids)] for row in rows], ()).to_json()
        scores = answer.pop("scores")
        assert scores == pytest.approx(wanted.pop("scores") + [0.0] * (4 - len(text[1])), abs=1e-6)
        assert answer.pop("score") == pytest.approx(wanted.pop("score"), abs=1e-6)
        assert answer == wanted
    assert found[-1]["truncated"]


def test_a_server_answers_no_input_and_inputs_without_a_choice():
    import tensorflow as tf

    def run(packed):
        return {"score": tf.zeros([tf.shape(packed["token_ids"])[0], 1])}

    for rows, width in ((0, 3), (2, 0), (2, 2)):
        given = {"context": tf.fill([rows], "a"), "choices": tf.fill([rows, width], "b")}
        given["choice_counts"] = tf.zeros([rows], tf.int32)
        served = TASK.how.served(run, graph_tokenizer(tiny.tokenizer()), given, 8, ())
        assert served["scores"].shape == (rows, width)
        assert not served["scores"].numpy().any()
        assert served["text"].numpy().tolist() == [b""] * rows
        assert served["truncated"].numpy().tolist() == [False] * rows
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="choice_counts says how many of each row of choices count"
    ):
        TASK.how.served(run, graph_tokenizer(tiny.tokenizer()), given | {"choice_counts": tf.constant([3, 0])}, 8, ())


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_ones_own_files(tmp_path):
    rows = [{"context": c, "choices": list(choices), "label": i} for i, (c, choices) in enumerate(TEXTS)]
    read = read_rows(TASK, write(tmp_path / "a.jsonl", *rows))
    assert (read.texts, read.targets.tolist()) == (TEXTS, [0, 1, 2])
    rows = [row | {"label": row["choices"][-1]} for row in rows]
    assert read_rows(TASK, write(tmp_path / "b.jsonl", *rows)).targets.tolist() == [1, 2, 3]
    table = write(tmp_path / "c.csv", "context,choices,label", 'x,"[""a b"", ""c""]",c', 'y,"[""d"", ""e""]",d')
    assert read_rows(TASK, table).targets.tolist() == [1, 0]
    memory = read_rows(TASK, in_memory([(context, choices, 1) for context, choices in TEXTS]))
    assert (memory.texts, memory.targets.tolist()) == (TEXTS, [1, 1, 1])


def test_choices_that_are_called_by_letters_or_numbers(tmp_path):
    """As in ARC, CommonsenseQA and MMLU: choices with the names that the labels call them by."""
    task = find_task("choice", text="question", label="answerKey")
    called = [(["A", "B"], "B"), (["1", "2"], "1"), (["1", "2"], 2), ([1, 2], 2)]
    table = [
        {"question": "x", "choices": {"text": ["a", "b"], "label": names}, "answerKey": key} for names, key in called
    ]
    path = write(tmp_path / "a.jsonl", *table)
    assert read_rows(task, path).targets.tolist() == [1, 0, 1, 1]
    assert read_rows(task, path).texts == [("x", ("a", "b"))] * 4
    assert [text for _, _, text in read(path, task.parts, task)] == [("x", ("a", "b"))] * 4
    unnamed = {"question": "x", "choices": {"text": ["a", "b"], "label": None}, "answerKey": 1}
    assert read_rows(task, write(tmp_path / "c.jsonl", unnamed)).targets.tolist() == [1]
    letters = [{"context": "x", "choices": ["a", "b", "A"], "label": label} for label in ("A", "B", "a", "C")]
    assert read_rows(TASK, write(tmp_path / "b.jsonl", *letters)).targets.tolist() == [2, 1, 0, 2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"choices": ["a"], "label": 0},
            "a.jsonl, line 2: an input has 1 choice: 'a', expected a list of at least two",
        ),
        (
            {"choices": ["a", "b"], "label": 2},
            "a.jsonl, line 2: label '2' is no choice, expected 0 to 1, or one of the 2",
        ),
        ({"choices": ["a", "b"], "label": -1}, "line 2: label '-1' is no choice"),
        ({"choices": ["a", "b"], "label": "c"}, "line 2: label 'c' is no choice"),
        ({"choices": ["a", 5], "label": 0}, "line 2: column 'choices' holds no text"),
    ],
)
def test_wrong_rows_are_named(tmp_path, row, message):
    good = {"context": "x", "choices": ["a", "b"], "label": 1}
    with pytest.raises(InputError, match=message):
        read_rows(TASK, write(tmp_path / "a.jsonl", good, {"context": "x"} | row))


def rows(count, seed):
    """Contexts with two to four choices, of which one is good."""
    draw, words, made = random.Random(seed), tiny.sentences(5 * count, seed), []
    for i in range(count):
        kept = [" ".join(word for word in each.split() if word not in tiny.GOOD) for each in words[5 * i :][:5]]
        right, choices = draw.randrange(2), [f"{each} bad" for each in kept[1 : draw.randint(3, 5)]]
        choices[right] = choices[right].removesuffix("bad") + "good"
        made.append({"context": kept[0], "choices": choices, "label": right})
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with train and dev rows, and a run that has learnt them."""
    folder = tmp_path_factory.mktemp("choice")
    write(folder / "train.jsonl", *rows(200, 1)), write(folder / "dev.jsonl", *rows(30, 2))
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    encoder.tokenizer = tiny.tokenizer()
    settings = {"epochs": 5, "batch": 20, "learning_rate": 1e-2, "length": 24, "quiet": True}
    kb.finetune(encoder, "choice", folder, out=folder / "run", **settings)
    return folder


@pytest.mark.full
def test_a_file_of_choices_to_the_phone(trained, tmp_path, capsys):
    """File -> finetune -> evaluate -> predict over a file -> SavedModel -> .tflite: equal answers."""
    import tensorflow as tf

    from kerasbert import mobile
    from kerasbert.cli import main
    from kerasbert.mobile.runtime import load

    run, dev = trained / "run", trained / "dev.jsonl"
    assert kb.evaluate(run, trained)["metrics"]["accuracy"] > 0.9
    assert main(["predict", str(run), "--data", str(dev)]) == 0
    answered = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    model = kb.load(run)
    texts = [(row["context"], row["choices"]) for row in answered] + [
        ("", ["good", "bad"]),
        ("old " * 40, ["bad", "a good"]),
    ]
    answers = kb.predict(model, texts)
    assert [row["index"] for row in answered] == [answer.index for answer in answers[:-2]]
    assert [answer.truncated for answer in answers[-2:]] == [False, True]
    assert main(["predict", str(run), "the cat\tbad\tgood", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "good"

    kb.export(model, tmp_path / "serving")
    serve = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    served = serve(**signatures.given(kind_of(model), ("context", "choices"), texts))
    served = {name: value.numpy() for name, value in served.items()}
    for i, answer in enumerate(answers):
        assert (answer.index, answer.text.encode(), answer.truncated) == tuple(
            served[name][i] for name in ("index", "text", "truncated")
        )
        np.testing.assert_allclose(served["scores"][i], [*answer.scores, *[0.0] * (4 - len(answer.scores))], atol=1e-5)
    empty = serve(
        context=tf.zeros([0], tf.string), choices=tf.zeros([0, 3], tf.string), choice_counts=tf.zeros([0], tf.int32)
    )
    assert {name: tuple(value.shape) for name, value in empty.items()} == {
        **dict.fromkeys(("index", "text", "score", "truncated"), (0,)),
        "scores": (0, 3),
    }

    out, golden = tmp_path / "choice.tflite", tmp_path / "choice.golden"
    report = mobile.compress(model, out=out, quantize="none", data=dev, golden=golden)
    assert verify(load(out, cache=False), golden) == (report["golden_texts"], "")
    assert (report["agreement"], report["accuracy"]["keras"]) == (1.0, report["accuracy"]["tflite"])
    phone = load(tmp_path / "choice.tflite", cache=False)(texts)
    assert [answer.to_json() for answer in phone] == [
        answer.to_json() | {name: pytest.approx(answer.to_json()[name], abs=1e-5) for name in ("score", "scores")}
        for answer in answers
    ]


TWO = """
import sys, numpy as np, kerasbert as kb
from kerasbert.layers.naming import values
folder, weights = sys.argv[1], []
for strategy, accumulate in (("cpu:2", 2), ("cpu", 1)):
    settings = {"steps": 2, "batch": 8, "length": 16, "strategy": strategy, "accumulate": accumulate, "quiet": True}
    settings |= {"out": f"{folder}/{accumulate}", "changes": {"dropout": 0.2}}
    weights.append(values(kb.finetune(folder + "/bert", "choice", folder + "/train.jsonl", **settings)))
print(max(float(np.abs(weights[0][name] - weights[1][name]).max()) for name in weights[0]))
"""


@pytest.mark.slow
def test_two_replicas_with_micro_batches_are_one(tmp_path):
    """Dropout on: an input's choices are never separated."""
    write(tmp_path / "train.jsonl", *rows(40, 1))
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    kb.save(encoder, tmp_path / "bert", tokenizer=tiny.tokenizer())
    assert 0 < float(forked("-c", TWO, tmp_path).stdout) < 2e-5


@pytest.mark.slow
def test_twenty_updates_are_those_of_torch(tmp_path):
    """Same weights, batches and AdamW, no dropout: losses of transformers' BertForMultipleChoice within 1e-4."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    import tensorflow as tf

    from kerasbert.tasks.model import TaskObjective
    from kerasbert.training.optimizers import AdamW
    from kerasbert.training.step import StepCore

    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "num_hidden_layers": 2}
    sizes |= {"vocab_size": tiny.tokenizer().size, "max_position_embeddings": 40}
    config = transformers.BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    theirs = transformers.BertForMultipleChoice(config).train()
    theirs.bert.save_pretrained(tmp_path)
    objective = TaskObjective(kb.import_checkpoint(tmp_path, tokenizer="none"), TASK)
    weight, bias = theirs.classifier.weight.detach().numpy().T, theirs.classifier.bias.detach().numpy()
    objective.model.heads["classifier"].set_weights([weight, bias])
    core = StepCore(objective, AdamW(5e-4, weight_decay=0.01, epsilon=1e-8), tf.distribute.get_strategy(), clip=1.0)
    named = dict(theirs.named_parameters())
    plain = {name for name in named if name.endswith("bias") or "LayerNorm" in name}
    groups = [{"params": [named[name] for name in named if name not in plain], "weight_decay": 0.01}]
    groups.append({"params": [named[name] for name in plain], "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=5e-4, eps=1e-8)

    made = rows(21, 3)
    packed = encoded([(row["context"], tuple(row["choices"])) for row in made])
    targets = np.array([row["label"] for row in made], "int32")
    batches = training_batches(packed, targets, batch=4, longest=16, seed=0, task=TASK)
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
    for _ in range(20):
        batch = next(batches)
        ours = float(core.step({name: tf.convert_to_tensor(value) for name, value in batch.items()})["loss"])
        shape, real = batch["choices"].shape, torch.tensor(batch["label_weight"] > 0)
        inputs = {name: torch.tensor(batch[own].reshape(*shape, -1)).long() for name, own in names.items()}
        logits = theirs(**inputs).logits.masked_fill(~torch.tensor(batch["choices"]), -1e9)
        loss = torch.nn.functional.cross_entropy(logits[real], torch.tensor(batch["label"]).long()[real])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        assert ours == pytest.approx(float(loss.detach()), abs=1e-4)
