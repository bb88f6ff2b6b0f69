"""A file of vectors that grows by blocks: a run that is killed goes on where it was, and ends with the same file.

Beside `out` lies `.NAME.DIGEST.partial`, which is the `.npy` to be, without the vectors that are not there yet; the digest is of
what the vectors depend on. It goes when `out` is whole.
"""

import contextlib
import glob
import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from kerasbert.errors import InputError
from kerasbert.retrieval import forms
from kerasbert.storage import aside, files, steady

END, MAGIC = ".partial", b"\x93NUMPY\x01\x00"


class VectorFile:
    """The vectors of texts so far, in a file that is open within a `with`.

    Args:
        out: path of the file, or of the folder, to be. about: json values that the vectors depend on.
        shape: (n, H) of the whole. dtype: str, of `forms.DTYPES`.

    Attributes:
        path: of the partial file. shape: (n, H). count: int, n. kept: int, vectors that are there.

    Raises:
        InputError: another process writes it, or the folder cannot be written.
    """

    def __init__(self, out: str | os.PathLike, about: Mapping[str, object], shape: tuple[int, int], dtype: str) -> None:
        self.out, self.dtype = Path(os.path.realpath(out)), dtype
        head = json.dumps({"vectors": shape, "dtype": dtype, **about}, sort_keys=True)
        digest = hashlib.sha256(head.encode()).hexdigest()[:12]
        self.path = self.out.with_name(f".{self.out.name}.{digest}{END}")
        kind, columns = np.dtype(forms.DTYPES[dtype]), forms.columns(shape[1], dtype)
        self.shape = shape
        self.count, self.kept, self._bytes = shape[0], 0, columns * kind.itemsize
        content = io.BytesIO()
        described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (shape[0], columns)}
        np.lib.format.write_array_header_1_0(content, described)
        self._head = content.getvalue()

    def __enter__(self) -> Self:
        with files.writing(self.out):
            self._made = files.make(self.out.parent)
            self.file: BinaryIO = open(self.path, "a+b")
        try:
            files.lock(self.file, f"another process writes {self.path}")
        except BaseException:
            self.file.close()
            raise
        try:
            self._find()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, kind: object = None, error: BaseException | None = None, trace: object = None) -> None:
        with contextlib.suppress(OSError):  # what a full disk did not take is tried again, and was told
            self.file.close()
        if not self.kept:
            with contextlib.suppress(OSError):
                self.path.unlink()
            files.unmake(self._made)
            return
        goes_on = "" if error is None else steady.goes_on(error)
        kept = f"{self.kept:,} of {self.count:,} vectors are kept in {self.path}: {goes_on}"
        if isinstance(error, KeyboardInterrupt):
            error.args = (f"interrupted: {kept}",)
        elif isinstance(error, InputError):
            raise InputError(f"{error}. {kept}") from error

    def _find(self) -> None:
        """Count the whole vectors that are there; what is behind the last of them goes."""
        self.file.seek(0)
        if self.file.read(len(self._head)) != self._head:
            self.file.truncate(0)
            self._append(self._head)
            return
        start, size = len(self._head), os.fstat(self.file.fileno()).st_size
        self.kept = min(self.count, (size - start) // self._bytes)
        self.file.truncate(start + self.kept * self._bytes)

    def _append(self, content: bytes) -> None:
        with files.writing(self.path):
            self.file.write(content)
            self.file.flush()
            os.fsync(self.file.fileno())

    def add(self, vectors: np.ndarray) -> None:
        """Append a block: float32 [n, H]; it is on the disk when this returns."""
        self._append(np.ascontiguousarray(forms.stored(vectors, self.dtype)).tobytes())
        self.kept += len(vectors)

    def copy(self, place: Path) -> None:
        """Put the whole file at a new place, without room of its own where the file system can."""
        assert self.kept == self.count, (self.kept, self.count)
        try:
            os.link(self.path, place)
        except OSError:
            shutil.copyfile(self.path, place)

    def done(self) -> None:
        """Delete the partial file, and what was left of other vectors for the same place: what they were to be is there."""
        self.path.unlink(missing_ok=True)
        for path in self.out.parent.glob(f".{glob.escape(self.out.name)}.????????????{END}"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                if file.read(len(MAGIC)) == MAGIC:
                    aside.remove_left(path)
