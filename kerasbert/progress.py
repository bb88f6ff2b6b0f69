"""What a user is told on the standard error: lines (`say`), and how much of a piece of work is done, with its rate and the time
left: a bar on a terminal, else a line now and then; nothing of short work, and nothing where no command asked for it (`named`).
"""

import contextlib
import contextvars
import dataclasses
import math
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Self, TypeVar

from kerasbert.within import within

T = TypeVar("T")
SILENT, EVERY = 5.0, 10.0  # seconds before the first line, and between lines
SHORT, OFTEN = 1.0, 0.2  # the same on a terminal
BAR = 20  # characters


@dataclasses.dataclass
class _Work:
    """What a command shows. An object of its own: a generator that counts may end long after the command."""

    name: str
    counted: bool = False  # while a count is open


_work: contextvars.ContextVar[_Work | None] = contextvars.ContextVar("progress", default=None)


lasting = False  # whether the process is a command that trains: it goes on where nobody reads what it prints


def unread(*numbers: int) -> bool:
    """Whether nobody reads one of these files any more, a pipe or a terminal that is gone: what is to come for it goes nowhere.

    Args:
        numbers: of open files.
    """
    try:
        poll = select.poll()
    except AttributeError:  # a system without poll
        return False
    for number in numbers:
        poll.register(number, 0)  # errors are told unasked
    gone = [number for number, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    for number in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    return bool(gone)


def say(*lines: str, quiet: bool = False) -> None:
    """Tell the user something at once, on the standard error: the standard output is for results.

    Args:
        lines: of text. quiet: whether they are not wanted.
    """
    for line in () if quiet else lines:
        print(line, file=sys.stderr, flush=True)


def named(name: str | None) -> contextlib.AbstractContextManager[object]:
    """Work within is shown, and called so; with None it is not."""
    return within(_work, None if name is None else _Work(name))


class Progress:
    """A count of what is done. What is counted while another count is open is not shown.

    Args:
        total: int, of what there is to do.
        unit: str, what is counted.
        name: str, of the work; by default that of `named`, and without one nothing is shown.
        done: int, what an earlier run has done.
    """

    def __init__(self, total: int, unit: str = "texts", name: str | None = None, done: int = 0) -> None:
        work = _work.get()
        self.work = None if work is None or work.counted else work
        self.total, self.unit = total, unit
        self.name = (self.work.name if self.work else None) if name is None else name
        self.stream = getattr(sys.stderr, "raw", sys.stderr)  # a bar means its escapes
        self.terminal = bool(self.name is not None and self.stream is not None and sys.stderr.isatty())
        self.began = self.seen = time.monotonic()
        self.due = self.began + (SHORT if self.terminal else SILENT)
        self.first: tuple[float, int, float] | None = None  # when, count and share of the first report
        self.start, self.open = done, False

    def __enter__(self) -> Self:
        if self.work is not None:
            self.work.counted = True
        return self

    def __exit__(self, *error: object) -> None:
        if self.work is not None:
            self.work.counted = False
        self.clear()

    def to(self, done: int, share: float | None = None) -> None:
        """So many are done; shown if it is time.

        Args:
            share: float, of all the work, where not all are as much of it.
        """
        if self.name is None:
            return
        now, share = time.monotonic(), done / max(1, self.total) if share is None else share
        if self.first is None:  # the first may hold a compilation
            self.first = (now, done, share)
        if now < self.due or done >= self.total:
            return
        self.due = now + (OFTEN if self.terminal else EVERY)
        self._show(done, share, self._rates(now, done, share))

    def _rates(self, now: float, done: int, share: float) -> str:
        """The rate and the time left, as text; of the whole time where there is one report alone."""
        assert self.first is not None
        since, before, work = self.first if share > self.first[2] else (self.began, self.start, 0.0)
        if share <= work:
            return ""
        seconds = max(now - since, 1e-9)
        rate, left = (done - before) / seconds, (1 - share) * seconds / (share - work)
        return f", {rate:,.{0 if rate >= 10 else 1}f} a second, {duration(left)} left"

    def _show(self, done: int, share: float, rates: str) -> None:
        before = f"{self.name}: " if self.name else ""
        line = f"{before}{done:,} of {self.total:,} {self.unit}{rates}"
        if self.terminal:
            full = round(BAR * min(1.0, share))
            line = f"\r[{'#' * full}{'.' * (BAR - full)}] {line}\x1b[K"
        print(line, end="" if self.terminal else "\n", file=self.stream, flush=True)
        self.open = self.terminal

    def clear(self) -> None:
        """Take the line of a terminal away, before anything else is printed."""
        if self.open:
            print("\r\x1b[K", end="", file=self.stream, flush=True)
            self.open = False


def counted(items: Sequence[T] | Iterable[T], total: int, unit: str = "texts", name: str | None = None) -> Iterator[T]:
    """The items, counted as they are taken."""
    with Progress(total, unit, name) as progress:
        for number, item in enumerate(items):
            progress.to(number)
            yield item


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> [duration(s) for s in (7, 100, 5000, 200000)]
    ['7 s', '2 min', '1.4 h', '2.3 d']
    """
    for size, unit in ((86400, "d"), (3600, "h")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{math.ceil(seconds / 60)} min" if seconds >= 60 else f"{math.ceil(seconds)} s"
