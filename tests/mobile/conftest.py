"""A tiny classifier of sentences, converted once for all tests here."""

import random

import pytest

from tests.support import once

WORDS = [
    "a",
    "an",
    "the",
    "film",
    "is",
    "was",
    "good",
    "bad",
    "dull",
    "great",
    "very",
    "not",
    "un",
    "##able",
    "##s",
    "like",
    "plot",
    "and",
    "of",
    "it",
]
TEXTS = ["a good film", "the plot is not good", "very very bad", "it was great and the film is un-likeable", "dull", ""]


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Directory of a classifier with random weights, large enough that labels differ."""
    folder, _ = once(tmp_path_factory, "mobile-run", lambda folder: str(make_run(folder / "classifier")))
    return folder / "classifier"


def make_run(directory, words=(), spec=None, name="bert/tiny", languages=None, **columns):
    """Write the model directory of a random classifier; it knows `words` too; `spec` and `columns` change it and its task."""
    import keras
    import numpy as np

    from kerasbert.checkpoints import save_model
    from kerasbert.tasks.load import build
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import Task
    from kerasbert.text import WordPiece
    from kerasbert.text.wordpiece import SPECIALS

    keras.utils.set_random_seed(3)
    tokenizer = WordPiece([*SPECIALS, *WORDS, "-", *words])
    changes = {"hidden": 16, "attention.heads": 2, "feedforward.width": 32, "embeddings.positions": 40}
    changes |= spec or {}
    encoder = build(name, **changes, **{"embeddings.vocabulary": tokenizer.size})
    generator = np.random.default_rng(3)
    for weight in encoder.weights:
        if weight.path.endswith(("kernel", "table")):
            weight.assign(generator.normal(0, 1.2 / encoder.spec.hidden**0.5, weight.shape))
    tokenizer.languages = languages
    encoder.tokenizer = tokenizer
    settings = {"name": "opinions", "labels": {"0": "negative", "1": "neutral", "2": "positive"}} | columns
    model = TaskModel(encoder, Task(**settings))
    model.build()
    kernel = model.heads["classifier"].weights[0]
    kernel.assign(generator.normal(0, 4 / encoder.spec.hidden**0.5, kernel.shape))
    heads, task = model.heads, model.task.to_json()
    save_model(directory, encoder=encoder, name=name, heads=heads, tokenizer=tokenizer, task=task, labels=model.labels)
    return directory


def rows(path, count: int, seed: int = 0):
    """Write a tsv of `text` and `label` for the classifier of `make_run`; its labels mean nothing."""
    draw = random.Random(seed)
    lines = [f"{' '.join(draw.choices(WORDS[:12], k=draw.randint(2, 9)))}\t{i % 3}" for i in range(count)]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


def compressed(tmp_path_factory, run, name, *arguments, **settings):
    """(path, report) of a file of the run."""
    from kerasbert.mobile import compress

    folder, report = once(
        tmp_path_factory, name, lambda folder: compress(run, *arguments, out=folder / f"{name}.tflite", **settings)
    )
    return folder / f"{name}.tflite", report


@pytest.fixture(scope="session")
def float_file(run, tmp_path_factory):
    """(path, report) of a float32 file with three buckets, of which one was derived."""
    return compressed(tmp_path_factory, run, "float", "float32", lengths=[8, 12, 24], texts=TEXTS)


@pytest.fixture(scope="session")
def any_file(run, tmp_path_factory):
    """(path, report) of a float32 file of any length up to 24."""
    return compressed(tmp_path_factory, run, "any", "float32", lengths="any", length=24, texts=TEXTS)


@pytest.fixture(scope="session")
def int8_file(run, tmp_path_factory):
    """(path, report) of a dynamic_int8 file of any length up to 24."""
    return compressed(tmp_path_factory, run, "int8", lengths="any", length=24, min_agreement=0.9)


@pytest.fixture(scope="session")
def int8_buckets(run, tmp_path_factory):
    """(path, report) of a dynamic_int8 file with two buckets."""
    return compressed(tmp_path_factory, run, "buckets", lengths=[8, 24], min_agreement=0.9)


@pytest.fixture(scope="session")
def mediapipe_file(run, tmp_path_factory):
    """(path, report) of a float32 file for MediaPipe."""
    return compressed(tmp_path_factory, run, "mediapipe", "float32", target="mediapipe", length=32)
