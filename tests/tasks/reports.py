"""Random answers of every kind beside targets, and what reports may show of them: each kind's own tests ask it."""

import dataclasses
import json

import numpy as np
import pytest

from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import find_task
from tests import tiny

TEXTS = tiny.sentences(40, seed=5)
WORDS = [text.split() for text in TEXTS]
DRAW = np.random.default_rng(7)
TAGS = ("B-LOC", "B-PER", "I-PER", "O")


NAMES = {"tags": "ner", "vector": "sts"}


def case(kind: str, **options):
    """Task, outputs, targets and rows of a kind: random answers to 40 inputs."""
    from kerasbert.tasks.span import Target

    names = {"classification": ("a", "b", "c"), "multi_label": ("x", "y"), "tags": TAGS}.get(kind, ())
    task = dataclasses.replace(find_task(NAMES.get(kind, kind)), labels={name: name for name in names}).optioned(
        options
    )
    texts, targets = TEXTS, DRAW.integers(0, 3, 40).astype("int32")
    if kind == "multi_label":
        targets = DRAW.integers(0, 2, (40, 2)).astype("float32")
    elif kind == "regression":
        targets = DRAW.normal(size=40).astype("float32")
    elif kind == "tags":
        texts, targets = [(tuple(words),) for words in WORDS], [DRAW.integers(0, 4, len(words)) for words in WORDS]
    elif kind == "span":
        texts = [("the cat", text) for text in TEXTS]
        targets = [Target((words[0],), 0, len(words[0])) if i % 4 else Target(()) for i, words in enumerate(WORDS)]
    elif kind == "choice":
        texts = [(text, ("good", "bad", "old river")) for text in TEXTS]
    elif kind == "generation":
        texts = [(text, f"the {words[0]}") for text, words in zip(TEXTS, WORDS)]
        targets = [target for _, target in texts]
    elif kind == "vector":
        texts, targets = [*zip(TEXTS, TEXTS[1:] + TEXTS[:1])], DRAW.uniform(0, 1, 40).astype("float32")
    encoded = encode_texts(tiny.tokenizer(), texts, 24, kind=task.how)
    rows = len(encoded.rows)
    shapes = {"classification": (rows, 3), "multi_label": (rows, 2), "regression": (rows,), "choice": (rows, 1)}
    outputs = DRAW.normal(size=shapes.get(kind, (rows, 8))).astype("float32")
    if kind in ("tags", "span"):
        outputs = [DRAW.normal(size=(row.length, 4 if kind == "tags" else 2)).astype("float32") for row in encoded.rows]
    elif kind == "generation":
        outputs = np.concatenate([outputs[:, :1], DRAW.integers(5, 20, (rows, 3)), np.full((rows, 4), 3)], axis=1)
    return task, outputs, targets, encoded, texts


KINDS = {
    "classification": {},
    "multi_label": {},
    "regression": {},
    "tags": {},
    "span": {"unanswerable": True},
    "choice": {},
    "generation": {"start": "pad", "target_length": 8},
    "vector": {"loss": "ranking"},
}


def check_report(kind: str) -> None:
    """Samples of all inputs have the metrics, and answers are small json."""
    name = "vector" if kind == "cosine" else kind
    options = {"loss": "cosine"} if kind == "cosine" else KINDS[kind]
    task, outputs, targets, encoded, texts = case(name, **options)
    judged = task.how.judged(task, outputs, targets, encoded)
    found = task.how.metrics(task, outputs, targets, encoded)
    sampled = judged.sampled(np.arange(40))
    assert {name: found[name] for name in sampled} == pytest.approx(sampled)
    assert set(found) - set(sampled) <= {"mended", "without_token", "chrf"}
    assert judged.errors.shape == (40,)
    twice = judged.sampled(np.arange(40).repeat(2)) if name != "vector" else sampled
    assert twice == pytest.approx(sampled)
    for number in range(40):
        answer = json.loads(json.dumps(judged.answer(number)))
        shown = task.how.shown(task, texts[number], targets[number], "as in the file", answer)
        assert all(isinstance(each, str) and each for each in shown)
    json.dumps([dict(judged.picture), task.how.baseline(task, targets, encoded)], allow_nan=False)


def check_baseline(kind: str) -> None:
    """It is what a constant answer reaches, computed by the metrics themselves of outputs that do not look at the text."""
    task, outputs, targets, encoded, _ = case(kind)
    known = task.how.baseline(task, targets, encoded)
    if kind == "tags":
        common = int(np.bincount(np.concatenate(targets)).argmax())
        constants = [[np.eye(4)[[common] * len(row)].astype("float32") for row in outputs]]
    elif kind == "regression":
        constants = [np.full(40, np.mean(targets, dtype="float64"))]
    elif kind == "choice":
        constants = [np.tile(np.eye(3)[i], 40)[:, None] for i in range(3)]
    else:
        width = outputs.shape[1]
        grid = np.eye(width) if kind == "classification" else [[1, 1], [1, -1], [-1, 1]]
        constants = [np.tile(np.asarray(row, "float32"), (40, 1)) for row in grid]
    reached = [task.how.metrics(task, each, targets, encoded) for each in constants]
    for name in known.keys() & {
        "accuracy",
        "f1_micro",
        "exact_match",
        "mean_squared_error",
        "matthews",
    }:
        best = min if name == "mean_squared_error" else max
        assert known[name] == pytest.approx(best(each[name] for each in reached)), name
