"""Texts of a command: its arguments, or lines of the standard input, answered as they come."""

import argparse
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kerasbert.cli import tables
from kerasbert.errors import InputError

if TYPE_CHECKING:
    from kerasbert.data.reading import Stream


def standard_input(options: argparse.Namespace) -> "Stream":
    """The lines of the standard input."""
    from kerasbert.data.reading import Stream

    if sys.stdin is None:
        raise InputError("no texts and no standard input: give texts")
    if sys.stdin.isatty():
        print("reading texts from the terminal, one a line; Ctrl-D ends them", file=sys.stderr)
    return Stream(sys.stdin, options.encoding)


def given_texts(options: argparse.Namespace, blank: bool = False) -> list[str]:
    """The texts of a command: its arguments, or the lines of the standard input, with `blank` the blank ones too."""
    tables.check_texts(options.texts, f"kerasbert {options.command} {options.model} < {{file}} reads its lines")
    if options.texts:
        return options.texts
    stream = standard_input(options)
    found = [line for line in stream if blank or line.strip()]
    tables.tell(stream.told())
    return found


def arriving(stream: Iterable[str], most: int) -> Iterator[list[str]]:
    """Lines, as many at once as have come, at most `most`: a slow stream is answered line by line."""
    lines: queue.Queue = queue.Queue(maxsize=4 * max(1, most))

    def read() -> None:
        try:
            for line in stream:
                lines.put(line)
            lines.put(None)
        except Exception as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    line = lines.get()
    while line is not None:
        found: list[str] = []
        while line is not None:
            if isinstance(line, Exception):
                raise line
            found.append(line)
            if len(found) >= most or lines.empty():
                break
            line = lines.get()
        yield found
        line = line if line is None else lines.get()
