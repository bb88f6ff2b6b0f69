"""Adapted models in memory: LoRA merged into the matrices, several adapters over one base, weights in bfloat16."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints import adapters, peft, source
from kerasbert.checkpoints.directory import built, load_encoder
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import initial
from kerasbert.layers.naming import names, sharing, values
from kerasbert.options import checked
from kerasbert.tasks.ensemble import Ensemble
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task, task_of

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder, SpecModel


def encoder_of(model: "keras.Model | Ensemble") -> "SpecModel":
    """The encoder that a task's model lends; an encoder is it itself.

    Raises:
        InputError: an ensemble, which has several.
    """
    if isinstance(model, Ensemble):
        raise InputError(
            f"an ensemble of {len(model.models)} models predicts and is evaluated, and no more: give one of its models"
        )
    encoder: Any = getattr(model, "encoder", model)
    return encoder


@checked
def merged(model: "keras.Model") -> "keras.Model":
    """The model with LoRA merged into its matrices, kernel + alpha / rank * A B: as large and fast as the base.

    Args:
        model: an encoder or a task's model; one without LoRA comes back as it is.

    Returns:
        another model, with the same task, labels, tokenizer and heads.

    Raises:
        InputError: a path in the place of a model.
    """
    if isinstance(model, str | os.PathLike):
        raise InputError(f"model is the path {model}, expected a loaded model: kb.load(DIRECTORY)")
    encoder = encoder_of(model)
    if not specs.maybe(getattr(encoder, "spec", None), "lora.rank"):
        return model
    spec, held = dataclasses.replace(encoder.spec, lora=specs.Lora()), values(encoder)
    return rebuilt(model, spec, encoder.dtype_policy, adapters.merge(held, held.__getitem__, encoder.spec))


def rebuilt(
    model: "keras.Model", spec: specs.Spec, policy: "str | keras.DTypePolicy", read: Mapping[str, Callable[[], Tensor]]
) -> "keras.Model":
    """Another model of the same task, tokenizer, labels and heads.

    Args:
        model: an encoder or a task's model. spec: of the encoder. policy: Keras', of dtypes.
        read: name of a weight of the encoder -> what reads it.
    """
    encoder = encoder_of(model)
    plain = registry.family_of(encoder).encoder(spec, dtype=policy)
    plain.build()
    plain.model_name, plain.tokenizer, plain.labels = encoder.model_name, encoder.tokenizer, encoder.labels
    for name, variable in names(plain).items():
        variable.assign(read[name]())
    if model is encoder:
        return plain
    whole = _with_heads(plain, model.task, {head: values(layer) for head, layer in model.heads.items()})
    whole.directory = getattr(model, "directory", None)  # where run.json tells which rows were held out
    return whole


def in_bfloat16(model: "keras.Model") -> "keras.Model":
    """The model with weights and products in bfloat16; softmax and norms are computed in float32.

    Half the bytes, and products that processors with AVX512-BF16 or AMX compute faster.

    Raises:
        InputError: a network that cannot be made in bfloat16, or whose weights are not its family's alone.
    """
    encoder = encoder_of(model)
    held = values(encoder)
    kept = InputError(f"precision bfloat16: {type(encoder).__name__} is computed in float32 alone. Leave it out")
    read = {name: lambda value=value: value for name, value in held.items()}
    try:
        with initial.unset():
            made = rebuilt(model, encoder.spec, "bfloat16", read)
    except tf.errors.InvalidArgumentError as error:  # orthogonal matrices, which LSTMs begin with
        raise kept from error
    other = encoder_of(made)
    if type(other) is not type(encoder) or names(other).keys() != held.keys():
        raise kept
    return made


def load_on(directory: str | os.PathLike, base: "str | os.PathLike | keras.Model") -> "keras.Model":
    """The model of a base and an adapter, whose weights but for the adapter's are the base's own in memory.

    Args:
        directory: of an adapter, ours or PEFT's.
        base: a model directory, an encoder, or a task's model, which lends its encoder.

    Raises:
        InputError: no adapter there, or one for another base.
    """
    if isinstance(base, str | os.PathLike):
        base = load_encoder(source.directory(base))[0]
    base = encoder_of(base)
    if not hasattr(specs.maybe(base, "spec"), "base"):
        raise InputError(f"base is a {type(base).__name__}, expected a model directory or a loaded model")
    info = dataclasses.replace(adapters.base_info(base), labels=base.labels)
    if info.spec != info.spec.base:
        raise InputError(f"the base {info.name} is adapted itself, expected a plain model: kb.merged makes one of LoRA")
    theirs = (Path(directory) / source.PEFT).is_file()
    adapter = (peft.read if theirs else adapters.read_adapter)(Path(directory), info)
    adapter.check(values(base), base.model_name or adapter.info.name)
    info, own = adapter.info, {name: value for name, value in adapter.arrays.items() if not name.startswith("heads/")}
    family = registry.family_of(base)
    encoder = sharing(lambda: built(family, info.spec, base.model_name), base, own)
    weights = names(encoder)
    adapter.check_names({name: tuple(variable.shape) for name, variable in weights.items()})
    for name, value in own.items():
        weights[name].assign(value)
    encoder.tokenizer, encoder.labels = base.tokenizer, info.labels
    task = task_of(info)
    if task is None:
        return encoder
    heads: dict[str, dict[str, np.ndarray]] = {}
    for name, value in adapter.arrays.items():
        if name.startswith("heads/"):
            heads.setdefault(name.split("/")[1], {})[name.split("/", 2)[2]] = value
    return _with_heads(encoder, task, heads)


def _with_heads(encoder: "Encoder", task: Task, heads: dict[str, dict[str, np.ndarray]]) -> TaskModel:
    """A task's model on an encoder."""
    model = TaskModel(encoder, task, name="label_model")
    model.build()
    for head, layer in model.heads.items():
        for name, variable in names(layer).items():
            variable.assign(heads[head][name])
    return model
