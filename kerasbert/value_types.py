"""Whether a value that a program, a file or a command line gives is of a type, and how an error names that type."""

import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from kerasbert.errors import InputError

PLAIN = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "null"}
PYTHON = {bool: "True or False", types.NoneType: "None"}  # where a program gives them


def fits(value: object, hint: object, python: bool = False) -> bool:
    """Whether a value is of a type; a whole number is a number, True is not.

    Args:
        python: whether it may also be what files cannot hold: a number of numpy, an iterable or one text for a list of
            texts, an object of a class.

    >>> fits(3, float), fits(True, int), fits("False", bool), fits("a", Sequence[str]), fits("a", Sequence[str], python=True)
    (True, False, False, False, True)
    """
    if hint is Any:
        return True
    if isinstance(hint, types.UnionType):
        return any(fits(value, each, python) for each in typing.get_args(hint))
    kind = typing.get_origin(hint) or hint
    if kind in PLAIN:
        return _plain(value, kind, python)
    if kind is os.PathLike:
        return isinstance(value, str) or (python and hasattr(value, "__fspath__"))
    if kind is tuple or (isinstance(kind, type) and issubclass(kind, Sequence)):
        return _several(value, hint, python)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, Mapping if python else dict)
    return python and (not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind))


def _plain(value: object, kind: object, python: bool) -> bool:
    if kind is float:
        return isinstance(value, numbers.Real if python else int | float) and not isinstance(value, bool)
    if kind is int and python:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return type(value) is kind or (python and isinstance(value, str) and kind is str)


def _several(value: object, hint: object, python: bool) -> bool:
    inner = [each for each in typing.get_args(hint) if each is not Ellipsis] or [Any]
    if python and (isinstance(value, str) or hasattr(value, "__fspath__")):
        return any(fits(value, each, python) for each in inner)
    if python and not isinstance(value, list | tuple):
        return isinstance(value, Iterable) and not isinstance(value, bytes | Mapping)
    return isinstance(value, list | tuple if python else list) and all(
        any(fits(item, each, python) for each in inner) for item in cast("list[object]", value)
    )


def in_words(hint: object, python: bool = False) -> str:
    """The types that `fits` takes, as an error names them."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if python and os.PathLike in kinds:
        kinds = tuple(kind for kind in kinds if kind is not str)
    return " or ".join(dict.fromkeys(_in_words(kind, python) for kind in kinds))


def _in_words(hint: object, python: bool) -> str:
    """One type."""
    kind: Any = typing.get_origin(hint) or hint
    if kind in PLAIN:
        return PYTHON.get(kind, PLAIN[kind]) if python else PLAIN[kind]
    if kind is os.PathLike:
        return "a path" if python else PLAIN[str]
    if kind is Callable:
        return "a function"
    if kind is Iterable or kind is tuple or issubclass(kind, Sequence):
        inner = {PLAIN[each] for each in typing.get_args(hint) if each in PLAIN}
        return f"a list of {min(inner).removeprefix('a ')}s" if len(inner) == 1 else "a list"
    if issubclass(kind, Mapping):
        return "a mapping"
    return f"a {kind.__name__}"


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number of at least `least`."""
    if type(value) is not int or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}. Received: {value!r}")


def check_type(name: str, hint: object, value: object) -> None:
    """Refuse what an option of a function cannot be: the text "False" is true, and no path is the current directory."""
    if isinstance(value, str) and not value and os.PathLike in typing.get_args(hint):
        raise InputError(f"{name} is empty, expected a path")
    if not fits(value, hint, python=True):
        raise InputError(f"{name} must be {in_words(hint, python=True)}. Received: {value!r:.60}")
