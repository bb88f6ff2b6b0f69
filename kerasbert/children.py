"""Processes of this interpreter that a command starts."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kerasbert.errors import InputError

_COMPUTES: list[int] = []  # the process in which TensorFlow computes


def command(program: str, *arguments: str) -> list[str]:
    """The command line that runs a program's text in a process of its own.

    `-P`, because `python -c` would import from the current directory first: a `json.py` beside a data set would run.

    Args:
        program: source, such as "import sys; print(sys.argv[1])".
        arguments: what it finds in sys.argv[1:].
    """
    return [sys.executable, "-P", "-c", program, *arguments]


def isolated(file: str | os.PathLike, *arguments: str) -> list[str]:
    """The command line that runs a file which needs none of ours: nothing is imported from a folder that is named beside it."""
    return [sys.executable, "-I", str(file), *arguments]


def end_with_parent(every: float = 1.0) -> None:
    """For such a process: it ends once the one that started it was killed, and does not work on alone.

    Args:
        every: float, seconds between two looks.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def environment(paths: Sequence[str] | None = None, **more: str) -> dict[str, str]:
    """Variables for such a process, which finds this kerasbert, installed or not.

    Args:
        paths: where else it imports from, first; the current directory ("") is left out.
        more: other variables.
    """
    tree = str(Path(__file__).resolve().parent.parent)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = [path for path in (*(paths or ()), tree, *before) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(found)), **more}


def check_fork() -> None:
    """Refuse to compute in a fork of a process in which TensorFlow did.

    Raises:
        InputError: it is one: the threads that compute are not in a fork, which would wait for them for ever.
    """
    if _COMPUTES not in ([], [os.getpid()]):
        raise InputError(
            "this process is a fork of one in which TensorFlow has computed, and would wait for its threads for ever. Start "
            'it by multiprocessing.get_context("spawn"), or load models in the forks alone'
        )


def computing() -> None:
    """Note that TensorFlow computes in this process, before it does and once all that it needs is found.

    Raises:
        InputError: as `check_fork`.
    """
    check_fork()
    _COMPUTES[:] = [os.getpid()]
