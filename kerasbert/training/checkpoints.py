"""Checkpoints of a run: `checkpoints/step_N/` with tensors, and a manifest (sizes, sha256, state) written last.

Written by a thread while training goes on: the tensors are the values of the moment `begin` was called.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.checkpoints.run_checkpoints import FOLDER, MANIFEST, STEP, numbers
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.storage import files, folders, scratch
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.storage.remote import is_remote

Tensors = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint.

    Attributes:
        step: int, updates that were made.
        path: its folder, or a local copy of it.
        state: json, what else the run needs.
    """

    step: int
    path: Path
    state: Json

    def tensors(self, name: str) -> Safetensors:
        """The tensors of `<name>.safetensors`, read lazily."""
        return Safetensors(self.path / f"{name}.safetensors")


class Checkpoints:
    """The checkpoints of a run's directory.

    Locally one exists when its folder does, which is after every file reached the disk; at an address (gs://) when its
    manifest does, which is written after the other files.

    Args:
        directory: the run's directory or address.
        keep: int, how many complete ones are left; at least 2, for the newest may be damaged.
        keep_every: int, updates; those of these are never removed. 0 for none.
    """

    def __init__(self, directory: str | os.PathLike, keep: int = 2, keep_every: int = 0) -> None:
        self.keep, self.keep_every = max(2, keep), keep_every
        self.move(directory)
        self.damaged: set[int] = set()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def move(self, directory: str | os.PathLike) -> None:
        """The run's directory is now there; nothing is being written."""
        self.folder, self.remote = folders.join(directory, FOLDER), is_remote(directory)

    def check_room(self, saved: Iterable[Any], updates: int, every: int) -> None:
        """Refuse a disk that does not hold the checkpoints that a run will have at once: that came after their updates.

        Args:
            saved: variables of a checkpoint.
            updates: int, that are left.
            every: int, updates between two of them; 0 for the last alone.

        Raises:
            InputError: what they take, and what is free.
        """
        if self.remote:
            return
        size = sum(4 * int(np.prod(each.shape)) for each in saved)
        count = max(1, min(-(-updates // every) if every else 1, self.keep + 1 - len(self._steps())))
        try:
            free = shutil.disk_usage(os.path.dirname(self.folder)).free
        except OSError:  # a file system that does not tell
            return
        if free < count * size:
            takes = f"{count * size / 1e6:,.1f} MB ({count} of {size / 1e6:,.1f})"
            told = f"the checkpoints in {self.folder} will take {takes}, and {free / 1e6:,.1f} MB are free"
            raise InputError(f"{told}. Free space or choose another place")

    def begin(self, step: int, groups: Mapping[str, Tensors], state: Mapping[str, object]) -> None:
        """Write a checkpoint in the background; one that is being written is waited for.

        Args:
            groups: file name without ending -> tensors (float32) by name, which nobody changes afterwards.

        Raises:
            InputError: the save before this one failed.
        """
        self.wait()

        def work() -> None:
            try:
                self.save(step, groups, state)
            except BaseException as error:  # it belongs to the thread that trains: `check` and `wait` raise it there
                self._error = error

        # Not a daemon: a process that ends, for whatever reason but a SIGKILL, completes its checkpoint
        self._thread = threading.Thread(target=work, name=f"checkpoint-{step}", daemon=False)
        self._thread.start()

    def check(self) -> None:
        """Raise the error of a save that failed."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Return when nothing is being written; raises as `check`."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def save(self, step: int, groups: Mapping[str, Tensors], state: Mapping[str, object]) -> None:
        """Write a checkpoint now; afterwards the oldest ones go, and the damaged ones."""
        if self.remote:
            with scratch.folder() as folder:
                _write(Path(folder), step, groups, state)
                folders.upload(Path(folder), self._path(step), last=MANIFEST)
        else:
            with files.new_directory(self._path(step), replace=True, inside=True) as folder:
                _write(folder, step, groups, state)
        self.damaged.discard(step)
        complete = [old for old in self._steps() if old not in self.damaged]
        kept = [old for old in complete if old and self.keep_every and old % self.keep_every == 0]
        for old in [*(old for old in complete[self.keep :] if old not in kept), *self.damaged]:
            self._remove(self._path(old))
        self.damaged.clear()

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint whose files are what its manifest says; None where no checkpoint was ever completed.

        A damaged one is passed over with a warning.

        Raises:
            InputError: there are checkpoints and all of them are damaged.
        """
        steps = self._steps()
        for step in steps:
            path = None
            try:
                path = self._local(step)
                problem, manifest = _verify(path)
            except PermissionError as error:  # it may be whole, and what is damaged is deleted by the next `save`
                raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
            except folders.errors(self.folder) as error:
                problem, manifest = f"{type(error).__name__}: {error}", {}
            if not problem and path is not None:
                found = Checkpoint(step, path, manifest["state"])
                if self.remote:
                    weakref.finalize(found, shutil.rmtree, path, ignore_errors=True)
                return found
            if self.remote and path:
                shutil.rmtree(path, ignore_errors=True)
            self.damaged.add(step)
            warnings.warn(f"checkpoint {self._path(step)} is damaged ({problem}); trying the one before", stacklevel=2)
        if steps:
            raise InputError(
                f"every checkpoint in {self.folder} is damaged (steps {', '.join(map(str, sorted(steps)))}): "
                "put a good copy there, or start afresh with --overwrite"
            )
        return None

    def remove_unfinished(self) -> None:
        """Delete what a killed process left half-written."""
        if not self.remote:
            files.sweep(self.folder)
        for name in folders.names(self.folder):
            path = folders.join(self.folder, name)
            hidden = name.startswith(f".{STEP}")
            if hidden or (self.remote and name.startswith(STEP) and not folders.exists(folders.join(path, MANIFEST))):
                self._remove(path)

    def _remove(self, path: str) -> None:
        """A checkpoint's removal may be cut off too: it stops to exist before its files go."""
        if self.remote:
            folders.remove(path, first=MANIFEST)
            return
        hidden = folders.join(self.folder, "." + os.path.basename(path).lstrip("."))
        if hidden != path and os.path.isdir(path):
            shutil.rmtree(hidden, ignore_errors=True)
            os.replace(path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _path(self, step: int) -> str:
        return folders.join(self.folder, f"{STEP}{step}")

    def _steps(self) -> list[int]:
        """Those of complete checkpoints, the newest first; locally each folder is one."""
        steps = numbers(folders.names(self.folder))[::-1]
        if self.remote:
            return [step for step in steps if folders.exists(folders.join(self._path(step), MANIFEST))]
        return steps

    def _local(self, step: int) -> Path:
        """The folder of a checkpoint, or a local copy of it."""
        if not self.remote:
            return Path(self._path(step))
        copy = scratch.made()
        for name in folders.names(self._path(step)):
            (copy / name).write_bytes(folders.read(folders.join(self._path(step), name)) or b"")
        return copy


def _write(folder: Path, step: int, groups: Mapping[str, Tensors], state: Mapping[str, object]) -> None:
    for name, tensors in groups.items():
        shapes = {key: value.shape for key, value in tensors.items()}
        write_safetensors(folder / f"{name}.safetensors", shapes, tensors.__getitem__)
    written = {
        file.name: {"bytes": file.stat().st_size, "sha256": files.sha256(file)} for file in sorted(folder.iterdir())
    }
    content = {"step": step, "files": written, "state": dict(state)}
    files.write_json(folder / MANIFEST, content | {"sha256": _digest(content)})


def _digest(content: JsonMap) -> str:
    """sha256 of the manifest's own content: a number in the state may be what was damaged."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _verify(path: Path) -> tuple[str | None, Json]:
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        if manifest.pop("sha256") != _digest(manifest):
            return f"{MANIFEST} has another sha256", {}
        for name, expected in manifest["files"].items():
            if (path / name).stat().st_size != expected["bytes"]:
                return f"{name} has {(path / name).stat().st_size} bytes instead of {expected['bytes']}", {}
            if files.sha256(path / name) != expected["sha256"]:
                return f"{name} has another sha256", {}
        return None, manifest
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{type(error).__name__}: {error}", {}
