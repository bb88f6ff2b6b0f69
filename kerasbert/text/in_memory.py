"""A tokenizer's files without a disk, as a bundle holds them. Standard library only."""

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath


class InMemory:
    """A file of a folder in memory, {name: bytes}, with the methods of Path that are used here; "" is the folder."""

    def __init__(self, files: Mapping[str, bytes], name: str = "") -> None:
        self.files, self.name, self.suffix = files, name, PurePath(name).suffix

    def __str__(self) -> str:
        return self.name

    def __lt__(self, other: "InMemory") -> bool:
        return self.name < other.name

    def __truediv__(self, name: str) -> "InMemory":
        return InMemory(self.files, name)

    with_name = __truediv__

    @property
    def parent(self) -> "InMemory":
        """The folder."""
        return InMemory(self.files)

    def iterdir(self) -> Iterator["InMemory"]:
        """Its files."""
        return (InMemory(self.files, name) for name in self.files)

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self.name in self.files

    is_file = exists

    def read_bytes(self) -> bytes:
        """Its content, or FileNotFoundError."""
        if self.name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name)
        return self.files[self.name]


File = Path | InMemory  # of a tokenizer, or its folder: on a disk or in memory
