"""Folders and files of a run, local or at an address such as gs://bucket/run (tf.io.gfile).

An object store has neither folders nor rename, but an object appears when its writer closes it, whole.
"""

import contextlib
import os
import posixpath
import secrets
from collections.abc import Sequence
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.lazy import Module
from kerasbert.storage import files, remote
from kerasbert.storage.remote import is_remote, join

tf = Module("tensorflow")  # an address needs it, a local run does not


def errors(path: str | os.PathLike) -> tuple[type[Exception], ...]:
    """What a file system raises: that of an address, or of this machine."""
    return (OSError, tf.errors.OpError) if is_remote(path) else (OSError,)


def read(path: str | os.PathLike) -> bytes | None:
    """The content of a file; None where there is none."""
    if not is_remote(path) and not Path(path).is_file():
        return None
    try:
        return remote.read(path)
    except tf.errors.NotFoundError:
        return None


def write(path: str | os.PathLike, data: bytes | str) -> None:
    """Write a whole file: a reader sees the old content or the new, never a part.

    Raises:
        InputError: the disk is full, the bucket is not there or refuses.
    """
    if not is_remote(path):
        files.write_atomic(path, data)
        return
    part = f"{os.fspath(path)}.{secrets.token_hex(6)}.part"  # of this writer alone
    try:
        with tf.io.gfile.GFile(part, "wb") as file:
            file.write(data)
        tf.io.gfile.rename(part, os.fspath(path), overwrite=True)
    except errors(path) as error:
        raise refused(path, error) from error


def upload(folder: Path, address: str, last: str) -> None:
    """Copy a local folder's files to an address, the one named `last` at the end: what it describes is there by then."""
    try:
        if exists(join(address, last)):
            tf.io.gfile.remove(join(address, last))
        names = sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != last
        )
        for name in [*names, last]:
            tf.io.gfile.makedirs(posixpath.dirname(join(address, name)))
            tf.io.gfile.copy(str(folder / name), join(address, name), overwrite=True)
    except errors(address) as error:
        raise refused(address, error) from error


def download(address: str, folder: Path, wanted: Sequence[str]) -> None:
    """Copy files and folders of files, those that are there, into a local folder."""
    for name in wanted:
        source = join(address, name)
        if tf.io.gfile.isdir(source):
            (folder / name).mkdir()
            download(source, folder / name, names(source))
        elif exists(source):
            (folder / name).write_bytes(read(source) or b"")


def names(folder: str | os.PathLike) -> list[str]:
    """What a folder holds, sorted; nothing where it is not there."""
    try:
        return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(os.fspath(folder)))
    except tf.errors.NotFoundError:
        return []


def exists(path: str | os.PathLike) -> bool:
    """Whether there is such a file."""
    return tf.io.gfile.exists(os.fspath(path))


def remove(folder: str, first: str | None = None) -> None:
    """Remove what is at an address, the file named `first` before the others; nothing where nothing is there."""
    if first and exists(join(folder, first)):
        tf.io.gfile.remove(join(folder, first))
    for path, _, found in list(tf.io.gfile.walk(folder, topdown=False)):
        for name in found:
            tf.io.gfile.remove(join(path, name))
    with contextlib.suppress(tf.errors.OpError):  # an object store has no folders that could be left
        tf.io.gfile.rmtree(folder)


def refused(path: str | os.PathLike, error: Exception) -> InputError:
    """One line about a place that cannot be written."""
    reason = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
    return InputError(f"cannot write {path}: {reason}. What was complete there is kept; free space or check the bucket")
