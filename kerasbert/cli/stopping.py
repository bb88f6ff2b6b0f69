"""A SIGTERM or SIGHUP ends a command as Ctrl-C does: what is half written is deleted, and one line says so."""

import signal

from kerasbert import signals


def listen() -> None:
    """From now on; what the process was started to ignore, as nohup has SIGHUP, stays so. For the main thread of a command."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):  # Python's, and `command`'s
        signal.signal(signal.SIGINT, _stop)


def _stop(number: int, _: object) -> None:
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing
    raise signals.note(number)
