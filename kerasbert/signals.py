"""The signal that asked this process to end: what a handler raises within a library's callback may be lost or turned into another
error.
"""

from kerasbert.errors import InputError


class Stopped(KeyboardInterrupt):
    """A signal came.

    Args:
        number: int, of the signal.
        said: what to tell of it; by default that the command was interrupted.
        status: the exit status; by default that of a shell for a process which the signal ended.
    """

    def __init__(self, number: int, said: str = "", status: int | None = None) -> None:
        super().__init__(said)
        self.number, self.status = number, 128 + number if status is None else status


came: Stopped | None = None  # once one came to a command


def note(number: int, said: str = "", status: int | None = None) -> Stopped:
    """Keep what a handler is about to raise, in case it is lost; arguments as of `Stopped`."""
    global came
    came = Stopped(number, said, status)
    return came


def taken() -> Stopped | None:
    """It, for whoever heeds it now."""
    global came
    found, came = came, None
    return found


def cause(error: BaseException) -> BaseException:
    """What ended a command: the signal, where the error is none that says what it is by itself."""
    found = taken()
    return error if found is None or isinstance(error, KeyboardInterrupt | InputError) else found
