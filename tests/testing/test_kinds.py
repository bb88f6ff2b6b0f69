"""`check_kind` over every kind of ours, and over others' kinds with a mistake each, which it names."""

import pytest

from kerasbert import registry
from kerasbert.tasks import base
from kerasbert.testing import check_kind
from tests.support import often

NOUNS = ("cat", "dog", "film")
SENTENCES = [
    "the happy cat sees a dog",
    "a very old film",
    "house",
    "the dog runs",
    "a stone is bad",
    "film and river",
    "the new cat",
    "old dog sees the house",
]
TAGGED = [
    {"words": text.split(), "tags": [("B-X" if word in NOUNS else "O") for word in text.split()]} for text in SENTENCES
]
ASKED = [
    {"question": f"what sees {text.split()[0]} ?", "context": f"{text} . " * 6, "answers": text.split()[-1]}
    for text in SENTENCES
]
CHOSEN = [
    {"context": text, "choices": [text.split()[-1], "river", "a stone"], "label": i % 2}
    for i, text in enumerate(SENTENCES)
]
SCORED = [{"sentence1": text, "sentence2": SENTENCES[i - 1], "score": float(i % 3)} for i, text in enumerate(SENTENCES)]
WRITTEN = [{"source": text, "target": text.split()[0]} for text in SENTENCES]
OURS = {
    "classification": {},
    "multi_label": {},
    "regression": {},
    "ner": {"data": TAGGED},
    "squad2": {"data": ASKED},
    "choice": {"data": CHOSEN},
    "sts": {"data": SCORED},
    "fill-mask": {},
    "generation": {"data": WRITTEN, "family": "gpt2", "options": {"target_length": 8}},
}


def test_every_kind_of_ours_is_here():
    assert {registry.task(name).kind for name in OURS} == set(base.OURS)


DEFAULT = ("classification", "ner")  # a row a text, and labels of its tokens


@pytest.mark.parametrize(
    "name", [*DEFAULT, *often([name for name in OURS if name not in DEFAULT], "squad2", "choice", "generation")]
)
def test_every_kind_of_ours_passes(name, tmp_path):
    check_kind(name, tmp_path, **OURS[name])
