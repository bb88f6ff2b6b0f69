"""Keep litert's own lines from a terminal: its Python package has no log level (google-ai-edge/LiteRT#7420)."""

import contextlib
import ctypes
from collections.abc import Iterator

from . import forks


class _Stream:
    """C's `stderr`, a variable that a program may assign in glibc (its manual, section "Standard Streams").

    The descriptors 1 and 2 stay as they are, so that Python, whose sys.stderr writes to descriptor 2, loses nothing,
    whatever other threads do. Elsewhere than in glibc `variable` is None, and litert's lines are printed.
    """

    def __init__(self) -> None:
        self.lock, self.users = forks.lock(2), 0
        self.variable: ctypes.c_void_p | None = None
        self.own = self.null = None
        with contextlib.suppress(OSError, TypeError, AttributeError, ValueError):
            library = ctypes.CDLL(None)
            library.gnu_get_libc_version  # noqa: B018 - others may keep the variable where it cannot be written
            library.fopen.restype = ctypes.c_void_p
            variable = ctypes.c_void_p.in_dll(library, "stderr")
            self.own, self.null = variable.value, library.fopen(b"/dev/null", b"we")
            self.variable = variable if self.null and self.own else None

    def mute(self, by: int) -> None:
        """Count users in (1) or out (-1): while there is one, C writes to /dev/null."""
        with self.lock:
            self.users += by
            if self.variable is not None:
                self.variable.value = self.null if self.users else self.own


_STREAM = _Stream()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What C code writes to its `stderr` meanwhile is dropped; Python's output is not touched.

    litert 2.3 writes 25 lines about a model that it opens.
    """
    _STREAM.mute(1)
    try:
        yield
    finally:
        _STREAM.mute(-1)


def unheard_from_now_on() -> None:
    """For the end of a process: litert's static objects write after Python has ended."""
    _STREAM.mute(1)
