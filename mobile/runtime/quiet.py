"""Keep what C++ libraries print to themselves, and hand it out when something fails."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Send the process's stdout and stderr to a temporary file; the value reads what arrived there.

    Interpreters and converters log to the file descriptors, below Python's sys.stderr; litert 2.3 writes 20 lines per
    model and offers no switch.
    """
    with tempfile.TemporaryFile() as file:

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        kept = [(number, os.dup(number)) for number in (1, 2) if _is_open(number)]
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
