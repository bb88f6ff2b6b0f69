"""Local paths and addresses such as gs://bucket/records, read and written alike. Addresses need TensorFlow."""

import io
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import tensorflow as tf
    from _typeshed import WriteableBuffer


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path is an address such as gs://bucket/records."""
    return "://" in os.fspath(path)


def join(directory: str | os.PathLike, *names: str) -> str:
    """Path or address of something in a directory."""
    return posixpath.join(os.fspath(directory), *names)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def size(path: str | os.PathLike) -> int | None:
    """Size of a file in bytes, None where there is none."""
    if is_remote(path):
        return _gfile().stat(path).length if _gfile().exists(path) else None
    return os.path.getsize(path) if os.path.isfile(path) else None


def opened(path: str | os.PathLike, mode: str = "rb") -> BinaryIO:
    """A file opened for reading or writing bytes."""
    opener: Any = _gfile().GFile if is_remote(path) else open
    return opener(os.fspath(path), mode)


class _Seekable(io.RawIOBase):
    """TensorFlow's file as Python's own, for readers that need all of its methods."""

    def __init__(self, file: "tf.io.gfile.GFile") -> None:
        self.file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.file.tell(), os.SEEK_END: self.file.size()}[whence]
        self.file.seek(start + offset)
        return start + offset

    def tell(self) -> int:
        return self.file.tell()

    def readinto(self, buffer: "WriteableBuffer") -> int:
        places = memoryview(buffer).cast("B")
        data = self.file.read(len(places))
        places[: len(data)] = data
        return len(data)


def seekable(path: str | os.PathLike) -> BinaryIO:
    """A file opened for reading here and there."""
    return io.BufferedReader(_Seekable(opened(path))) if is_remote(path) else open(path, "rb")


def chunks(path: str | os.PathLike, chunk: int = 2**20) -> Iterator[bytes]:
    """A file's content piece by piece, so that no file is ever in memory."""
    with opened(path) as file:
        while data := file.read(chunk):
            yield data


def read(path: str | os.PathLike, limit: int = -1) -> bytes:
    """A file's content, or its first `limit` bytes."""
    with opened(path) as file:
        return file.read(limit)


def write(path: str | os.PathLike, data: bytes | str) -> None:
    """Write a file."""
    with opened(path, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def remove(path: str | os.PathLike) -> None:
    """Remove a file."""
    if is_remote(path):
        _gfile().remove(path)
    else:
        Path(path).unlink()
