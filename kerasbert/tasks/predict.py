"""Texts -> answers and vectors."""

import functools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.tasks.batches import Encoded, encode_texts, ordered_batches
from kerasbert.tasks.label import softmax
from kerasbert.tasks.load import load
from kerasbert.text.answers import Classification, Regression

Texts = Sequence[str | tuple[str, str]]
BATCH = 64  # texts at once

# model -> name -> graph: a model that answers one text after another is traced once
_graphs: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def as_model(model: Any) -> Any:
    """The model itself, or the one in a directory."""
    return load(model) if isinstance(model, str | os.PathLike) else model


def longest(model: Any, length: int | None = None) -> int:
    """Tokens a text may have: what was asked for, else what the task was trained with, else all the model's positions."""
    most = model.spec.longest
    if length is None:
        return min(getattr(getattr(model, "task", None), "length", None) or most, most)
    if not 3 <= length <= most:
        raise InputError(f"length must be between 3 and {most}, the model's positions. Received: {length}")
    return length


def graph(model: Any, name: str, read: Callable) -> Callable:
    """`read(model, inputs)` as a graph for any batch and length, made once for a model and a name."""
    import tensorflow as tf

    graphs = _graphs.setdefault(model, {})
    if name not in graphs:
        ints = {part: tf.TensorSpec([None, None], tf.int32) for part in ("token_ids", "padding_mask", "segment_ids")}
        owner = weakref.ref(model)  # the graph must not keep the model that it is kept for
        # a partial: TensorFlow counts traces by the code of a function and would warn after five models
        graphs[name] = tf.function(functools.partial(_called, read, owner), input_signature=[ints], autograph=False)
    return graphs[name]


def _called(read: Callable, owner: Callable, inputs: Any) -> Any:
    return read(owner(), inputs)


def forward(model: Any, texts: Texts, name: str, read: Callable, length: int | None = None) -> np.ndarray:
    """`read(model, inputs)` for every text, in the order of the texts: float32 [n, ...]; `name` tells reads apart."""
    texts = check_texts(model, texts)
    encoded = encode_texts(model.tokenizer, texts, longest(model, length))
    return run(graph(model, name, read), encoded, longest(model, length))


def run(function: Callable, encoded: Encoded, longest: int, batch: int = BATCH) -> np.ndarray:
    """A graph's values for every encoded text, in their order: float32 [n, ...]."""
    import tensorflow as tf

    found: Any = None
    for indices, inputs in ordered_batches(encoded, longest, batch):
        values = function({name: tf.convert_to_tensor(value) for name, value in inputs.items()}).numpy()
        if found is None:
            found = np.zeros((len(encoded.token_ids), *values.shape[1:]), "float32")
        found[indices] = values
    return np.zeros((0,), "float32") if found is None else found


def check_texts(model: Any, texts: Texts) -> list[str | tuple[str, str]]:
    """The texts as a list of str or of pairs, as the task takes them."""
    if isinstance(texts, str | bytes):
        raise InputError("texts is one text, expected a list of texts: put it into brackets")
    task = getattr(model, "task", None)
    if hasattr(texts, "columns"):  # a DataFrame
        texts = _columns_of(texts, task)
    texts = [tuple(text) if isinstance(text, list | tuple) else text for text in texts]
    for i, text in enumerate(texts):
        pair = isinstance(text, tuple)
        if pair and len(text) != 2:
            raise InputError(f"text {i} has {len(text)} parts, expected 2: (text_a, text_b)")
        wrong = next((part for part in (text if pair else (text,)) if not isinstance(part, str | bytes)), None)
        if wrong is not None:
            raise InputError(f"text {i} is a {type(wrong).__name__}, expected str")
        if task is not None and pair != bool(task.text_b):
            received, expected = ("a pair", "one text") if pair else ("one text", "a pair (text_a, text_b)")
            raise InputError(f"text {i} is {received}, expected {expected}: the model's task is {task.name}")
    return texts


def _columns_of(table: Any, task: Any) -> list:
    """The texts of a DataFrame, in the columns that the task names."""
    names = [task.text, task.text_b] if task is not None and task.text_b else [task.text if task else "text"]
    for name in names:
        if name not in table.columns:
            held = ", ".join(map(str, table.columns))
            raise InputError(f"the DataFrame has no column {name!r}. It has: {held}. Give one of them: frame[...]")
    return list(table[names[0]]) if len(names) == 1 else list(zip(*(table[name] for name in names)))


def task_output(model: Any, inputs: dict[str, Any]) -> Any:
    """Logits or values of a batch."""
    return next(iter(model(inputs).values()))


def task_logits(model: Any, inputs: dict[str, Any]) -> Any:
    """What the head says of a batch: logits, or standardised numbers [B, 1]."""
    return model.logits(model.encoder(inputs, queries="first"))


def check_task(model: Any) -> None:
    """Refuse a model that answers nothing."""
    if getattr(model, "task", None) is None:
        raise InputError("the model has no task, expected a fine-tuned one: kerasbert finetune makes it")


def outputs(model: Any, texts: Texts, length: int | None = None) -> np.ndarray:
    """Logits [n, L] or values [n] of a task's model."""
    check_task(model)
    return forward(model, texts, "outputs", task_output, length)


def predict(
    model: Any, texts: Texts, *, length: int | None = None, batch: int = BATCH
) -> list[Classification | Regression]:
    """One answer per text (or pair): a Classification with `.label`, `.score`, `.scores`, or a Regression; `.truncated`.

    Args:
        model: a run's directory or a loaded model.
        texts: list of str, or of (text_a, text_b); a Series, or a DataFrame with the task's columns.
        length: int, tokens a text may have; longer ones are truncated. The length of the task's training by default.
        batch: int, texts at once.
    """
    return answered(as_model(model), texts, length, batch)[0]


def answered(
    model: Any, texts: Texts, length: int | None = None, batch: int = BATCH
) -> tuple[list[Classification | Regression], Encoded]:
    """One answer per text of a loaded model, and the encoded texts, which tell what was truncated."""
    check_task(model)
    if type(batch) is not int or batch < 1:
        raise InputError(f"batch must be a whole number of at least 1. Received: {batch!r}")
    most = longest(model, length)
    encoded = encode_texts(model.tokenizer, check_texts(model, texts), most)
    return _answers(model, run(graph(model, "outputs", task_output), encoded, most, batch), encoded.truncated), encoded


def _answers(model: Any, found: np.ndarray, truncated: Sequence[int]) -> list[Classification | Regression]:
    cut = np.zeros(len(found), bool)
    cut[list(truncated)] = True
    if model.task.kind == "regression":
        return [Regression(float(value), bool(lost)) for value, lost in zip(found, cut)]
    made = []
    for row, lost in zip(softmax(found.reshape(len(found), len(model.labels))), cut):
        scores = dict(zip(model.labels, map(float, row)))
        label = model.labels[int(row.argmax())]
        made.append(Classification(label, scores[label], scores, bool(lost)))
    return made


def encode(model: Any, texts: Texts, *, pooling: str = "mean", length: int | None = None) -> np.ndarray:
    """Vectors of texts: float32 [n, H].

    Args:
        model: a directory or a loaded model; a task's model lends its encoder.
        pooling: "mean" over the real tokens (specials included, as sentence-transformers has it), "first" for [CLS],
            "pooled" for the pooler's output.
    """
    from keras import ops

    model = as_model(model)
    model = getattr(model, "encoder", model)
    if pooling == "pooled" and not model.spec.pooler:
        raise InputError("pooling='pooled' needs a model with a pooler; use 'mean' or 'first'")

    def mean(model, inputs):
        mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
        return ops.sum(model(inputs)["sequence"] * mask, axis=1) / ops.sum(mask, axis=1)

    kinds = {
        "mean": mean,
        "first": lambda model, inputs: model(inputs, queries="first")["sequence"][:, 0],
        "pooled": lambda model, inputs: model(inputs, queries="first")["pooled"],
    }
    if pooling not in kinds:
        raise InputError(f"no pooling {pooling!r}. Expected one of: {', '.join(kinds)}")
    return forward(model, texts, pooling, kinds[pooling], length).reshape(len(texts), model.spec.hidden)
