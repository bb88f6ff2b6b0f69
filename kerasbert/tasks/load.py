"""Model directories -> models: an encoder, or a task's model."""

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from kerasbert import checkpoints, children, registry
from kerasbert import spec as specs
from kerasbert.checkpoints import adapters, source
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.layers.encoder import Encoder
from kerasbert.options import checked
from kerasbert.registry import Family
from kerasbert.storage import files, steady
from kerasbert.storage.json_view import Json
from kerasbert.tasks import early_checks
from kerasbert.tasks.adapted_models import encoder_of, in_bfloat16, load_on
from kerasbert.tasks.base import TaskKind
from kerasbert.tasks.labels import names_of
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task, task_of
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel
    from kerasbert.tasks.ensemble import Ensemble


@checked
def build(name: str, **changes: object) -> "SpecModel":
    """A randomly initialised encoder: `build("bert/tiny")`.

    Args:
        name: str, `family/size`.
        changes: Spec fields at their dotted paths, `**{"embeddings.vocabulary": 1000}`.

    Returns:
        the built encoder, without a tokenizer.

    Raises:
        InputError: no such model or field (the nearest is named), or a value that the Spec cannot have.
    """
    family, spec = registry.find(name)
    return built(family, specs.derive(spec, changes), name)


@checked
def save(
    model: keras.Model,
    directory: str | os.PathLike,
    *,
    tokenizer: Tokenizer | None = None,
    overwrite: bool = False,
    adapter: bool = False,
) -> None:
    """Write a model directory, which every command and `load` take: Spec, weights, tokenizer, task and labels.

    Args:
        model: an encoder or a task's model, however it was trained.
        directory: the directory to make.
        tokenizer: of an encoder that has none yet; by default the model's `.tokenizer`.
        overwrite: replace what the directory holds.
        adapter: write what adapts the base alone, LoRA or adapters with norms, a pooler and the head; `load(DIR, base=...)`
            puts it onto the base again.

    Raises:
        InputError: another kind of model, a model without a tokenizer, or a directory that is taken.
    """
    files.check_free(directory, overwrite)
    encoder, task = encoder_of(model), getattr(model, "declaration", getattr(model, "task", None))
    if not hasattr(encoder, "spec"):
        raise InputError(
            f"save takes an encoder or a task's model, received {type(model).__name__}: save the encoder that it holds, "
            "or the whole by model.save('FILE.keras')"
        )
    parts = checkpoints.ModelParts(
        encoder,
        encoder.model_name or registry.family_of(encoder).name,
        model.heads if task else None,  # of an imported encoder: arrays by name
        task=task.to_json() if isinstance(task, Task) else task,
        labels=model.labels if task else None,
        plugin=registry.plugin_of(encoder),
    )
    if adapter:
        parts = parts if isinstance(task, Task) else dataclasses.replace(parts, heads=None)
        with files.new_directory(directory, overwrite) as folder:
            adapters.write_adapter(Path(folder), parts)
        return
    tokenizer = tokenizer or getattr(model, "tokenizer", None) or encoder.tokenizer
    if tokenizer is None:
        raise InputError("the model has no tokenizer: give tokenizer=kb.load_tokenizer(DIR)")
    rows = specs.maybe(encoder.spec, "embeddings.vocabulary", tokenizer.size)
    if tokenizer.size > rows:
        raise InputError(
            f"the tokenizer has {tokenizer.size} pieces, expected at most {rows}: the model's embeddings.vocabulary"
        )
    parts = dataclasses.replace(parts, tokenizer=tokenizer, generation=getattr(encoder, "generation", None))
    with files.new_directory(directory, overwrite) as folder:
        checkpoints.write_model(folder, parts)


def held_task(model: "str | os.PathLike | keras.Model | Ensemble", kind: TaskKind) -> tuple[Json, Family]:
    """The task that a model directory holds, as model.json says it, and the model's family.

    Without a task, and of a model, it is how an imported checkpoint writes, {"generation": ...}, or {}.

    Raises:
        InputError: the directory holds what a task of that kind would leave out.
    """
    if isinstance(model, Path):
        check_left_out(model, kind)
    info = checkpoints.read_model_json(model) if isinstance(model, Path) else None
    family = registry.family(info.family) if info else registry.family_of(getattr(model, "encoder", model))
    if info is not None and info.task:
        return info.task, family
    generation = info.generation if info else getattr(getattr(model, "encoder", model), "generation", None)
    return ({"generation": generation} if generation else {}), family


def check_left_out(path: Path, kind: TaskKind) -> None:
    """Refuse a directory whose answers of a kind need numbers that no model of the task has.

    Raises:
        InputError: which they are.
    """
    tensors = checkpoints.read_tensors(path)
    wanted = tuple(f"heads/{head}/" for head in kind.left_out)
    for name in (name for name in tensors.names() if wanted and name.startswith(wanted)):
        if tensors.read(name).any():
            raise InputError(
                f"{path} holds {name}, which is added to the output and is not zero: a {kind.name} has no place for it yet"
            )


@checked
def load(
    directory: str | os.PathLike,
    task: str | None = None,
    base: str | os.PathLike | keras.Model | None = None,
    *,
    precision: str = "float32",
    labels: str | Sequence[str] | None = None,
) -> keras.Model:
    """The model of a directory, with `.tokenizer`, `.labels` and `.spec`.

    Args:
        directory: a model or run directory, RUN@STEP of a run's checkpoint, a Hugging Face folder, or a `.keras` file.
        task: str, a task that needs no fine-tuning: "fill-mask", whose heads pretraining has left in the directory, or one of
            those that write, such as "translation".
        base: of a directory of an adapter alone, ours or Hugging Face PEFT's: the directory of the model that it adapts, or
            that model, loaded: then all adapters of it share its weights in memory.
        precision: "bfloat16": weights in half the bytes, and products that processors with AVX512-BF16 or AMX compute faster;
            the answers differ from float32's by its rounding.
        labels: of a `.keras` file, which holds none: the names of its labels, in the order of its output.

    Returns:
        The task's model for a fine-tuned one, else the encoder (heads of pretraining are left out).

    Raises:
        InputError: no model there, an unfinished run, weights that do not fit, no heads of `task`, no such precision, or a
            network that is computed in float32 alone.
    """
    early_checks.check_name_of_precision(precision)
    children.check_fork()
    if precision == "bfloat16":
        if os.fspath(directory).endswith(".keras"):
            raise InputError(f"precision bfloat16 is for models of kerasbert: {directory} computes as it was made")
        return in_bfloat16(load(directory, task, base))
    if os.fspath(directory).endswith(".keras") and os.path.isfile(directory):
        children.computing()
        model = _of_keras(directory)
        if labels is not None:
            model.labels = names_of(labels)
        return model
    if labels is not None:
        raise InputError(f"labels are of a .keras file, which has none, and {directory} has its own: leave them out")
    if base is not None:
        return load_on(directory, base)
    path = source.directory(directory)
    with steady.unchanged(path):
        encoder, info = checkpoints.load_encoder(path)
        if task is not None:
            model = with_heads(encoder, directory, task)
        elif (declared := task_of(info)) is None:
            return encoder
        else:
            model = _headed(path, encoder, declared)
            _take(model, path)
    model.directory = _place(directory)  # where run.json tells which rows were held out
    return model


def _place(directory: str | os.PathLike) -> str | os.PathLike:
    """Where a model lies, also when the current directory is another one; of a name on the hub that."""
    there = os.path.exists(directory) or os.path.exists(os.fspath(directory).rpartition("@")[0])
    return directory if not there or os.path.isabs(directory) else os.path.abspath(directory)


def with_heads(encoder: Encoder, directory: str | os.PathLike, task: str) -> TaskModel:
    """The model of a task that needs no fine-tuning, of an encoder and the heads of the directory that it was loaded from.

    Raises:
        InputError: no heads of `task` there.
    """
    path, declared = source.directory(directory), registry.task(task)
    generation, tensors = checkpoints.read_model_json(path).generation, checkpoints.read_tensors(path)
    declared = declared.how.of_family(declared.how.imported(declared, generation), registry.family_of(encoder))
    prefix = "heads/"
    if hasattr(encoder, "token_model"):
        encoder, prefix = encoder.token_model(tensors) or (encoder, prefix)
    model, found = _headed(path, encoder, declared), tensors.names()
    if not all(any(name.startswith(f"{prefix}{head}/") for name in found) for head in model.heads):
        raise InputError(early_checks.NO_HEAD.format(directory, ", ".join(model.heads), task))
    _take(model, path, prefix)
    return model


def _headed(path: Path, encoder: Encoder, task: Task) -> TaskModel:
    """The model of a task around the encoder of a directory, its heads as yet new."""
    check_left_out(path, task.how)
    model = TaskModel(encoder, task, name="label_model")
    model.build()
    return model


def _take(model: TaskModel, path: Path, prefix: str = "heads/") -> None:
    """Give a model the heads of a directory, whose names begin with `prefix`."""
    for name, head in model.heads.items():
        checkpoints.load_weights(path, head, f"{prefix}{name}/")


def _of_keras(path: str | os.PathLike) -> keras.Model:
    """What a `.keras` file holds.

    Raises:
        InputError: code that is not there: a class that nobody registered, a lambda, which Keras does not run from a file.
    """
    _ = [*registry.families()]  # their classes are known to Keras once they are imported
    try:
        return keras.saving.load_model(path)
    except (TypeError, ValueError, LookupError, OSError, AttributeError, ImportError) as error:
        told = str(error)
        way = "in a file that is given as a plug-in (--plugin FILE, kerasbert.registry.load_plugin)"
        if "lambda" in told.lower():
            raise InputError(
                f"{path} holds a lambda, whose code Keras does not run from a file. Write it as a layer of a class, with "
                f"@keras.saving.register_keras_serializable(), {way}"
            ) from error
        if found := re.search(r"Could not locate (?:class|function) '([^']+)'", told):
            raise InputError(
                f"{path} holds {found[1]}, which nothing here defines. Expected it with "
                f"@keras.saving.register_keras_serializable() {way}"
            ) from error
        reason = next((line.strip() for line in told.splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"Keras cannot read {path}: {reason[:200]}") from error
