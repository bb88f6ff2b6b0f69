"""The signal that asked this process to end: what a handler raises within a library's callback may be lost or turned into another
error.
"""

from kerasbert.errors import InputError

came: KeyboardInterrupt | None = None  # what to tell of it, once it came to a command; its `status` is the exit status


def taken() -> KeyboardInterrupt | None:
    """It, for whoever heeds it now."""
    global came
    found, came = came, None
    return found


def cause(error: BaseException) -> BaseException:
    """What ended a command: the signal, where the error is none that says what it is by itself."""
    found = taken()
    return error if found is None or isinstance(error, KeyboardInterrupt | InputError) else found
