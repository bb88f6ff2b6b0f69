"""Files appear whole or not at all: written beside their place, synced, then renamed."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError


def sync(path: Path) -> None:
    """Flush a file or directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _complain(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write {path}: {error.strerror or error}. Nothing was left there; free space or choose another place"
    )


def write_atomic(path: str | os.PathLike, data: bytes | str) -> None:
    """Write a whole file: a reader sees the old content or the new, never a part.

    Raises:
        InputError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    path = Path(path)
    data = data.encode() if isinstance(data, str) else data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise _complain(path, error) from error


@contextlib.contextmanager
def new_file(path: str | os.PathLike) -> Iterator[Path]:
    """A path to write beside `path`; what was written there becomes `path` when the block ends without an error.

    Raises:
        InputError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        sync(part)
        os.replace(part, path)
    except OSError as error:
        raise _complain(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def sha256(path: str | os.PathLike) -> str:
    """The hash of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write `value` as indented json, atomically."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def check_free(path: str | os.PathLike, replace: bool = False) -> None:
    """Refuse a place for a directory that holds something already, unless that is to be replaced."""
    path = Path(path)
    if path.exists() and not replace and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists already. Choose another place or pass --overwrite")


@contextlib.contextmanager
def new_directory(path: str | os.PathLike, replace: bool = False) -> Iterator[Path]:
    """A directory that appears at `path` only when the block ends without an error.

    Args:
        replace: bool, put it in the place of an existing directory; else an existing, non-empty one is an error.
    """
    path = Path(path)
    check_free(path, replace)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise _complain(path, error) from error
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            sync(file)
        os.chmod(temporary, 0o755)
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _complain(path, error) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
