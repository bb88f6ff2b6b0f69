"""The standard streams of a command: there where they are closed, plain where texts and names hold control characters."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TextIO

from kerasbert import progress

# what moves a cursor, clears a screen or renames a window: C0 but tab and line feed, DEL, C1; as json writes them
_SHOWN = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


class Plain:
    """A text stream that shows control characters instead of sending them: a label may hold a terminal's escapes.

    Attributes:
        raw: the stream behind it, for what means them: a progress bar, a table that goes on to a file.
    """

    def __init__(self, stream: "TextIO | Lasting") -> None:
        self.raw: Any = stream

    def write(self, text: str) -> int:
        """Write a text; an escape character, and one that the stream cannot hold, appears as json writes it."""
        text = text if text.isprintable() else text.translate(_SHOWN)
        try:
            return self.raw.write(text)
        except UnicodeEncodeError:  # a pipe of Windows, a locale without these letters
            return self.raw.write("".join(map(self._held, text)))

    def _held(self, letter: str) -> str:
        """A character, or json's form of one that the stream's encoding does not have."""
        try:
            letter.encode(self.raw.encoding, self.raw.errors or "strict")
        except UnicodeEncodeError:
            return json.dumps(letter)[1:-1]
        return letter

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class Lasting:
    """A text stream that may be gone, a terminal that was closed or a pipe without a reader, while what is done matters more.

    Args:
        stream: what is written to. always: bool; else while `progress.lasting`, so that `predict | head` ends.
    """

    def __init__(self, stream: TextIO, always: bool) -> None:
        self.stream, self.always = stream, always

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError:
            self._forget()
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError:
            self._forget()
            self.stream.flush()

    def _forget(self) -> None:
        """In the handler of an error: from now on it goes nowhere, or the error is raised again."""
        if not ((self.always or progress.lasting) and progress.unread(self.stream.fileno())):
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def raw(stream: TextIO | Plain) -> TextIO:
    """The stream behind a Plain, or the stream itself."""
    return stream.raw if isinstance(stream, Plain) else stream


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Plain output within; what is closed (`<&-`, `>&-`) is empty, or goes nowhere."""
    before = sys.stdin, sys.stdout, sys.stderr
    with contextlib.ExitStack() as opened:

        def there(stream: TextIO | None, mode: Literal["r", "w"]) -> TextIO:
            if stream is None:
                stream = opened.enter_context(open(os.devnull, mode, encoding="utf-8"))
            return stream

        sys.stdin = there(sys.stdin, "r")
        told = (Lasting(there(stream, "w"), always=number == 2) for number, stream in enumerate(before[1:], 1))
        sys.stdout, sys.stderr = map(Plain, told)
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


def reader_left() -> bool:
    """Whether nobody reads the standard output any more: `| head` has seen enough. What is still to come goes nowhere."""
    try:
        return progress.unread(sys.stdout.fileno())  # the interpreter flushes at its end
    except (AttributeError, OSError, ValueError):  # no file
        return False
