"""A SIGTERM or SIGHUP ends a command as Ctrl-C does: what is half written is deleted, and one line says so."""

import signal

from kerasbert import signals


class Stopped(KeyboardInterrupt):
    """A SIGTERM or SIGHUP came.

    Attributes:
        status: int, the exit status, that of a shell for a process which the signal ended. number: int, of the signal.
    """

    status, number = 128 + signal.SIGTERM, int(signal.SIGTERM)


def listen() -> None:
    """From now on; what the process was started to ignore, as nohup has SIGHUP, stays so. For the main thread of a command."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):  # Python's, and `command`'s
        signal.signal(signal.SIGINT, _interrupt)


def _stop(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing
    error = Stopped()
    error.status, error.number = 128 + number, number
    signals.came = error
    raise error


def _interrupt(_: int, __: object) -> None:
    signals.came = KeyboardInterrupt()
    raise signals.came
