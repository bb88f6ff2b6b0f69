"""A zip of plain files behind the last byte of another file. Standard library only."""

import contextlib
import hashlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from kerasbert.errors import InputError

MAX_FILES = 64
MAX_BYTES = 64 << 20  # a vocabulary of 250,000 pieces takes 5 MB
CHUNK = 1 << 16


def pack(files: dict[str, bytes]) -> bytes:
    """A zip of uncompressed files dated 1980-01-01, in the given order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16  # else they name the machine's system
            archive.writestr(info, data)
    return buffer.getvalue()


def unpack(source: str | os.PathLike | bytes) -> dict[str, bytes]:
    """The files of the zip at the end of a file, sizes bounded.

    Raises:
        InputError: no such file, no zip at its end, a damaged one, one that is too large, a name with a folder in it or
            a name that stands there twice.
    """
    where = "the bundle" if isinstance(source, bytes) else str(source)
    with _opened(source) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        if len(entries) > MAX_FILES or total > MAX_BYTES:
            raise InputError(
                f"{where} holds a bundle of {len(entries)} files and {total} bytes, expected at most {MAX_FILES} "
                f"and {MAX_BYTES}: not a file that kerasbert wrote"
            )
        files: dict[str, bytes] = {}
        for entry in entries:
            name = entry.filename
            if name != os.path.basename(name) or "\\" in name or name in ("", ".", ".."):
                raise InputError(f"{where} holds a bundle with the name {name!r}, expected names without folders")
            if name in files:
                raise InputError(f"{where} holds a bundle with two files {name!r}, expected one of each name")
            with archive.open(entry) as file:
                files[name] = file.read(entry.file_size)
        return files


@contextlib.contextmanager
def _opened(source: str | os.PathLike | bytes) -> Iterator[zipfile.ZipFile]:
    """The zip at the end of a file; what is wrong with it, or with reading it, is an InputError."""
    where = "the bundle" if isinstance(source, bytes) else str(source)
    if (
        not isinstance(source, bytes) and os.path.exists(source) and not os.path.isfile(source)
    ):  # a pipe would be waited for
        if os.path.isdir(source):
            todo = (
                "kerasbert-mobile compress makes one of a model directory, kerasbert predict answers by the directory"
            )
            raise InputError(f"{where} is a folder, expected a .tflite file: {todo}")
        raise InputError(f"{where} is a pipe, a socket or a device, expected a .tflite file")
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else Path(source)) as archive:
            yield archive
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"no file {where}. Write one with: kerasbert-mobile compress RUN --out FILE") from error
    except PermissionError as error:
        raise InputError(f"cannot read {where}: {error.strerror}. Expected a .tflite file") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError, struct.error) as error:
        raise InputError(
            f"{where} carries no readable bundle ({error}). Expected a .tflite file written by kerasbert-mobile compress"
        ) from error


def digest(path: str | os.PathLike) -> str:
    """Hex sha256 of the bytes in front of the bundle, which `Bundle.digest` must equal.

    24 MB take 16 ms; crc32 takes 7 (AMD EPYC), but what names a file of packed weights must not be forged.

    Raises:
        InputError: as `unpack`.
    """
    found = hashlib.sha256()
    with _opened(path) as archive, open(path, "rb") as file:
        left = min((entry.header_offset for entry in archive.infolist()), default=0)
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            found.update(chunk)
            left -= len(chunk)
    return found.hexdigest()
