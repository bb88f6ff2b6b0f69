"""Public names that are loaded on first use: importing a package imports nothing heavy."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kerasbert.errors import missing


def later(module: str, name: str) -> Callable:
    """A function or class of a module, which is imported when it is called."""
    return lambda *args, **keywords: getattr(importlib.import_module(module), name)(*args, **keywords)


class Module:
    """A module that is imported when something of it is used; it stands where `import` would cost seconds.

    >>> Module("json").dumps([1])
    '[1]'
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def public(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__` (PEP 562).

    Args:
        package: its `__name__`.
        homes: name -> the module of the package that holds it; "" for a subpackage's own name.

    The first use of a name raises ModuleNotFoundError where a library is not installed, and says which extra brings it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            # `obj`: an interpreter that prints it says the nearest; asked for here, each import of a submodule would search it
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        if not homes[name]:
            return importlib.import_module(f"{package}.{name}")
        try:
            home = importlib.import_module(f"{package}.{homes[name]}")
        except ModuleNotFoundError as error:
            if not (absent := missing(error.name)):
                raise
            raise ModuleNotFoundError(f"{package}.{name} needs {absent}", name=error.name) from error
        return getattr(home, name)

    return load, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)
