"""Folders for a while, in TMPDIR: of copies, of what is converted, of what does not fit in memory.

Each is locked by the process that made it, and deleted when that is done with it or ends. What a process left that was killed
(a SavedModel of the model's size, a checkpoint with its optimizer) is deleted by the next one that makes such a folder.
"""

import atexit
import contextlib
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kerasbert.storage import aside, locks

PREFIX = "kerasbert-temporary."
NAME = re.compile(rf"{re.escape(PREFIX)}[a-z0-9_]{{8}}")
_held: dict[Path, int | None] = {}  # folder -> what keeps its lock


def made() -> Path:
    """A folder that is gone when the process ends, or after `remove`."""
    _begin(os.getpid())
    if locks.AVAILABLE:
        sweep(tempfile.gettempdir())
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        handle = None
        if locks.AVAILABLE:
            try:
                handle = os.open(folder, os.O_RDONLY)
            except FileNotFoundError:  # another process's `sweep` took it before it was locked
                continue
            if locks.lock(handle) is False or not aside.is_of(folder, handle):
                os.close(handle)
                continue
        _held[folder] = handle
        return folder


def remove(folder: str | os.PathLike) -> None:
    """Delete a folder of `made`."""
    shutil.rmtree(folder, ignore_errors=True)
    handle = _held.pop(Path(folder), None)
    if handle is not None:
        os.close(handle)


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """A folder that is gone when the block ends."""
    place = made()
    try:
        yield str(place)
    finally:
        remove(place)


@functools.cache
def sweep(place: str) -> None:
    """Delete what killed processes of this user left, once in a process."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if NAME.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                aside.remove_left(Path(entry.path))


@functools.cache
def _begin(process: int) -> None:
    """See to it that nothing is left when this process ends."""
    before = set(_held)  # of the process that it is a fork of

    def end() -> None:
        if os.getpid() == process:
            for each in _held.keys() - before:
                remove(each)

    atexit.register(end)
