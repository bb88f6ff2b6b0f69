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
from kerasbert.value_types import check_type
from kerasbert.within import within

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
# types that `checked` looks for: a number's range is its function's to tell
SEEN = {bool, str, os.PathLike, types.NoneType, Mapping}
FIELDS = SEEN | {int, float, tuple}  # of a dataclass
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
    read, made = _reader(called, signature, _hints(signature, seen)), cast("Callable[..., Result]", function)

    def call(*positional: Parameters.args, **given: Parameters.kwargs) -> Result:
        placed, named = read(positional, given)
        try:
            with claiming():
                return made(*placed, **named)
        except TypeError:
            _bind(called, signature, placed, named)
            raise

    return cast("Callable[Parameters, Result]", functools.wraps(function)(call))


def checked_fields(config: type[Result]) -> type[Result]:
    """The decorator of a dataclass: what is given to make one is looked at, as by `checked`, numbers and parts too."""
    kind: Any = config
    kind.__init__ = checked(kind.__init__, FIELDS)
    return config


def _hints(signature: inspect.Signature, seen: set[Any] = SEEN) -> dict[str, object]:
    """Name -> type of the arguments that are texts, paths, True or False, mappings, or what else is `seen`; of dataclasses."""
    every = signature.parameters.values()
    found = {p.name: p.annotation for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
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


def _reader(
    function: str, signature: inspect.Signature, hints: Mapping[str, object]
) -> Callable[[Iterable[object], Mapping[str, object]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """What makes of the arguments of each call of a function those by place and by name, numbers of numpy as Python's own.

    It raises InputError: a name that the function does not take, or an argument of another type than its hint.
    """
    every = signature.parameters
    known = [name for name in every if name != "self"]
    some = any(p.kind == p.VAR_KEYWORD for p in every.values())

    def read(positional: Iterable[object], given: Mapping[str, object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        placed, named = of_numpy(positional), dict(zip(given, of_numpy(given.values())))
        if not some:
            check_names(function, named, known)
        for name, value in (*zip(every, placed), *named.items()):
            if name in hints:
                check_type(name, hints[name], value)
        return placed, named

    return read


def _bind(
    function: str, signature: inspect.Signature, positional: Sequence[object], given: Mapping[str, object]
) -> inspect.BoundArguments:
    """The arguments of a call by name.

    Raises:
        InputError: the call lacks an argument, gives one twice, or more of them than have a place.
    """
    try:
        return signature.bind(*positional, **given)
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
    named = {p.name: p for source in reversed(sources) for p in inspect.signature(source).parameters.values()}
    more = [p.replace(kind=p.KEYWORD_ONLY) for p in named.values() if p.name not in plain.parameters]
    signature = plain.replace(parameters=own + more)
    fields = {name: field for source in reversed(sources) for name, field in options(source).items()}
    # of others `check_range` looks
    hints = {name: field.type for name, field in fields.items() if field.metadata["least"] is None} | _hints(plain)
    read = _reader(function.__name__, signature, hints)

    def taken(*positional: object, **given: object) -> Result:
        for name, value in given.items():
            optional = name in fields and types.NoneType in typing.get_args(fields[name].type)
            if optional and isinstance(value, str) and not value and name not in EMPTY:
                raise InputError(f"{name} is empty: leave it out, or give it a value")
        placed, given = read(positional, given)
        bound = _bind(function.__name__, signature, placed, given)
        for parameter in own:
            if parameter.default is not parameter.empty:
                bound.arguments.setdefault(parameter.name, parameter.default)
        with claiming():
            return call(**bound.arguments)

    whole: Any = functools.wraps(function)(taken)
    whole.__signature__ = signature
    whole.options = fields
    if function.__doc__:  # not under -OO
        whole.__doc__ = function.__doc__.replace("{options}", described(whole.options))
    return whole
