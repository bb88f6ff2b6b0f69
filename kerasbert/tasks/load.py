"""Model directories -> models: an encoder, or a task's model."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from kerasbert import checkpoints, registry
from kerasbert.errors import InputError
from kerasbert.tasks.label import LabelModel
from kerasbert.tasks.task import Task


def build(name: str, **changes: Any) -> Any:
    """A randomly initialised encoder: `build("bert/tiny")`.

    Args:
        name: str, `family/size`.
        changes: Spec fields at their dotted paths, `**{"embeddings.vocabulary": 1000}`.
    """
    family, spec = registry.find(name)
    encoder = family.encoder(spec.derive(changes))
    encoder.build()
    return encoder


def load(directory: str | os.PathLike) -> Any:
    """The model of a model or run directory, with `.tokenizer`, `.labels` and `.spec`.

    Returns:
        The task's model for a fine-tuned one, else the encoder (heads of pretraining are left out).

    Raises:
        InputError: no model directory, an unfinished run, weights that do not fit.
    """
    path = Path(directory)
    check_finished(path)
    encoder, info = checkpoints.load_encoder(path)
    task = task_of(info)
    if task is None:
        return encoder
    model = LabelModel(encoder, task, name="label_model")
    model.build()
    checkpoints.load_weights(path, model.heads["classifier"], "heads/classifier/")
    return model


def check_finished(path: Path) -> None:
    """Refuse a run directory that holds no model yet."""
    if (path / "run.json").is_file() and not (path / "weights.safetensors").is_file():
        raise InputError(f"{path} holds an unfinished run: run its command again, it resumes")


def task_of(info: checkpoints.ModelInfo) -> Task | None:
    """The task of a model directory; None for a bare encoder."""
    if info.task is None:
        return None
    task = Task.from_json(info.task)
    if info.labels and not task.labels:
        task = dataclasses.replace(task, labels={label: label for label in info.labels})
    return task
