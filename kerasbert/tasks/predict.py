"""Texts -> answers and vectors."""

import contextlib
import dataclasses
import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from kerasbert import answers, children, inputs, registry, truncation
from kerasbert import spec as specs
from kerasbert.answers.base import with_triples
from kerasbert.errors import InputError
from kerasbert.inputs import Input, Row, Tensor
from kerasbert.layers.encoder import SpecModel
from kerasbert.layers.readout import queries_of, readout, width
from kerasbert.options import checked
from kerasbert.progress import counted
from kerasbert.tasks import early_checks
from kerasbert.tasks.adapted_models import encoder_of
from kerasbert.tasks.base import TaskKind, find, kind_of
from kerasbert.tasks.batches import Encoded, encode_texts
from kerasbert.tasks.ensemble import Ensemble
from kerasbert.tasks.given import Texts, check_texts, listed
from kerasbert.tasks.graph_values import BATCH, run
from kerasbert.tasks.load import load
from kerasbert.tasks.own_model import answering
from kerasbert.tasks.prompts import prefixed, vector_kind
from kerasbert.value_types import check_whole

UNBOUNDED = 512  # tokens of a text where neither the family nor the task knows a bound

# what a user calls to answer: a directory, a model, or several that answer as one
Models = str | os.PathLike | keras.Model | Ensemble | Sequence[str | os.PathLike | keras.Model]

# model -> name -> graph: a model that answers one text after another is traced once
_graphs: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def as_model(model: str | os.PathLike | keras.Model, precision: str = "float32") -> keras.Model:
    """The model itself, or the one in a directory, in a precision of `load`."""
    if isinstance(model, str | os.PathLike):
        return load(model, precision=precision)
    if precision != "float32":
        raise InputError(
            "precision is for a directory; a model in memory computes as it was loaded: kb.load(precision=)"
        )
    children.computing()
    return model


def check_ours(model: object) -> None:
    """Refuse what is no model of ours: a path that is none, a Keras model of the user's own.

    Raises:
        InputError: of one line.
    """
    if not hasattr(model, "spec") or not hasattr(model, "tokenizer"):
        raise InputError(
            f"model is a {type(model).__name__}, expected a directory or a model of kerasbert: kb.load(DIRECTORY)"
        )


def check_one(model: Any) -> SpecModel:
    """`check_ours`, and an ensemble, which has several networks, is refused; -> the encoder."""
    check_ours(model)
    return encoder_of(model)


def together(
    model: Models, base: str | os.PathLike | keras.Model | None = None, precision: str = "float32"
) -> keras.Model | Ensemble:
    """The model as `as_model`, or of a list of them the `Ensemble`; `base` is that of adapters (`load`)."""
    if isinstance(model, list | tuple):
        return Ensemble([together(each, base, precision) for each in model])
    return answering(as_model(model, precision)) if base is None else load(model, base=base, precision=precision)


def longest(model: keras.Model, length: int | None = None) -> int:
    """Tokens a text may have: what was asked for, else what the task was trained with, else all the model's positions."""
    most, trained = positions(model), getattr(getattr(model, "task", None), "length", None)
    if length is None:
        return min(trained or most or UNBOUNDED, most or trained or UNBOUNDED)
    if not isinstance(length, int | np.integer) or isinstance(length, bool) or length < 3 or (most and length > most):
        wanted = f"between 3 and {most}, the model's positions" if most else "at least 3"
        raise InputError(f"length must be {wanted}. Received: {length!r}")
    return length


def positions(model: keras.Model) -> int | None:
    """Tokens of the longest sequence of a model or an encoder; None for a family without such a bound."""
    most = registry.family_of(getattr(model, "encoder", model)).longest(model.spec)
    fixed = getattr(model, "fixed", None)  # of a model of the user's own
    return min(most or fixed, fixed) if fixed else most


def declared(model: keras.Model, kind: TaskKind | None = None) -> tuple[Input, ...]:
    """What the network of a model or an encoder reads, and the head of a task.

    Args:
        kind: of the task, where it is not the model's.

    Raises:
        InputError: no such answers come from such a model.
    """
    kind = kind or kind_of(model)
    return (*kind.reads(registry.family_of(getattr(model, "encoder", model))), *kind.answers.inputs)


def settings_of(model: keras.Model, settings: Mapping[str, object] | None = None) -> dict[str, int]:
    """Input name -> number of the settings of a call, where not given those that the task was trained with."""
    trained = getattr(getattr(model, "task", None), "settings", {})
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    return inputs.numbers(declared(model), model.tokenizer, {**trained, **given})


def encoded_for(
    model: keras.Model,
    texts: Texts,
    length: int | None,
    settings: Mapping[str, object] | None = None,
    kind: TaskKind | None = None,
) -> Encoded:
    """The rows that a model reads of texts to answer."""
    return encoded_rows(model, check_texts(model, texts), length, settings, kind=kind)


def encoded_rows(
    model: keras.Model,
    texts: Texts,
    length: int | None,
    settings: Mapping[str, object] | None = None,
    kind: TaskKind | None = None,
) -> Encoded:
    """The rows that a model reads of a table's rows (`Rows.texts`), which may have more parts than it answers.

    Args:
        kind: the model's, with the options of a call.
    """
    kind = kind or kind_of(model)
    reads = {"kind": kind, "declared": declared(model, kind), "settings": settings_of(model, settings)}
    return encode_texts(model.tokenizer, texts, longest(model, length), **reads)


def graph(
    model: keras.Model,
    name: str,
    read: Callable,
    settings: Mapping[str, int] | None = None,
    reads: Sequence[Input] | None = None,
) -> Callable:
    """`read(model, inputs)` as a graph for any batch and length, made once for a model, a name and its settings.

    Args:
        reads: of `inputs`, where they are not those of the model's own kind.
    """
    import tensorflow as tf

    graphs = _graphs.setdefault(model, {})
    key = (name, *sorted(settings or {}))
    if key not in graphs:
        specs = {
            each.name: tf.TensorSpec(each.open_shape, each.dtype)
            for each in inputs.used(declared(model) if reads is None else reads, settings or {})
        }
        owner = weakref.ref(model)  # the graph must not keep the model that it is kept for
        # a partial: TensorFlow counts traces by the code of a function and would warn after five models
        made = tf.function(functools.partial(_called, read, owner), input_signature=[specs], autograph=False)
        graphs.setdefault(key, made)  # another thread's: one alone is traced
    return graphs[key]


def _called(read: Callable, owner: Callable, inputs: Mapping[str, Tensor]) -> Tensor:
    from kerasbert.layers.backend import serving

    with serving():
        return read(owner(), inputs)


def task_logits(model: keras.Model, batch: dict[str, Tensor]) -> Tensor:
    """What the head says of a batch: logits, or standardised numbers [B, 1]."""
    return model.logits(model.network(batch, queries=model.queries(batch)), batch)


def check_task(model: keras.Model) -> None:
    """Refuse a model that answers nothing."""
    check_ours(model)
    if getattr(model, "task", None) is None:
        raise InputError(early_checks.NO_TASK)


def outputs(
    model: keras.Model,
    texts: Texts,
    length: int | None = None,
    settings: Mapping[str, object] | None = None,
    lengths: Sequence[int] = (),
) -> Tensor:
    """What a task's model gives for each row: logits [n, L] or values [n]; a list of [S, L] where tokens are answered.

    Args:
        lengths: int, ascending, of which each row is padded to the next; by default to what its batch needs.
    """
    check_task(model)
    encoded = dataclasses.replace(encoded_for(model, texts, length, settings), lengths=lengths)
    return outputs_of(model, encoded, longest(model, length))


def outputs_of(model: keras.Model | Ensemble, encoded: Encoded, longest: int, batch: int = BATCH) -> Tensor:
    """`outputs` of packed rows."""
    if isinstance(model, Ensemble):
        return model.joined([outputs_of(each, encoded, longest, batch) for each in model.models])
    kind = kind_of(model).configured(encoded.kind.options)
    reads = declared(model, kind)
    function = graph(model, f"outputs {kind.program}", kind.output, encoded.settings, reads)
    asked = dataclasses.replace(encoded, rows=kind.prompts(encoded.rows), declared=reads)
    return run(function, asked, longest, batch, kind.per_token)


@checked
def predict(
    model: Models,
    texts: Texts,
    *,
    length: int | None = None,
    batch: int = BATCH,
    language: str | None = None,
    options: Mapping[str, object] | None = None,
) -> list[Any]:
    """Answers of a fine-tuned model.

    Args:
        model: a run's directory or a loaded model; a list of them answers as one (`Ensemble`). Or a `.keras` file, or a
            functional Keras model of one's own, that holds an encoder (`own_model.answering`).
        texts: list of str, of tuples of the task's parts such as (text_a, text_b), or of dicts of them by name; a Series,
            or a DataFrame with the task's columns. One str is a list of one.
        length: int, tokens a text may have; longer ones are truncated. The length of the task's training by default.
        batch: int, texts at once.
        language: str, of the texts, for a model that reads it (XLM); that of the task's training by default.
        options: of the task's kind, over those of its training, such as {"beams": 4} of a generation.

    Returns:
        an answer for each text (or pair), in their order: a Classification with `.label`, `.score`, `.scores`, a Regression
        with `.value`, or another of `kerasbert.answers`; `.truncated` says whether its text lost tokens.

    Raises:
        InputError: no model there or one without a task, what is no text of the task (with its number), a length that the
            model does not read, an option that the kind does not take.
    """
    return answered(together(model), texts, length, batch, {"language": language}, options)[0]


def answered(
    model: keras.Model | Ensemble,
    texts: Texts,
    length: int | None = None,
    batch: int = BATCH,
    settings: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
) -> tuple[list[Any], Encoded]:
    """One answer per text of a loaded model, and the encoded texts, which tell what was truncated."""
    check_task(model)
    check_whole("batch", batch)
    most = longest(model, length)
    texts, how = check_texts(model, texts), model.task.answering(options or {}).how
    encoded, kind = encoded_for(model, texts, length, settings, how), how.answers
    labels = list(model.labels or ())
    parts = encoded.parts
    if type(kind).answer is not answers.Kind.answer:  # it runs the model more than once
        row = functools.partial(_one_row, model, encoded, most)
        told = counted(parts, len(parts))
        return [kind.answer(row, model.tokenizer, each, most, labels) for each in told], encoded
    if not texts:
        return [], encoded
    with _as_asked(model, options):
        values = outputs_of(model, encoded, most, batch)
    values = [kind.probabilities(each) for each in values] if kind.per_token else kind.probabilities(values)
    rows = encoded.of()
    found = [kind.decode(each, encoded.rows[at], values[at], labels) for each, at in zip(parts, rows)]
    return [with_triples(each, encoded.rows[at], model.tokenizer) for each, at in zip(found, rows)], encoded


def _as_asked(model: keras.Model, options: Mapping[str, object] | None) -> contextlib.AbstractContextManager:
    """The model with options of a call: its network may depend on them, as vectors on `normalize`."""
    return model.asked(options) if options and hasattr(model, "asked") else contextlib.nullcontext()


def _one_row(model: keras.Model, encoded: Encoded, longest: int, row: Row) -> np.ndarray:
    one = Encoded([row], np.zeros(1, int), encoded.pad_id, encoded.declared, encoded.settings)
    return kind_of(model).answers.probabilities(outputs_of(model, one, longest)[0])


@checked
def encode(
    model: str | os.PathLike | keras.Model,
    texts: Texts,
    *,
    pooling: str | None = None,
    dims: int | None = None,
    length: int | None = None,
    language: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> np.ndarray:
    """Vectors of texts.

    Args:
        model: a directory or a loaded model; a task's model lends its encoder.
        texts: list of str, or whatever `predict` takes of a model of single texts. One str is a list of one.
        pooling: "mean" over the real tokens (specials included, as sentence-transformers has it), "first" for [CLS], "last" for
            the last real token (of what reads from left to right), "max", "mean_sqrt_len" or "weighted_mean" of the real
            tokens, some of these with + between them, or "pooled" for the pooler's output. None: the vector that the model was
            trained to give of a text (one whose task is vectors, such as an import from sentence-transformers, with its
            pooling, layers and norm; Skip-Thought, Quick-Thoughts), else "mean"; as in `kb.export`.
        dims: int, how many of the first numbers of a vector are kept (sentence-transformers' truncate_dim); all by default.
        length: int, tokens a text may have; that of the task's training by default, else the model's positions.
        language: str, of the texts, for a model that reads it (XLM).
        prompt_name: str, of the prompt that is put before each text, of those that an import from sentence-transformers
            brings; "" for none. By default the one that its files name.
        prompt: str, a text that is put before each text, of any model.

    Returns:
        float32 [n, H], a row for each text in their order; [n, dims] where that is given, and with several poolings their
        vectors side by side.

    Raises:
        InputError: no such pooling or prompt, or dims above the numbers of a vector.
    """
    settings = {"length": length, "language": language, "prompt_name": prompt_name, "prompt": prompt}
    model = as_model(model)
    found, encoded = vectors_and_rows(model, texts, pooling=pooling, dims=dims, **settings)
    truncation.count_truncated(len(encoded.truncated), len(found), longest(model, length))
    return found


def vectors_and_rows(
    model: str | os.PathLike | keras.Model,
    texts: Texts,
    *,
    pooling: str | None = None,
    dims: int | None = None,
    **settings: Any,
) -> tuple[np.ndarray, Encoded]:
    """`encode`, and the encoded texts, which tell what was truncated."""
    early_checks.check_pooling(pooling)
    early_checks.check_dims(dims)
    found, encoded = _vectors(model, texts, pooling, **settings)
    if dims is not None and len(found) and dims > found.shape[-1]:
        raise InputError(f"dims is {dims}, and a vector of this model has {found.shape[-1]} numbers")
    return found[:, :dims], encoded


def _vectors(
    model: str | os.PathLike | keras.Model,
    texts: Texts,
    pooling: str | None,
    length: int | None = None,
    language: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> tuple[np.ndarray, Encoded]:
    model = as_model(model)
    check_ours(model)
    kind, texts = vector_kind(model, prompt_name, prompt), listed(texts)
    if kind is None and prompt is not None:
        texts = prefixed(prompt, texts)
    if kind is not None and pooling is None:
        encoded = encoded_for(model, texts, length, {"language": language}, kind)
        with _as_asked(model, kind.options if kind.begin != kind_of(model).begin else None):
            found = outputs_of(model, encoded, longest(model, length))
        return found.reshape(len(texts), found.shape[-1] if len(texts) else 0), encoded
    begin, length = (0, length) if kind is None else (kind.begin, longest(model, length))
    model = encoder_of(model)
    if pooling == "pooled" and not specs.maybe(model.spec, "pooler"):
        raise InputError("pooling='pooled' needs a model with a pooler; use 'mean' or 'first'")

    def function(model: keras.Model, inputs: Mapping[str, Tensor]) -> Tensor:
        if pooling is None:
            return find("vector").device(model(inputs), inputs)
        if pooling == "pooled":
            return model(inputs, queries="first")["pooled"]
        mask = inputs["padding_mask"]
        return readout(model(inputs, queries=queries_of(pooling, mask, begin))["sequence"], mask, pooling, begin)

    encoded = encoded_for(model, texts, length, {"language": language}, kind)
    program = graph(model, f"{pooling or 'vector'} {begin}", function, encoded.settings)
    found = run(program, encoded, longest(model, length))
    side = None if pooling in (None, "pooled") else pooling
    return found.reshape(len(texts), width(side, model.spec.hidden)), encoded
