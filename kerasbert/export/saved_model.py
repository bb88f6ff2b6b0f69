"""SavedModels that take text, for TF Serving: the tokenizer is in the graph, the process needs tensorflow_text alone."""

import itertools
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.export.model_card import card
from kerasbert.storage import files
from kerasbert.tasks import predict
from kerasbert.text.graph import graph_tokenizer

TOLERANCE = 1e-4
# Short, long, empty, accents, another script: what the file is compared on before it is put in place.
PROBES = (
    "a gripping film",
    "",
    "Ünïcödé, naïve café!",
    "一二三 four",
    "never " * 200,
    "so bad, so very bad .",
    "?",
    "x",
)
NAMES = ("token_ids", "padding_mask", "segment_ids")
INTS = tf.TensorSpec([None, None], tf.int32)
STRINGS = tf.TensorSpec([None], tf.string)


def export(model: Any, out: str | os.PathLike, *, length: int | None = None, overwrite: bool = False) -> Path:
    """Write a SavedModel.

    Signature `serving_default` takes `text` (string [B]), or `text_a` and `text_b` for a task on pairs; signature `ids`
    takes token_ids, padding_mask, segment_ids (int32 [B, S]). A classification returns `probabilities` [B, L] float32,
    `label_ids` [B] int32 and `labels` [B] string, a regression `value` [B], an encoder `vector` [B, H] (mean over
    the tokens). Loads with `tf.saved_model.load` after `import tensorflow_text`; for TF Serving put it at NAME/1.

    Args:
        model: a model or run directory, a loaded model, or a functional Keras model of one's own that holds a loaded
            encoder and has inputs named as the encoder's; its outputs are exported as they are.
        out: the directory to make.
        length: int, longest text in tokens; by default that of the task's training, else all the model's positions.
        overwrite: replace what `out` holds.

    Raises:
        InputError: `out` is taken, the model has no tokenizer, or the written file answers differently.
    """
    model, out = predict.as_model(model), Path(out)
    if not hasattr(model, "spec"):
        model = OwnModel(model)
    if model.tokenizer is None:
        raise InputError("the model has no tokenizer, and a SavedModel takes text: import it with one")
    if out.exists() and not overwrite and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already. Choose another place or pass --overwrite")
    longest = predict.longest(model, length)
    with files.new_directory(out, replace=overwrite) as folder:
        _write(model, folder, longest)
        _compare(model, folder, longest)
        names = (
            ", ".join(f"`{name}`" for name in _load(folder).structured_outputs) if isinstance(model, OwnModel) else None
        )
        (folder / "README.md").write_text(card(model, longest, names))
    return out


class OwnModel(keras.Model):
    """A user's Keras model around an encoder, as the exporter sees a model: inputs by name, outputs by name.

    Args:
        model: a keras.Model with inputs named token_ids, padding_mask and segment_ids, or some of them.
    Call: dict of int [B, S] -> dict of the model's outputs by their layers' names, or one `output`.
    Raises:
        InputError: other inputs, or no encoder in it.
    """

    def __init__(self, model: keras.Model):
        super().__init__(name="own_model")
        layers = getattr(model, "layers", ())
        encoder = next((layer for layer in layers if hasattr(layer, "spec") and hasattr(layer, "tokenizer")), None)
        inputs = getattr(model, "input", None)
        if encoder is None or not isinstance(inputs, dict) or not inputs.keys() <= set(NAMES):
            raise InputError(
                f"{type(model).__name__} cannot be exported: expected a kerasbert model, or a functional Keras model that "
                f"holds an encoder and whose inputs are a dict of {', '.join(NAMES)} or some of them"
            )
        self.model, self.spec, self.tokenizer, self.names = model, encoder.spec, encoder.tokenizer, tuple(inputs)
        self.built = True

    def call(self, inputs):
        outputs = self.model({name: inputs[name] for name in self.names})
        return outputs if isinstance(outputs, dict) else {"output": outputs}


def answers(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The exported outputs of a batch."""
    outputs = model(inputs)
    if isinstance(model, OwnModel):
        return outputs
    if "value" in outputs:
        return {"value": outputs["value"]}
    if "logits" in outputs:
        probabilities = ops.softmax(outputs["logits"], axis=-1)
        label_ids = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {
            "probabilities": probabilities,
            "label_ids": label_ids,
            "labels": tf.gather(list(model.labels), label_ids),
        }
    mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
    return {"vector": ops.sum(outputs["sequence"] * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)}


def _write(model: Any, folder: Path, longest: int) -> None:
    tokenizer = graph_tokenizer(model.tokenizer)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.track(tokenizer)

    def from_text(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        packed = tokenizer.pack(*texts, length=longest)
        # as long as the longest text of the batch, not as the longest there may be
        width = tf.reduce_max(tf.reduce_sum(packed["padding_mask"], axis=1))
        return answers(model, {name: value[:, :width] for name, value in packed.items()})

    def text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return from_text(text)

    def pair(text_a: tf.Tensor, text_b: tf.Tensor) -> dict[str, tf.Tensor]:
        return from_text(text_a, text_b)

    def ids(token_ids: tf.Tensor, padding_mask: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return answers(model, dict(zip(NAMES, (token_ids, padding_mask, segment_ids))))

    pairs = bool(getattr(getattr(model, "task", None), "text_b", None))
    archive.add_endpoint("serving_default", pair if pairs else text, [STRINGS, STRINGS] if pairs else [STRINGS])
    archive.add_endpoint("ids", ids, [INTS, INTS, INTS])
    archive.write_out(str(folder), verbose=False)


def _load(folder: Path) -> Any:
    return tf.saved_model.load(str(folder)).signatures["serving_default"]


def _compare(model: Any, folder: Path, longest: int) -> None:
    """Refuse a SavedModel that answers differently from the model it was made of."""
    serve = _load(folder)
    pairs = "text_b" in serve.structured_input_signature[1]
    texts = list(itertools.pairwise(PROBES)) if pairs else list(PROBES)
    named = {"text_a": [a for a, _ in texts], "text_b": [b for _, b in texts]} if pairs else {"text": texts}
    found = serve(**{name: tf.constant(value) for name, value in named.items()})
    if isinstance(model, OwnModel):
        name = next(iter(found))
        expected = predict.forward(model, texts, "own", lambda model, inputs: model(inputs)[name], length=longest)
        found = found[name].numpy()
    elif getattr(model, "task", None) is None:
        expected, found = predict.encode(model, texts, length=longest), found["vector"].numpy()
    else:
        expected = predict.outputs(model, texts, longest)
        if "probabilities" in found:
            expected = predict.softmax(expected)
        found = (found["probabilities"] if "probabilities" in found else found["value"]).numpy()
    difference, task = float(np.abs(found - expected).max()), getattr(model, "task", None)
    tolerance = TOLERANCE if task is None else task.rounding(TOLERANCE)
    if not difference <= tolerance:
        raise InputError(
            f"the SavedModel answers differently from the model (largest difference {difference:.2g}, allowed "
            f"{tolerance:g}): nothing was written; please report it"
        )
