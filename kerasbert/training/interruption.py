"""Ctrl-C, SIGTERM and SIGHUP (a terminal that closes): the trainer saves, and the user is told what there is to go on from."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kerasbert import progress, signals

if TYPE_CHECKING:
    from kerasbert.training.trainer import Trainer

INTERRUPTED = 75  # EX_TEMPFAIL: run the same command again
NOTHING = "nothing saved: no update was made"

saved = NOTHING  # what this process has saved so far, in words


class Interrupted(SystemExit):
    """SIGTERM or SIGHUP came; what was done is saved and the process ends with status 75."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


def at(step: int) -> str:
    """What to say of a checkpoint that is on the disk.

    >>> at(120)
    'saved step 120; the same command goes on from there'
    """
    return f"saved step {step}; the same command goes on from there"


def say(line: str) -> None:
    """A line on stderr, also from within a signal's handler, where `print` may not be entered a second time."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


def forget_terminal() -> None:
    """What is printed from now on goes nowhere if the terminal is gone: to write there is an error, which ends the saving."""
    with contextlib.suppress(OSError):
        progress.unread(1, 2)


def leave(number: int) -> None:
    """End as the signal asks, saying what was saved.

    Raises:
        Interrupted: SIGTERM, SIGHUP. KeyboardInterrupt: Ctrl-C; the command line prints its text and ends with status 130.
    """
    if number != signal.SIGINT:
        forget_terminal()
        say(f"interrupted: {saved}")
        raise Interrupted
    raise KeyboardInterrupt(f"interrupted: {saved}")


def listen() -> None:
    """In a command that trains: the signals end it at once while it is being set up and when it has trained."""
    progress.lasting = True
    for number in heeded():
        signal.signal(number, _leave)


def _leave(number: int, _: object) -> None:
    """What is raised may be lost within a library's callback: the trainer asks whether a signal came (`noted`)."""
    signals.note(number, f"interrupted: {saved}", None if number == signal.SIGINT else INTERRUPTED)
    leave(number)


def heeded() -> list[int]:
    """Those, but what the process was started to ignore: SIGHUP by nohup, Ctrl-C by a shell behind `&` in a script."""
    every = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # not on Windows
    return [number for number in every if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def noted(trainer: "Trainer") -> Iterator[None]:
    """A first signal is noted in `trainer.interrupted`, also one that came while the training was set up and was lost there; a
    second Ctrl-C leaves at once.

    Outside of the main thread signals are left alone.
    """

    def note(number: int, _: object) -> None:
        trainer.interrupted = number
        forget_terminal()
        if number == signal.SIGINT:
            say("interrupted: saving after this update; Ctrl-C again leaves without")
            # in a command the system's own handler, which waits for nothing; in a notebook an exception
            signal.signal(signal.SIGINT, signal.SIG_DFL if progress.lasting else signal.default_int_handler)

    if (lost := signals.taken()) is not None:
        trainer.interrupted = lost.number
    try:
        old = {number: signal.signal(number, note) for number in heeded()}
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
