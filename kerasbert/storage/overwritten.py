"""A file that is mapped and then overwritten in place: the mapping shows the new bytes, or ends the process where it was cut."""

import os
from collections.abc import Callable
from pathlib import Path

from kerasbert.errors import InputError


class Mapped:
    """Refuses a mapped file that was written over since it was opened; one that was renamed or deleted stays as it was.

    Args:
        path: of the file. same: whether what lies there is still what was opened, asked where size or time differ.
    """

    def __init__(self, path: Path, same: Callable[[], bool]) -> None:
        self.path, self.same = path, same
        self._place = Path(os.path.abspath(path))  # the current directory may be another one by then
        self.seen = _seen(self._place)

    def check(self) -> None:
        """Raise where it was written over.

        Raises:
            InputError: so it was.
        """
        now = _seen(self._place)
        if now == self.seen or now is None or self.seen is None or now[:2] != self.seen[:2]:
            return
        if not self._same():
            raise InputError(
                f"{self.path} was overwritten while it is open: open it again. Write what is new beside it and rename that "
                "over the old one"
            )
        self.seen = now

    def _same(self) -> bool:
        try:
            return self.same()
        except (InputError, OSError):
            return False


def _seen(path: Path) -> tuple[int, int, int, int] | None:
    try:
        held = os.stat(path)
    except OSError:
        return None
    return held.st_dev, held.st_ino, held.st_size, held.st_mtime_ns
