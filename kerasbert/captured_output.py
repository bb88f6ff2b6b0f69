"""Keep what converters and compilers print to themselves, and hand it out when something fails.

For what makes files and trains. It redirects the whole process's output, which `kerasbert.mobile.runtime` must not do in
a process that serves.
"""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence

_TURN = threading.RLock()  # two at once would each put the other's temporary file back as the process's output


@contextlib.contextmanager
def captured(numbers: Sequence[int] = (1, 2)) -> Iterator[Callable[[], str]]:
    """Send the process's stdout and stderr to a temporary file; the value reads what arrived there.

    Converters log to the file descriptors, below Python's sys.stderr. Threads take turns; what other threads print
    meanwhile arrives in the file too.

    Args:
        numbers: the file descriptors.
    """
    with _TURN, tempfile.TemporaryFile() as file:

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        kept = [(number, os.dup(number)) for number in numbers if _is_open(number)]
        try:
            for number, _ in kept:
                os.dup2(file.fileno(), number)
            yield read
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
