"""Options as fields of a dataclass: what a field says of itself, and functions that take the fields as keyword arguments."""

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import math
import numbers
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from kerasbert import field_names
from kerasbert.errors import InputError, near
from kerasbert.storage.aside import claiming
from kerasbert.within import within

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
# types that `checked` looks for: a number's range is its function's to tell
SEEN = {bool, str, os.PathLike, types.NoneType, Mapping}
FIELDS = SEEN | {int, float, tuple}  # of a dataclass
PLAIN = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "null"}
PYTHON = {bool: "True or False", types.NoneType: "None"}  # where a program gives them
FEW = 64  # numbers of a list that are an option's; a longer one may be of texts
EMPTY = ("prefix",)  # texts that may be empty, beside those that always hold one
_offered: contextvars.ContextVar[Collection[str] | None] = contextvars.ContextVar("offered", default=None)


def offered(*names: str) -> list[str]:
    """Those of some options (`--label-column`) that the command which runs has: no other may be a remedy. All outside of one."""
    known = _offered.get()
    return [name for name in names if known is None or name in known]


def offering(names: Collection[str]) -> contextlib.AbstractContextManager[object]:
    """Within it a command runs that has these options."""
    return within(_offered, names)


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    least: float | tuple[float, float] | None = None,
    flag: str | bool | tuple[str, float] = True,
    recipe: bool = True,
    metavar: str | None = None,
    read: Callable[[str], Any] | None = None,
    python: str = "",
) -> Any:
    """A field of a class of options.

    Args:
        default: its default; without one it is required.
        help: one line, for `--help` and the docstring.
        least: the smallest value allowed, or the smallest and the largest.
        flag: `--name`, where it is not the field's own, with what 1 is there, where its unit is not the field's; False for
            none.
        recipe: whether recipes and plans may say it.
        metavar: what stands for the value in `--help`.
        read: makes the value of the command line's text; a ValueError for a text that means nothing.
        python: what the docstring says besides.
    """
    flag, unit = flag if isinstance(flag, tuple) else (flag, None)
    least, most = least if isinstance(least, tuple) else (least, None)
    about = {"help": help, "least": least, "most": most, "flag": flag, "recipe": recipe, "metavar": metavar}
    return dataclasses.field(default=default, metadata=about | {"read": read, "unit": unit, "python": python})


def options(config: Callable[..., object]) -> dict[str, dataclasses.Field]:
    """Every option of a class, in order; what a class leaves unsaid about a field, the one above it says.

    Of a training function those of its class; nothing of what has none.
    """
    found = getattr(config, "options", {}) if not dataclasses.is_dataclass(config) else {}
    for field in dataclasses.fields(config) if dataclasses.is_dataclass(config) else ():
        about = {}
        for base in reversed(config.__mro__):  # pyright: ignore[reportAttributeAccessIssue]  # it is a class
            said = vars(base).get("__dataclass_fields__", {}).get(field.name)
            about |= said.metadata if said is not None else {}
        whole: Any = dataclasses.field(default=field.default, metadata=about)  # typeshed: the default's type
        whole.name, whole.type = field.name, field.type
        found[field.name] = whole
    return found


def types_of(field: dataclasses.Field) -> tuple[object, ...]:
    """The types that a field takes, without None.

    >>> from kerasbert.training.config import FinetuneConfig
    >>> types_of(options(FinetuneConfig)["steps"])
    (<class 'int'>,)
    """
    among = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    return tuple(kind for kind in among if kind is not type(None))


def check_ranges(config: object) -> None:
    """Refuse a number that is out of its field's range."""
    for name, field in options(type(config)).items():
        check_range(field, getattr(config, name))


def check_range(field: dataclasses.Field, value: object) -> None:
    """Refuse a value that is out of its field's range."""
    least, most = (field.metadata.get(name) for name in ("least", "most"))
    if least is None or (value is None and types.NoneType in typing.get_args(field.type)):
        return
    whole = int in types_of(field)
    fits = isinstance(value, int if whole else numbers.Real) and not isinstance(value, bool)
    number = cast(float, value) if fits else math.nan
    if not (math.isfinite(number) and number >= least):
        kind = "whole number" if whole else "number"
        raise InputError(f"{field.name} must be a {kind} of at least {least}. Received: {value!r}")
    if most is not None and number > most:
        raise InputError(f"{field.name} must be at most {most:,}. Received: {value!r}")


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


def check_type(name: str, hint: object, value: object) -> None:
    """Refuse what an option of a function cannot be: the text "False" is true, and no path is the current directory."""
    if isinstance(value, str) and not value and os.PathLike in typing.get_args(hint):
        raise InputError(f"{name} is empty, expected a path")
    if not fits(value, hint, python=True):
        raise InputError(f"{name} must be {in_words(hint, python=True)}. Received: {value!r:.60}")


def described(fields: Mapping[str, dataclasses.Field]) -> str:
    """The lines of a docstring's `Args:` about some fields."""
    lines = []
    for name, field in fields.items():
        kind = re.sub(r"\b(\w+\.)+", "", inspect.formatannotation(field.type))  # Mapping, not collections.abc.Mapping
        more = f". {field.metadata['python']}" if field.metadata["python"] else ""
        line = f"{name}: {kind}, {field.metadata['help']}{more}."
        lines.append(textwrap.fill(line, 116, subsequent_indent="    ", break_long_words=False))
    return textwrap.indent("\n".join(lines), " " * 8).strip()


def configured(config: type) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """The decorator of a training function `f(model, ..., config)`: users give the fields of `config` as keyword arguments.

    `inspect.signature`, `help` and notebooks show every field; `{options}` in the docstring becomes their lines.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        own = [name for name in inspect.signature(function).parameters if name != "config"]

        def call(**arguments: object) -> Result:
            given = {name: arguments.pop(name) for name in own}
            return function(**given, config=config(**arguments))

        return _taking(function, call, config)

    return decorate


def passing(*sources: Callable[..., object]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """The decorator of a function `f(run, ..., **options)` that hands its options on.

    Args:
        sources: classes of options, or functions, whose arguments they are; of two of a name the first counts.
    """
    return lambda function: _taking(function, function, *sources)


def checked(function: Callable[Parameters, Result], seen: set[Any] = SEEN) -> Callable[Parameters, Result]:
    """The decorator of a public function or method: a name that it does not take is told with the nearest, "no" is no False.

    Raises:
        InputError: an unknown argument, or one of another type that is declared as text, a path, True or False, a mapping.
    """
    signature, called = inspect.signature(function), function.__qualname__.removesuffix(".__init__")
    hints, made = _hints(signature, seen), cast("Callable[..., Result]", function)
    some = any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())

    def call(*positional: Parameters.args, **given: Parameters.kwargs) -> Result:
        placed: Any = of_numpy(positional)
        named: Any = dict(zip(given, of_numpy(given.values())))
        if not some:
            check_names(called, named, [each for each in signature.parameters if each != "self"])
        for name, value in (*zip(signature.parameters, placed), *named.items()):
            if name in hints:
                check_type(name, hints[name], value)
        try:
            with claiming():
                return made(*placed, **named)
        except TypeError:
            check_bound(called, signature, placed, named)
            raise

    return cast("Callable[Parameters, Result]", functools.wraps(function)(call))


def checked_fields(config: type[Result]) -> type[Result]:
    """The decorator of a dataclass: what is given to make one is looked at, as by `checked`, numbers and parts too."""
    kind: Any = config
    kind.__init__ = checked(kind.__init__, FIELDS)
    return config


def _hints(signature: inspect.Signature, seen: set[Any] = SEEN) -> dict[str, object]:
    """Name -> type of the arguments that are texts, paths, True or False, mappings, or what else is `seen`; of dataclasses."""
    found = {p.name: p.annotation for p in signature.parameters.values()}
    kinds = {
        name: typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,) for name, hint in found.items()
    }
    return {
        name: hint
        for name, hint in found.items()
        if dataclasses.is_dataclass(hint) or {typing.get_origin(each) or each for each in kinds[name]} <= seen
    }


def of_numpy(values: Iterable[Any]) -> tuple[Any, ...]:
    """Arguments, a number or a truth value of numpy, alone or of a few, as Python's own: json holds no other.

    >>> import numpy as np
    >>> of_numpy([np.int64(3), np.bool_(True), {"a": np.float64(0.5)}, np.str_("a"), 4])
    (3, True, {'a': 0.5}, np.str_('a'), 4)
    """
    return tuple(map(_of_numpy, values))


def _of_numpy(value: Any) -> Any:
    if (
        isinstance(value, list | tuple)
        and len(value) <= FEW
        and any(type(each).__module__ == "numpy" for each in value)
    ):
        return type(value)(map(_of_numpy, value)) if type(value) in (list, tuple) else value
    if type(value) is dict and any(type(each).__module__ == "numpy" for each in value.values()):
        return dict(zip(value, of_numpy(value.values())))
    number: Any = value
    kind = type(value)
    ours = kind.__module__ == "numpy" and (issubclass(kind, numbers.Number) or kind.__name__ == "bool")
    return number.item() if ours else value


def check_names(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse an argument that a function does not take."""
    for name in given:
        if name not in known:
            raise InputError(f"{function} has no option {name!r}{_meant(name, known)}")


def check_bound(
    function: str, signature: inspect.Signature, positional: Sequence[object], given: Mapping[str, object]
) -> None:
    """Refuse a call that lacks an argument, gives one twice, or more of them than have a place."""
    try:
        signature.bind(*positional, **given)
    except TypeError as error:
        every = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        placed = [p.name for p in every if p.kind != p.KEYWORD_ONLY]
        got = {*placed[: len(positional)], *given}
        absent = [p.name for p in every if p.default is p.empty and p.name not in got]
        if absent:
            raise InputError(f"{function} needs {', '.join(absent)}, which the call does not give") from error
        if len(positional) > len(placed):
            names = ", ".join(name for name in placed if name != "self")
            told = (
                f"takes {names} by place: give the other arguments by name" if names else "takes no argument by place"
            )
            raise InputError(f"{function} {told}") from error
        raise InputError(f"{function}: {error}") from error


def _meant(name: str, known: Collection[str]) -> str:
    """The end of an error: what an argument that is none must have meant."""
    if ours := field_names.keyword(name, known):
        return f". In Python it is {ours}"
    option = "--" + name.lower().replace("_", "-")
    if (ours := field_names.option(option)[2:].split(" ")[0].replace("-", "_")) in known:
        return f". Nearest: {ours!r}"
    if "options" in known and name in field_names.TASK_OPTIONS:
        return f": it is one of the task's, options={{{name!r}: ...}}"
    if option in field_names.ABSENT:
        return f": {field_names.ABSENT[option]}"
    return f". {near(name, known)}"


def _taking(
    function: Callable[..., object], call: Callable[..., Result], *sources: Callable[..., object]
) -> Callable[..., Result]:
    """`call`, named and documented as `function`, with the arguments of `sources` as its own."""
    plain = inspect.signature(function)
    own = [p for p in plain.parameters.values() if p.kind != p.VAR_KEYWORD and p.name != "config"]
    hints = _hints(plain)
    named = {p.name: p for source in reversed(sources) for p in inspect.signature(source).parameters.values()}
    more = [p.replace(kind=p.KEYWORD_ONLY) for p in named.values() if p.name not in plain.parameters]
    signature = plain.replace(parameters=own + more)

    def taken(*positional: object, **given: object) -> Result:
        positional, given = of_numpy(positional), dict(zip(given, of_numpy(given.values())))
        check_names(function.__name__, given, signature.parameters)
        for name in given:
            field = whole.options.get(name)
            empty = isinstance(given[name], str) and not given[name]
            if empty and name not in EMPTY and types.NoneType in typing.get_args(getattr(field, "type", None)):
                raise InputError(f"{name} is empty: leave it out, or give it a value")
            if field is not None and field.metadata["least"] is None:  # else `check_range` looks
                check_type(name, field.type, given[name])
        check_bound(function.__name__, signature, positional, given)
        bound = signature.bind(*positional, **given)
        for name in bound.arguments.keys() & hints.keys():
            check_type(name, hints[name], bound.arguments[name])
        for parameter in own:
            if parameter.default is not parameter.empty:
                bound.arguments.setdefault(parameter.name, parameter.default)
        with claiming():
            return call(**bound.arguments)

    whole: Any = functools.wraps(function)(taken)
    whole.__signature__ = signature
    whole.options = {name: field for source in reversed(sources) for name, field in options(source).items()}
    if function.__doc__:  # not under -OO
        whole.__doc__ = function.__doc__.replace("{options}", described(whole.options))
    return whole
