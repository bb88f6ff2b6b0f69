"""The two halves of a kind of task beside each other, before anything runs: names, options, and what their methods take.

What a method raises later is told with the method's name (`blamed`), an option that only one half knows with the option's.
"""

import ast
import contextlib
import difflib
import functools
import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any
from unittest import mock

from kerasbert import answers
from kerasbert.answers.base import Kind
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.exported_kind import Exported

BASES = (Kind, TaskKind, Exported, object)  # what the author's classes extend
LIKE = 0.85  # of difflib: a name this near to one of the base class is a typing error


class Options(Mapping[str, Any]):
    """Options of a kind that note what is asked for and not there; `get` says nothing, so a default would hide it."""

    def __init__(self, values: Mapping[str, object], note: Callable[[str], None]) -> None:
        self.values_, self.note = values, note

    def __getitem__(self, name: str) -> Any:
        if name not in self.values_:
            self.note(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


class Halves:
    """A task's kind: `training`, its TaskKind, and `phone`, its `answers.Kind`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.training, self.phone = task.how, task.answer_kind
        self.types = type(self.training), type(self.phone)
        self.unknown: dict[str, str] = {}  # option -> who asked for it while it ran
        self.named = {
            function.__code__: (half, owner, name)
            for half in self.types
            for owner, name, function in _functions(half)
            if owner not in BASES
        }

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two classes: of the training half, of the phone's."""
        training, phone = self.types
        return training.__name__, phone.__name__

    def problems(self) -> list[str]:
        """What is wrong with the two as they are written, a line each."""
        training, phone = self.names
        found = []
        if not self.training.name == self.phone.name == self.task.kind:
            found.append(
                f"{training}.name is {self.training.name!r} and {phone}.name {self.phone.name!r}, expected {self.task.kind!r} of "
                "both: each half finds the other by it"
            )
        for half, bases in ((self.types[0], (TaskKind, Exported)), (self.types[1], (Kind,))):
            found += [line for base in bases for line in _unlike(half, base)]
            found += _misspelt(half, bases)
        return found + self._options()

    def _options(self) -> list[str]:
        """Options that a half reads and nobody declares."""
        read = {name: who for half in self.types for name, who in options_read(half).items()}
        return [self._undeclared(name, who) for name, who in read.items() if name not in self.phone.defaults]

    def _undeclared(self, name: str, who: str) -> str:
        known = ", ".join(self.phone.defaults) or "none"
        line = f"{who} reads the option {name!r}, which {self.names[1]}.defaults does not declare (it has: {known})"
        if near := difflib.get_close_matches(name, self.phone.defaults, 1):
            return f"{line}. Nearest: {near[0]!r}"
        parents = [base for base in self.types[0].__mro__[1:] if getattr(base, "name", "") in answers.KINDS]
        whose = [type(answers.find(getattr(base, "name", ""))) for base in parents]
        other = next((each for each in whose if name in each.defaults and not isinstance(self.phone, each)), None)
        if other is not None:
            extended = f"{self.names[0]} extends {parents[0].__name__}"
            return f"{line}: {extended}, so extend {other.__name__} too, or override what reads it"
        return f"{line}: options are declared there, with their defaults"

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Options that are asked for in vain are noted, however they are asked for; in the end they are told."""

        def options(kind: Kind) -> Options:
            return Options(kind.__dict__.get("_options", kind.defaults), self._note)

        with mock.patch.object(Kind, "options", property(options)):
            yield
        assert not self.unknown, "\n".join(self._undeclared(name, who) for name, who in self.unknown.items())

    def _note(self, name: str) -> None:
        frames = [frame for frame, _ in traceback.walk_stack(inspect.currentframe())]
        self.unknown.setdefault(name, self.method(frames) or "a method")

    def method(self, frames: list[FrameType]) -> str:
        """The first of some frames that is of a method of the two halves: `Class.method`; "" where there is none."""
        for frame in frames:
            if frame.f_code in self.named:
                half, owner, name = self.named[frame.f_code]
                return called(half, owner, name)
        return ""

    @contextlib.contextmanager
    def blamed(self, doing: str) -> Iterator[None]:
        """What is raised becomes one line that names the method. `doing`: what was going on, such as "reading the rows"."""
        try:
            yield
        except AssertionError:
            raise
        except Exception as error:
            places = [*traceback.walk_tb(error.__traceback__)][::-1]
            who = self.method([frame for frame, _ in places])
            if isinstance(error, KeyError) and error.args and error.args[0] in self.unknown:
                line = self._undeclared(error.args[0], self.unknown.pop(error.args[0]))
            elif isinstance(error, NotImplementedError):
                line = f"{self.names[self._side(places)]}.{places[0][0].f_code.co_name} is not written, and {doing} needs it"
            elif isinstance(error, InputError):
                line = f"{doing} is refused{who and ' by '}{who}: {error}"
            else:
                frame, number = next(((f, n) for f, n in places if f.f_code in self.named), places[0])
                where = f"{Path(frame.f_code.co_filename).name}, line {number}"
                said = next(iter(str(error).splitlines()), "")[:300]
                line = f"{who or doing} ({where}{f', {doing}' if who else ''}): {type(error).__name__}: {said}"
            self.unknown.clear()
            raise AssertionError(line) from error

    @staticmethod
    def _side(places: list[tuple[FrameType, int]]) -> int:
        return int(isinstance(places[0][0].f_locals.get("self"), Kind))


def called(half: type, owner: type, name: str) -> str:
    """`Mine.method`, or `Mine.method (inherited from Ours)`."""
    return f"{half.__name__}.{name}" + ("" if owner is half else f" (inherited from {owner.__name__})")


def _is_ours(half: type) -> bool:
    return half.__module__.startswith("kerasbert.")


def _functions(half: type) -> Iterator[tuple[type, str, FunctionType]]:
    """Methods and properties of a class and its bases, the class's own first."""
    for owner in half.__mro__:
        for name, value in vars(owner).items():
            if (function := _function(value)) is not None:
                yield owner, name, function


def _function(value: object) -> FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    value = getattr(value, "__func__", value)
    inner = inspect.unwrap(value) if callable(value) else None
    return inner if isinstance(inner, FunctionType) else None


def options_read(half: type) -> dict[str, str]:
    """Option -> the method that reads it, of the methods that a class has: of an overridden one only where `super()` is asked."""
    found: dict[str, str] = {}
    hidden: set[str] = set()
    for owner, name, function in _functions(half):
        if owner in BASES or name in hidden:
            continue
        tree = _tree(function)
        parents = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_super(node.value)}
        if name not in parents:
            hidden.add(name)
        for option in filter(None, map(_option, ast.walk(tree))):
            found.setdefault(option, called(half, owner, name))
    return found


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _option(node: ast.AST) -> str:
    """The name in `X.options["name"]` or `X.options.get("name")`."""
    if isinstance(node, ast.Subscript):
        holder, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        holder, key = node.func.value, node.args[0]
    else:
        return ""
    named = isinstance(holder, ast.Attribute) and holder.attr == "options"
    return key.value if named and isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _tree(function: FunctionType) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # made without a file, or a lambda within a line
        return ast.Module([], [])


def _unlike(half: type, base: type) -> list[str]:
    """Methods that do not take what the base class's take: a line each."""
    found = []
    for name, value in vars(base).items():
        owner = next(each for each in half.__mro__ if name in vars(each)) if hasattr(half, name) else base
        if name.startswith("_") or owner in BASES:
            continue
        own, who = vars(owner)[name], called(half, owner, name)
        if not isinstance(value, FunctionType):
            if isinstance(own, FunctionType):
                found.append(f"{who} is a method, expected a value: {base.__name__}.{name} is one, or a property")
        elif not isinstance(own, FunctionType):
            found.append(f"{who} is a {type(own).__name__}, expected a method {name}{inspect.signature(value)}")
        elif wrong := _call_refused(inspect.signature(own), inspect.signature(value)):
            given = ", ".join(inspect.signature(value).parameters)
            found.append(f"{who} {wrong}, expected {name}({given}), as it is called")
    return found


def _call_refused(own: inspect.Signature, base: inspect.Signature) -> str:
    """Why a method cannot be called as that of the base class; empty where it can."""
    names = [*base.parameters]
    asked = [name for name in names if base.parameters[name].default is inspect.Parameter.empty]
    for positional, keywords in ((names, ()), (asked, [name for name in names if name not in asked])):
        try:
            own.bind(*positional, **dict.fromkeys(keywords))
        except TypeError:
            return f"takes ({', '.join(own.parameters)})"
    return ""


def _misspelt(half: type, bases: tuple[type, ...]) -> Iterator[str]:
    """Names of a plug-in's class that nothing asks for and that are nearly one of the base class's."""
    if _is_ours(half):
        return
    asked = {name for base in bases for name in dir(base) if not name.startswith("_")}
    for owner in half.__mro__:
        if owner in BASES or _is_ours(owner):
            continue
        for name in vars(owner):
            near = difflib.get_close_matches(name, asked, 1, LIKE)
            if near and name not in asked and not name.startswith("_") and near[0] not in vars(owner):
                yield f"{half.__name__}.{name} is nothing that is asked for. Nearest: {near[0]!r}"
