"""A Reformer on the device whose texts are longer than a chunk, so that it sorts by hashes, in the float and the int8 file."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.mobile import compress
from kerasbert.mobile.runtime import load
from kerasbert.mobile.testing import check_int8, first_column
from kerasbert.tasks import predict
from kerasbert.testing import world
from kerasbert.testing.battery import Subject

CHUNKS = {"lsh.chunk": 4, "local.chunk": 4, "lsh.rounds": 2, "lsh.buckets": 4, "reversible.chunk": 8}


@pytest.mark.full
def test_it_classifies_as_keras_does(tmp_path):
    files = {
        "train": world.labelled(tmp_path / "train.tsv", 640),
        "dev": world.labelled(tmp_path / "dev.tsv", 64, seed=1),
    }
    encoder = Subject("reformer", tmp_path, hidden=64, **CHUNKS).encoder(scale=0.1)
    settings = {"steps": 60, "learning_rate": 3e-3, "length": 32, "batch": 32, "quiet": True}
    model = kb.finetune(encoder, "classification", files, out=tmp_path / "run", **settings)
    texts = first_column(files["dev"])
    sizes = [len(model.tokenizer.pack(text)[0]) for text in texts]
    assert np.median(sizes) > CHUNKS["lsh.chunk"]  # most are sorted by their hashes
    compress(model, out=tmp_path / "float.tflite", quantize="float32", lengths=[32], texts=texts)
    expected = predict.outputs(model, texts)
    expected = np.exp(expected - expected.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(load(tmp_path / "float.tflite").outputs(texts), expected, atol=1e-4)
    check_int8(model, texts, tmp_path / "int8.tflite")
