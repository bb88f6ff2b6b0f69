"""What is done with a mutated file: path -> answer, a json value of numbers and texts. Runs in the worker."""

import functools
import importlib
import json
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

IMPORTS = {
    "tflite": ("kerasbert.mobile.runtime", "ai_edge_litert.interpreter", "ai_edge_litert.compiled_model"),
    "tokenizer": ("kerasbert.text",),
    "records": ("kerasbert.data.records",),
    "model_directory": ("tensorflow", "kerasbert.checkpoints"),
    "hf": ("tensorflow", "kerasbert.checkpoints.load"),
    "tf1": ("tensorflow", "kerasbert.checkpoints.load"),
    "run_checkpoint": ("tensorflow", "kerasbert.training.pretrain", "tests.hostile.resuming"),
}
TEXTS = [
    *("", "the unaffable cat sees a good film.", "\u00c9\u00c0 \u4e2d\u56fd \ufb01 \u0301 \U0001f600 @USER [E1]"),
    *("x" * 300, "a\tb\n c  d \u3000 ``e''"),
]


def prepare(name: str) -> None:
    """Import what a subject needs, before the worker forks and before it is timed."""
    for module in IMPORTS[name]:
        importlib.import_module(module)


def tflite(path: str) -> Any:
    """Load a .tflite with a cache beside it, and answer a few texts."""
    from kerasbert.mobile.runtime import load

    model = load(path, cache=Path(path).parent / "cache")
    return [answer.to_json() for answer in model(["a good film", "the plot is not good", "x" * 50])]


def tokenizer(path: str) -> Any:
    """Load the tokenizer of a folder, and use it."""
    from kerasbert.text import load_tokenizer

    loaded, answer = load_tokenizer(path), []
    for text in TEXTS:
        tokens = loaded.tokenize(text)
        assert loaded.encode(text) == tokens.ids
        assert all(0 <= i < loaded.size for i in tokens.ids)
        assert all(0 <= begin <= end <= len(text) for begin, end in zip(tokens.starts, tokens.ends))
        answer.append([*map(int, tokens.ids), str(loaded.pack(text, text))])
        loaded.decode(tokens.ids)
    return answer


def records(path: str) -> Any:
    """Everything that training reads of records."""
    from kerasbert.data.records import Records

    opened = Records(path).verify()
    rows = {str(number): opened.rows(shard) for number, shard in enumerate(opened.shards)}
    said = f"{opened.features} {opened.dtype} {opened.length} {opened.manifest['unigram']} {opened.tokens}"
    return {"rows": checksum(rows), "said": said}


def model_directory(path: str) -> Any:
    """Weights, settings and tokenizer of a model directory, and a few numbers that it computes."""
    import keras

    from kerasbert.checkpoints import load_encoder
    from kerasbert.layers.naming import values

    keras.backend.clear_session(free_memory=False)
    encoder, info = load_encoder(path)
    ids = np.array([[2, 5, 6, 7, 3]]) % info.spec.embeddings.vocabulary
    vectors = np.asarray(encoder({"token_ids": ids})["sequence"])
    return {
        "said": f"{info.name} {info.spec} {info.labels} {json.dumps(info.task, sort_keys=True)}",
        "weights": checksum(values(encoder)),
        "texts": encoder.tokenizer and [list(encoder.tokenizer.encode(text)) for text in TEXTS],
        "vectors": vectors[0, :, :4].astype(float).tolist(),
    }


def hf(path: str, source: str = "hf") -> Any:
    """Import a folder of Hugging Face and open the model directory that was made."""
    from kerasbert.checkpoints.load import import_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        import_checkpoint(path, source, out=Path(folder) / "made", build=False)
        return model_directory(f"{folder}/made")


tf1 = functools.partial(hf, source="tf1")


def run_checkpoint(path: str) -> Any:
    """Go on with a run, up to the moment before the next update: step, weights, slots and settings."""
    from kerasbert.training import slots
    from tests.hostile import resuming

    trainer, step = resuming.resume(path)
    held = slots.values(trainer.core.optimizer)
    state = [trainer._iterations(), trainer.stopped, trainer.skipped, trainer.means.state()]
    return {"step": step, "weights": checksum(resuming.weights(trainer)), "slots": checksum(held), "state": str(state)}


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Of names, shapes, types and numbers."""
    total = 0
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(f"{name} {array.shape} {array.dtype}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return f"{total:08x}"
