"""Python = SavedModel = phone, of every kind with every tokenizer, of every family: random weights; long, odd and real texts."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.export import graphs, saved_model, signatures
from kerasbert.mobile import compress
from kerasbert.mobile.golden import verify
from kerasbert.mobile.runtime import load
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from kerasbert.text import Tokenizer
from tests.tasks import real_inputs

TEXTS = ["the happy cat sees a dog", "", "Ünïcode Old River, 一二 !", "old stone " * 30, "x"]
LONG = "the new house . " * 15 + "A very old dog runs , the cat sees it ."
ANSWERED = [("who runs ?", LONG), ("the", "cat"), ("what is very old", "stone river " * 30), ("?", "")]
CHOSEN = [("the cat", ("sees", "runs", "is a stone")), ("old " * 40, ("good", "bad")), ("", ("new", "ünï"))]
NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# kind -> (task, labels, inputs)
KINDS = {
    "classification": ("classification", ("no", "yes", "never"), TEXTS),
    "multi_label": ("multi_label", ("film", "house", "river"), TEXTS),
    "regression": ("glue/stsb", (), [*zip(TEXTS, reversed(TEXTS))]),
    "tags": ("ner", NAMES, TEXTS),
    "span": ("squad2", (), ANSWERED),
    "choice": ("choice", (), CHOSEN),
    "vector": (None, (), TEXTS),
}
TOKENIZERS = ("wordpiece", "bpe", "unigram")


def made(family: str, kind: str, pieces: Tokenizer, folder):
    """A tiny model with random weights, its head's too."""
    encoder = battery.Subject(family, folder, **{"embeddings.vocabulary": pieces.size}).encoder()
    encoder.tokenizer = pieces
    name, labels, _ = KINDS[kind]
    if name is None:
        return encoder
    # 32 tokens are what the file reads, and what a family without a longest text would go beyond
    task = dataclasses.replace(find_task(name), labels={label: label for label in labels}, length=32)
    model = TaskModel(encoder, task)
    model.build()
    generator = np.random.default_rng(3)
    for head in model.heads.values():
        for weight in head.weights:
            weight.assign(generator.normal(0, 1, weight.shape))
    return model


def check_served(model, wanted: list[dict], served: dict[str, np.ndarray], inputs: list) -> None:
    """The outputs of a server for inputs are what the model answers."""
    how = kind_of(model)
    answered = how.unserved(served, list(getattr(model, "labels", None) or ()))
    if answered is None:
        labels = list(getattr(model, "labels", None) or ())
        rows = [how.answers.rows(model.tokenizer, (text,) if isinstance(text, str) else text, 32) for text in inputs]
        decoded = [
            how.answers.decode((text,), row, [np.atleast_1d(value)], labels).to_json()
            for text, row, value in zip(inputs, rows, served[how.answers.output])
        ]
        assert saved_model.difference(_uncut(wanted), _uncut(decoded)) == ""
    else:
        assert len(answered) == len(wanted)
        assert saved_model.difference(wanted, _trimmed(answered, wanted)) == ""


def agrees(family: str, kind: str, pieces: Tokenizer, folder, inputs: list) -> None:
    model = made(family, kind, pieces, folder)
    if KINDS[kind][0] is None:
        wanted = [{"values": row.tolist()} for row in kb.encode(model, inputs)]
    else:
        wanted = [answer.to_json() for answer in kb.predict(model, inputs)]
    serve = tf.saved_model.load(str(kb.export(model, folder / "serving"))).signatures["serving_default"]
    names = graphs.text_names(model)
    served = serve(**signatures.given(kind_of(model), names, inputs))
    check_served(model, wanted, {name: value.numpy() for name, value in served.items()}, inputs)
    file = folder / "model.tflite"
    report = compress(
        model,
        "none",
        file,
        golden=folder / "golden",
        lengths=[16, 32],
        texts=[one for one in inputs if all([one] if isinstance(one, str) else one)],
        min_agreement=0.99,
    )
    assert verify(load(file, cache=False), folder / "golden") == (report["golden_texts"], "")
    phone = [answer.to_json() for answer in load(file, cache=False)(inputs)]
    if KINDS[kind][0] is None:  # kb.encode tells nothing of that
        phone = _uncut(phone)
    assert saved_model.difference(wanted, phone) == ""


def _uncut(answers: list[dict]) -> list[dict]:
    return [{name: value for name, value in each.items() if name != "truncated"} for each in answers]


def _trimmed(answered: list, wanted: list) -> list:
    """Lists of an input that others are padded for are as long as they are."""
    return [
        {name: value[: len(one.get(name, value))] if isinstance(value, list) else value for name, value in each.items()}
        for each, one in zip(answered, wanted)
    ]


@pytest.mark.full
@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_with_every_tokenizer(kind, tokenizer, family, tmp_path):
    agrees(family, kind, battery.tokenizer(tokenizer), tmp_path, KINDS[kind][2])


@pytest.mark.full
@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_200_real_inputs(kind, tokenizer, family, tmp_path):
    """By published tokenizers: offsets and texts exactly, numbers within 1e-4."""
    pieces, inputs = real_inputs.tokenizer(tokenizer), real_inputs.inputs(kind)
    assert len(inputs) == 200
    assert len(pieces.encode(real_inputs.document())) >= 2000
    agrees(family, kind, pieces, tmp_path, inputs)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["classification", "tags"])
@pytest.mark.parametrize("family", sorted(name for name, family in registry.families().items() if family.one_stack))
def test_every_family(family, kind, tmp_path):
    agrees(family, kind, battery.tokenizer(registry.family(family).tokenizer), tmp_path, KINDS[kind][2])
