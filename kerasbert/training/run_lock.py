"""One process trains a run at a time: two with one `--out` would write into each other's checkpoints and metrics."""

import os
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.storage import locks
from kerasbert.storage.remote import is_remote


class RunLock:
    """A lock of the folder that has a run's name; it ends with the process, however that ends. An address has none.

    Args:
        out: the run's directory; one that is not there yet is locked by the next `take`. None locks nothing.

    Raises:
        InputError: another training has it.
    """

    def __init__(self, out: str | os.PathLike | None) -> None:
        self.out = out
        self._handle: int | None = None
        self.take()

    def take(self) -> None:
        """Lock the folder that has the name now, and no other one."""
        if not locks.AVAILABLE or self.out is None or is_remote(self.out):
            return
        try:
            handle = os.open(Path(os.path.realpath(self.out)), os.O_RDONLY)
        except OSError:  # what else is wrong with it is told by who reads or writes there
            return
        if self._handle is not None and os.path.samestat(os.fstat(handle), os.fstat(self._handle)):
            os.close(handle)
            return
        if locks.lock(handle) is False:
            os.close(handle)
            raise InputError(f"{self.out} is being trained by another process: wait for it, or choose another --out")
        self.release()
        self._handle = handle

    def release(self) -> None:
        """Let others train it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
