"""A file that generates, by a table: the next token follows from the one before and from all that stand there."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.export.bundle import Bundle, Reads
from kerasbert.inputs import Input
from kerasbert.text import Tokenizer
from tests.mobile.native.tokenizers import files


def chain(folder: Path, tokenizer: Tokenizer, role: str, **options: Any) -> Path:
    """Write the file.

    Args:
        role: "encode" or "prefill", what reads. options: of the kind.
    """
    import keras
    from keras import ops

    from kerasbert.mobile.generation import programs

    size, source = tokenizer.size, role == "encode"
    draw = np.random.default_rng(6)
    table = draw.normal(size=(size, size)).astype("float32") * 2

    class Table(keras.Model):
        def build(self, shape):
            self.table = self.add_weight(shape=table.shape, name="table")
            self.table.assign(table)

        def call(self, inputs):
            return inputs

        def start(self, batch, places):
            read = ops.cast(batch["token_ids"] * batch["padding_mask"], "float32")
            fixed = {"source_read": read} if source else {}
            first = ops.zeros((1, 1, places, 1)) if source else read[:, None, :, None]
            return {**fixed, "key_0": first}

        def step(self, token_ids, column, state):
            places = state["key_0"].shape[2]
            here = ops.cast(ops.arange(places)[None, :] == column[:, None], "float32")[:, None, :, None]
            key = state["key_0"] * (1 - here) + here * ops.cast(token_ids, "float32")[:, None, None, None]
            seen = ops.sum(key, (1, 2, 3)) + (ops.sum(state["source_read"], -1) if source else 0)
            wave = ops.sin(seen[:, None] * ops.arange(1, size + 1, dtype="float32")[None, :] / 7)
            return ops.take(self.table, token_ids, axis=0) + 2 * wave, {**state, "key_0": key}

    model = Table()
    model.build(None)
    declared = [Input("token_ids", "BS"), Input("padding_mask", "BS")]
    found = programs.programs(model, role, declared, (6, 12), (4, 9, 20))
    blob = programs.converted(model, found)
    reads = tuple(Reads(each.name, each.name) for each in declared)
    bundle = Bundle("generation", files(tokenizer), tuple(each.signature for each in found), reads)
    start = {"start": "pad"} if source else {"start": "", "separator": ""}
    bundle = dataclasses.replace(bundle, options={"target_length": 8, **start, **options})
    out = folder / f"{role}.tflite"
    out.write_bytes(blob + dataclasses.replace(bundle, digest=hashlib.sha256(blob).hexdigest()).to_zip())
    return out
