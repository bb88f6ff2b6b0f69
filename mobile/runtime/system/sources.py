"""Where a file comes from: a path, the bytes of it, or an open descriptor, as an app gets its assets."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from kerasbert.errors import InputError

CHUNK = 1 << 20
Bytes = bytes | bytearray | memoryview


def located(source: object) -> tuple[Path, Callable[[], None]]:
    """A path under which a file can be mapped, and what gives it back.

    Args:
        source: path; bytes-like, which are copied, into memory where the system has files in memory (Linux, Android), else into
            a temporary file; or int, the descriptor of a regular file that can be read, which stays the caller's.

    Raises:
        InputError: anything else, or a descriptor of no such file.
    """
    if isinstance(source, str | os.PathLike):
        if not os.fspath(source):
            raise InputError("the path is empty, expected a .tflite file")
        return Path(source), _nothing
    if isinstance(source, Bytes):
        if bytes(source[4:8]) != b"TFL3":
            raise InputError(
                f"the {len(source):,} bytes are no .tflite, expected the content of one, or its path as text"
            )
        return _held(lambda write: write(source))
    if not isinstance(source, int) or isinstance(source, bool):
        raise InputError(f"received a {type(source).__name__}, expected a path, the bytes of a .tflite or a descriptor")
    try:
        number = os.dup(source)
        os.pread(number, 1, 0)
    except OSError as error:
        raise InputError(
            f"descriptor {source} cannot be read ({error.strerror}), expected that of a .tflite file"
        ) from error
    if os.path.exists(f"/proc/self/fd/{number}"):
        return Path(f"/proc/self/fd/{number}"), lambda: os.close(number)
    try:
        return _held(lambda write: _copy(number, write))
    finally:
        os.close(number)


def _nothing() -> None:
    """A path is the caller's."""


def _copy(number: int, write: Callable[[bytes], object]) -> None:
    at = 0
    while chunk := os.pread(number, CHUNK, at):
        write(chunk)
        at += len(chunk)


def _held(fill: Callable[[Callable[[Bytes], object]], object]) -> tuple[Path, Callable[[], None]]:
    """A copy in memory, else in a temporary file."""
    with contextlib.suppress(AttributeError, OSError):
        number = os.memfd_create("kerasbert-model")
        path = Path(f"/proc/self/fd/{number}")
        if path.exists():
            with open(os.dup(number), "wb") as file:
                fill(file.write)
            return path, lambda: os.close(number)
        os.close(number)
    from kerasbert.storage import scratch  # here: a phone, which has files in memory, does without

    folder = scratch.made()
    with open(folder / "model.tflite", "wb") as file:
        fill(file.write)
    return folder / "model.tflite", lambda: scratch.remove(folder)
