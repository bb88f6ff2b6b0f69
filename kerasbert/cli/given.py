"""What a command line gives, and which of it a command has read: an option that nobody reads is refused, not dropped."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from kerasbert.errors import InputError

ALWAYS = {"debug", "plugin", "json", "encoding", "delimiter", "columns", "skip_unlabelled"}
"""Options that hold for whatever a command does: of its end, or of whatever files it reads (`parser.decoding`)."""


class Given(argparse.Namespace):
    """The values of a command line; reading an attribute notes it.

    Args:
        values: as argparse gives them.
        flags: those that the user wrote: name -> how he wrote it, such as `--dev`.
    """

    def __init__(self, values: Mapping[str, object], flags: Mapping[str, str]) -> None:
        super().__init__(**values)
        self._flags, self._read = dict(flags), set[str]()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._read.add(name)
        return super().__getattribute__(name)

    def read(self, *names: str) -> None:
        """Note options as read: by what looks at a command before it runs."""
        self._read.update(names)

    def check_read(self, *later: str) -> None:
        """Refuse what the user wrote and nobody has read: called when a command has decided what it will do.

        Args:
            later: names that are read after this.

        Raises:
            InputError: naming the option.
        """
        if unread := [flag for name, flag in self._flags.items() if name not in {*self._read, *later, *ALWAYS}]:
            raise InputError(f"{' and '.join(unread)} would not be used with the other options given: leave it out")


class Fields(Mapping[str, Any]):
    """The values of a command line as a mapping, for `in` and loops over names; reading one notes it as above."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._options, name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in vars(self._options) if not name.startswith("_"))

    def __contains__(self, name: object) -> bool:
        return name in vars(self._options)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def check_read(options: argparse.Namespace, *later: str) -> None:
    """`Given.check_read`; nothing of a namespace that keeps no books."""
    if isinstance(options, Given):
        options.check_read(*later)
