"""Choices in training: batches that keep an input's rows together, the loss by hand, the files of SWAG and RACE."""

import json

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import encode_texts, epoch_order, training_batches
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows, split_files
from tests import tiny

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
    seen = []
    for _ in range(2):
        batch = next(batches)
        assert batch["token_ids"].shape == (8, 16)
        assert batch["row"].tolist() == list(range(8))
        assert batch["choices"].shape == (2, 4)
        for chosen, label, weight in zip(batch["choices"], batch["label"], batch["label_weight"]):
            # as many choices as the input has, of which the label is the last here
            assert chosen.tolist() == [bool(weight) and i <= label for i in range(4)]
        seen += batch["label"][batch["label_weight"] == 1].tolist()
    assert sorted(seen) == [1, 2, 3]


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


HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"


def test_swag(tmp_path):
    row = '0,v,1,x,"A man, old.",He,gold,"runs, fast.",sits.,falls.,sees.,2'
    write(tmp_path / "train.csv", HEADER, row), write(tmp_path / "val.csv", HEADER, row)
    task = find_task("swag")
    files = split_files(tmp_path, task=task)
    assert {split: path.name for split, path in files.items()} == {"train": "train.csv", "dev": "val.csv"}
    rows = read_rows(task, files["train"])
    assert rows.texts == [("A man, old.", ("He runs, fast.", "He sits.", "He falls.", "He sees."))]
    assert rows.targets.tolist() == [2]
    test = write(tmp_path / "test.csv", HEADER.removesuffix(",label"), row.removesuffix(",2"))
    assert read_rows(task, test, targets=False).texts == rows.texts
    with pytest.raises(InputError, match="test.csv holds no label"):
        read_rows(task, test)


ARTICLE = {
    "article": "A cat sleeps.",
    "questions": ["The cat _ .", "Who sleeps?"],
    "options": [["runs", "sleeps"], ["a dog", "a cat", "a man"]],
    "answers": ["B", "B"],
    "id": "high1.txt",
}


def test_race(tmp_path):
    write(tmp_path / "train" / "high" / "1.txt", ARTICLE)
    write(tmp_path / "train" / "middle" / "2.txt", ARTICLE | {"answers": ["A", "C"]})
    write(tmp_path / "dev" / "high" / "3.txt", ARTICLE)
    task = find_task("race")
    files = split_files(tmp_path, task=task)
    rows = read_rows(task, files["train"])
    assert rows.texts[:2] == [
        ("A cat sleeps.", ("The cat runs .", "The cat sleeps .")),
        ("A cat sleeps.", ("Who sleeps? a dog", "Who sleeps? a cat", "Who sleeps? a man")),
    ]
    assert rows.targets.tolist() == [1, 1, 0, 2]
    lines = write(tmp_path / "all.jsonl", ARTICLE, ARTICLE)
    assert read_rows(task, lines).targets.tolist() == [1, 1, 1, 1]
    assert len(read_rows(task, files["dev"]).texts) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["B", "D"]}, r"a.txt, question 2: the answer 'D' is no option, expected one of A, B, C"),
        (
            {"answers": ["B"]},
            r"a.txt: questions, options and answers are 2, 2, 1, expected lists as long as each other",
        ),
        ({"options": [["a", "b"], 3]}, r"a.txt, question 2: expected a text and a list of texts as its options"),
        ({"article": None, "questions": None}, r"a.txt: questions, options and answers are NoneType"),
    ],
)
def test_wrong_articles_are_named(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read_rows(find_task("race"), write(tmp_path / "a.txt", ARTICLE | change))
    with pytest.raises(InputError, match=r"b.txt, line 1: no json"):
        read_rows(find_task("race"), write(tmp_path / "b.txt", "plain text"))
