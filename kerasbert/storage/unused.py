"""What a file of others says and nobody here used: gathered while something is read, told in one line on stderr.

A reader calls `leave(file, view.unread(...))` for what it passes over; `told()` around a whole import gathers all of it, so that
there is one line, `not used: prompts (config_sentence_transformers.json)`. Outside of one the line is printed at once.
"""

import contextlib
import contextvars
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kerasbert import progress
from kerasbert.within import within

MOST = 20  # names told of one file
_GATHERED: contextvars.ContextVar[dict[str, list[str]] | None] = contextvars.ContextVar("gathered", default=None)


def leave(file: str | os.PathLike, names: Iterable[str]) -> None:
    """Note what of a file is not used.

    Args:
        file: its path, told by its name.
        names: keys by dotted path, or other words for what was passed over.
    """
    gathered = _GATHERED.get()
    if gathered is None:
        with told():
            leave(file, names)
        return
    known = gathered.setdefault(Path(file).name, [])
    known += [name for name in names if name not in known]


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Tell all that was left within, in one line at the end; within another `told` that one tells it."""
    if _GATHERED.get() is not None:
        yield
        return
    with within(_GATHERED, {}) as gathered:
        yield
    said = line(gathered or {})
    if said:
        progress.say(said)


def line(gathered: dict[str, list[str]]) -> str | None:
    """The line; None where all was used.

    >>> line({"config.json": ["colour", "note.by"], "options.json": []})
    'not used: colour, note.by (config.json)'
    """
    parts = []
    for file, names in gathered.items():
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        if names:
            parts.append(f"{', '.join(map(_plain, names[:MOST]))}{more} ({_plain(file)})")
    return f"not used: {'; '.join(parts)}" if parts else None


def _plain(name: str) -> str:
    """A name of somebody else's as text for a terminal."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
