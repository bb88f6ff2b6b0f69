"""A tiny run and its resumption, which stops before the first update; imports TensorFlow."""

import atexit
import functools
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import keras

import kerasbert as kb
from kerasbert.layers.naming import values
from kerasbert.training.trainer import Trainer
from tests import tiny

SETTINGS = {"steps": 6, "batch": 8, "learning_rate": 1e-3, "changes": tiny.SPEC, "quiet": True}


class Restored(Exception):
    """The run stands at a step."""


@functools.cache
def records() -> Path:
    """The same ones in every process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return tiny.records(folder)


def begin(folder: Path) -> Path:
    """A run of six updates that was stopped after four, with the checkpoints of the second and the fourth."""
    until = Trainer._until

    def stop(trainer: Trainer, step: int, part: Any) -> int:
        if step == 4:
            trainer.checkpoints.wait()
            raise Restored
        return until(trainer, step, part)

    with mock.patch.object(Trainer, "_until", stop):
        try:
            kb.pretrain("bert/tiny", records(), out=folder, save_every=2, **SETTINGS)
        except Restored:
            return folder
    raise AssertionError("the run was not stopped")


def resume(folder: str) -> tuple[Trainer, int]:
    """The trainer of the same command, and the step that it goes on from."""
    found = []

    def restore(trainer: Trainer) -> None:
        found.append((trainer, trainer._restore()))
        raise Restored

    keras.backend.clear_session(free_memory=False)
    with warnings.catch_warnings(action="ignore"), mock.patch.object(Trainer, "train", restore):
        try:
            kb.pretrain("bert/tiny", records(), out=folder, **SETTINGS)
        except Restored:
            return found[0]
    raise AssertionError("the run says that it is finished")


def weights(trainer: Trainer) -> dict[str, Any]:
    """Name -> array."""
    return values(trainer.program.model)
