"""What is read more than once, or in several files, must be the same all the while: a result of two contents is of neither."""

import array
import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kerasbert.errors import InputError

OF_A_MODEL = ("model.json", "*.safetensors", "tokenizer/*")  # beside it lies what a training writes meanwhile


class Changed(InputError):
    """What is at a path changed between two looks."""

    def __init__(self, path: object) -> None:
        super().__init__(f"{path} changed while it was read: give the same command again")


def goes_on(error: BaseException) -> str:
    """When a command goes on with what it has kept, which is of what was read first."""
    return f"{'with what was read as it was ' * isinstance(error, Changed)}the same command goes on"


def state(path: object) -> object:
    """What tells whether the files at a path were replaced or written: of a folder all of them, of a model those that it is of.

    None of what is no path here: a name, an object, an address.
    """
    if not isinstance(path, str | os.PathLike) or not os.path.exists(path):
        return None
    top = Path(path)
    held = [top]
    if top.is_dir():
        patterns = OF_A_MODEL if (top / "model.json").is_file() else ("**/*",)
        held += sorted(each for pattern in patterns for each in top.glob(pattern))
    found = []
    for each in held:
        with contextlib.suppress(OSError):
            at = os.stat(each)
            written = (at.st_size, at.st_mtime_ns) if each.is_file() else ()
            found.append((str(each), at.st_dev, at.st_ino, *written))
    return found


class Files:
    """Files and folders as they are now; other values among the paths are passed over."""

    def __init__(self, paths: Iterable[object]) -> None:
        self._states = [(path, state(path)) for path in paths]

    def check(self, error: Exception | None = None) -> None:
        """Refuse what was replaced or written since.

        Raises:
            InputError: the first that is not as it was, by reason of `error`.
        """
        for path, was in self._states:
            if was is not None and state(path) != was:
                raise Changed(path) from error


@contextlib.contextmanager
def unchanged(*paths: object) -> Iterator[None]:
    """Refuse files and folders that are replaced or written while they are read within.

    Raises:
        InputError: the first that is not as it was, whatever else the reading of a mixture has raised.
    """
    files = Files(paths)
    try:
        yield
    except Exception as error:
        files.check(error)
        raise
    files.check()


class Rows:
    """What was read of a file, so that whenever it is read again it is the same; 8 bytes a row.

    Args:
        path: as an error calls the file.
    """

    def __init__(self, path: object) -> None:
        self.path, self._marks = path, array.array("Q")

    def note(self, row: object) -> None:
        """A row of the first reading."""
        self._marks.append(_mark(row))

    def again(self, rows: Iterator) -> Iterator:
        """The rows of another reading, each when it is known to be that of the first.

        Raises:
            InputError: another row, fewer or more of them.
        """
        count = 0
        for row in rows:
            if count == len(self._marks) or self._marks[count] != _mark(row):
                raise Changed(self.path)
            count += 1
            yield row
        if count != len(self._marks):
            raise Changed(self.path)


def _mark(row: object) -> int:
    content = repr(row).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
