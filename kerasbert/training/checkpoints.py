"""Checkpoints of a run: `checkpoints/step_N/` with tensors, and a manifest (sizes, sha256, state) written last."""

import dataclasses
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import files
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors

Tensors = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint.

    Attributes:
        step: int, updates that were made. path: its folder. state: json, what else the run needs to go on.
    """

    step: int
    path: Path
    state: dict[str, Any]

    def tensors(self, name: str) -> Safetensors:
        """The tensors of `<name>.safetensors`, read lazily."""
        return Safetensors(self.path / f"{name}.safetensors")


class Checkpoints:
    """The checkpoints of a run's directory.

    Args:
        directory: the run's directory. keep: int, how many complete ones are left; at least 2, for the newest may be damaged.
    """

    def __init__(self, directory: str | os.PathLike, keep: int = 2):
        self.folder, self.keep = Path(directory) / "checkpoints", max(2, keep)

    def save(self, step: int, groups: Mapping[str, Tensors], state: Mapping[str, Any]) -> None:
        """Write a checkpoint; it exists when the folder does, which is after every file reached the disk.

        Args:
            groups: file name without ending -> tensors (float32) by name.
        """
        with files.new_directory(self.folder / f"step_{step}", replace=True) as folder:
            for name, tensors in groups.items():
                shapes = {key: value.shape for key, value in tensors.items()}
                write_safetensors(folder / f"{name}.safetensors", shapes, tensors.__getitem__)
            written = {
                file.name: {"bytes": file.stat().st_size, "sha256": files.sha256(file)}
                for file in sorted(folder.iterdir())
            }
            files.write_json(folder / "manifest.json", {"step": step, "files": written, "state": dict(state)})
        for old in self._steps()[self.keep :]:
            shutil.rmtree(self._path(old), ignore_errors=True)

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint whose files are what its manifest says; a damaged one is passed over with a warning."""
        for step in self._steps():
            problem, manifest = self._verify(self._path(step))
            if not problem:
                return Checkpoint(step, self._path(step), manifest["state"])
            warnings.warn(f"checkpoint {self._path(step)} is damaged ({problem}); trying the one before", stacklevel=2)
        return None

    def remove_unfinished(self) -> None:
        """Delete what a killed process left half-written."""
        for folder in self.folder.glob(".step_*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"step_{step}"

    def _steps(self) -> list[int]:
        found = (path.name.removeprefix("step_") for path in self.folder.glob("step_*"))
        return sorted((int(step) for step in found if step.isdecimal()), reverse=True)

    def _verify(self, path: Path) -> tuple[str | None, dict[str, Any]]:
        try:
            manifest = json.loads((path / "manifest.json").read_text())
            for name, expected in manifest["files"].items():
                if (path / name).stat().st_size != expected["bytes"]:
                    return f"{name} has {(path / name).stat().st_size} bytes instead of {expected['bytes']}", {}
                if files.sha256(path / name) != expected["sha256"]:
                    return f"{name} has another sha256", {}
            return None, manifest
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}", {}
