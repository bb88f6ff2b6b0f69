"""Fine-tuned tiny models, made once."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.tasks.batches import encode_texts
from kerasbert.testing.battery import Subject, eagerly
from tests import tiny as world
from tests.support import once

SETTINGS = {"batch": 10, "length": 16, "learning_rate": 1e-2, "quiet": True, "patience": None}


def vectors(encoder, texts, queries=None) -> np.ndarray:
    """The last layer [B, S or 1, H] of some texts, without tracing a graph."""
    encoded = encode_texts(encoder.tokenizer, texts, 32)
    return encoder(encoded.arrays(range(len(texts)), 32), queries=queries)["sequence"].numpy()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Labelled rows: {"train", "dev"}."""
    folder = tmp_path_factory.mktemp("labelled")
    return {
        "train": world.labelled(folder / "train.tsv", 40),
        "dev": world.labelled(folder / "dev.tsv", 20, seed=1),
    }


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory, files):
    """Family name -> directory of a tiny model of it, fine-tuned for a few updates."""

    def make(name: str, **changes):
        def train(folder):
            with eagerly():
                encoder = Subject(name, folder, **changes).encoder()
                kb.finetune(encoder, "classification", files, out=folder / "run", steps=2, **SETTINGS)

        key = "-".join(["finetuned", name, *(f"{field}={value}" for field, value in changes.items())])
        return once(tmp_path_factory, key, train)[0] / "run"

    return make
