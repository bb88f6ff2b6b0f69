"""A table of what ships and what plug-ins add, by name. Standard library only."""

import functools
import importlib
import json
import pkgutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TypeVar

from kerasbert.errors import InputError, unknown
from kerasbert.storage.json_view import Json

T = TypeVar("T")

PLUGINS: dict[str, dict[str, str]] = {}  # module or entry point that was loaded -> {"file", "sha256"} of a file


@functools.cache
def shipped() -> Json:
    """The index of what ships with the package: models with parameters and Spec, names.

    Nothing is imported for it; `python -m tests.make_index` writes it anew.
    """
    return json.loads(Path(__file__).with_name("shipped.json").read_text("utf-8"))


@functools.cache
def _load(home: str) -> None:
    """Import a module of ours, or every module of a package, so that it registers what it holds."""
    package = importlib.import_module(home)
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        importlib.import_module(f"{home}.{module.name}")


@functools.cache
def entry_points() -> None:
    """Import what other packages bring, once."""
    import importlib.metadata  # here: it costs as much as everything else at the start of a small program

    for point in importlib.metadata.entry_points(group="kerasbert.plugins"):
        point.load()
        PLUGINS[point.name] = {}


class Table(MutableMapping[str, T]):
    """Names -> values of one kind: what ships and what plug-ins add.

    A table is a mapping. Its homes are imported on first use; the entry points of other packages are imported where all
    names are asked for, or one that is not among ours.

    Args:
        kind: str, what one entry is, for errors.
        homes: modules, or packages of which every module, that fill the table.
        everything: str, where all the names are told; None: the error lists them.
        index: str, the part of `shipped` that names the module of each entry, in their order: one that is asked for by its
            name is imported alone.
        rules: str, "module:function": (name, value) -> None, raises an InputError for an entry that cannot work. It is
            asked where an entry is added, so that an author's mistake is seen there.

    >>> breads = Table("bread")
    >>> breads.add("rye", 1, "roggen")
    1
    >>> breads.find("roggen"), breads.name("roggen"), list(breads)
    (1, 'rye', ['rye'])
    >>> breads.find("rey")
    Traceback (most recent call last):
    kerasbert.errors.InputError: no bread 'rey'. Nearest: 'rye'. All: rye
    """

    def __init__(self, kind: str, *homes: str, everything: str | None = None, index: str = "", rules: str = "") -> None:
        self.kind, self.homes, self.everything, self.index, self.rules = kind, homes, everything, index, rules
        self.rows: dict[str, T] = {}
        self.aliases: dict[str, str] = {}  # other name -> name

    def add(self, name: str, value: T, *aliases: str) -> T:
        """Enter a value by its name and other names of it.

        Raises:
            InputError: a name is taken by another value, or is none; an entry that the table's rules refuse.
        """
        for taken in (name, *aliases):
            if not isinstance(taken, str) or not taken.strip():
                raise InputError(f"a {self.kind} is registered under its name, a string. Received: {taken!r:.80}")
            self._load_one(taken)  # ours of that name; in its own module nothing is left to import
            if self.rows.get(self.aliases.get(taken, taken), value) is not value:
                raise InputError(f"{taken!r} is registered already: choose another name")
        if self.rules:
            home, _, function = self.rules.partition(":")
            getattr(importlib.import_module(home), function)(name, value)
        self.rows[name] = value
        self.aliases |= dict.fromkeys(aliases, name)
        return value

    def find(self, name: str) -> T:
        """The value of a name or alias.

        Raises:
            InputError: no such name; the nearest is given.
        """
        return self[self.name(name)]

    def name(self, name: str) -> str:
        """The name that an entry has in files: an alias is replaced. Raises as `find`."""
        if name in self:
            return self.aliases.get(name, name)
        raise unknown(self.kind, name, [*self, *self.aliases], self.everything or ", ".join(self))

    def _load(self) -> None:
        for home in self.homes:
            _load(home)

    def _modules(self) -> dict[str, str]:
        """Entry of ours -> its module, as far as the index tells."""
        return shipped().get(self.index, {})

    def _load_one(self, name: str) -> None:
        """Import the module of an entry of ours that the index knows."""
        if name not in self.rows and (module := self._modules().get(name)):
            importlib.import_module(module)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        self._load_one(name)
        if name in self.rows:
            return True
        self._load()
        if name not in self.rows and name not in self.aliases:
            entry_points()
        return name in self.rows or name in self.aliases

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise KeyError(name)
        return self.rows[self.aliases.get(name, name)]

    def __setitem__(self, name: str, value: T) -> None:
        self.rows[name] = value

    def __delitem__(self, name: str) -> None:
        del self.rows[name]
        self.aliases = {alias: of for alias, of in self.aliases.items() if of != name}

    def __iter__(self) -> Iterator[str]:
        self._load()
        entry_points()
        known = self._modules()
        return iter(
            [*(name for name in known if name in self.rows), *(name for name in self.rows if name not in known)]
        )

    def added(self) -> list[str]:
        """What has been imported by now, and what other packages bring: of ours, nothing more is imported."""
        entry_points()
        return [*self.rows]

    def __len__(self) -> int:
        return sum(1 for _ in self)
