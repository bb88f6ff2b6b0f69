"""The options of a command, made from the fields of its class in `training.config` or `data.config`."""

import argparse
import dataclasses
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from kerasbert.cli.outputs import writes
from kerasbert.errors import InputError
from kerasbert.options import check_range, options, types_of

Keywords = dict[str, Any]  # what a function is called with, by the names of its options
EMPTY = ("prompt_name", "prefix")  # options for which an empty text is a value: none


def add_options(parser: argparse._ActionsContainer, config: type, required: bool = True) -> None:
    """An option for every field that has one and that the command has not declared itself.

    One that is not given is absent: the function's own default or a recipe's holds, and `--help` shows the function's.

    Args:
        parser: a Parser, or one of its groups, whose options show no defaults.
        config: a class of options.
        required: whether fields without a default must be given.
    """
    defaults = {}
    for name, flag, field in flags(config):
        if flag in parser._option_string_actions:
            continue
        kind: Keywords = {"action": "store_true"}
        if field.type is not bool:
            kind = {"type": _type(field), "metavar": field.metadata["metavar"]}
            kind |= {"required": required and field.default is dataclasses.MISSING}
            kind |= {"action": "append"} if _several(field) else {}
            defaults |= {name: field.default} if isinstance(field.default, int | float | str) else {}
        action: Any = parser.add_argument(
            flag, **kind, dest=name, default=argparse.SUPPRESS, help=field.metadata["help"] or None
        )
        action.field = field
        if name == "out":
            writes(action, _trained)
    shown = getattr(parser, "defaults", None)
    if shown is not None:
        shown |= defaults


def numbered(parser: Any, flag: str, least: float, kind: type = int, **words: Any) -> None:
    """Declare an option that no class of options has, whose value is a number from `least`, to `most` where `words` have it."""
    about = {"least": least, "most": words.pop("most", None)}
    action = parser.add_argument(flag, type=kind, **words)
    action.field = dataclasses.field(metadata=about)
    action.field.name, action.field.type = action.dest, kind | None


def check_values(command: argparse.ArgumentParser, found: argparse.Namespace) -> None:
    """Refuse an empty value, and a number that is out of its option's range, before the command imports what takes it.

    Raises:
        InputError: as `check_range`.
    """
    for action in command._actions:
        value = getattr(found, action.dest, None)
        if action.option_strings and value == "" != action.default and action.dest not in EMPTY:
            raise InputError(f"{action.option_strings[-1]} has an empty value: give one, or leave it out")
        if (field := getattr(action, "field", None)) is not None and hasattr(found, action.dest):
            check_range(field, value)


def _trained(found: argparse.Namespace) -> str:
    """What a training command writes: a run, or a folder of runs."""
    return "place" if getattr(found, "folds", None) or getattr(found, "grid", None) else "run"


def given(found: argparse.Namespace, config: type, unused: Collection[str] = ()) -> Keywords:
    """The fields that the command line says, as the function takes them; not `unused` ones, which stay unread (`cli.given`)."""
    fields = {name: field for name, _, field in flags(config) if name not in unused and hasattr(found, name)}
    units = {name: field.metadata["unit"] for name, field in fields.items()}
    return {name: getattr(found, name) * units[name] if units[name] else getattr(found, name) for name in fields}


def flags(config: type) -> Iterator[tuple[str, str, dataclasses.Field]]:
    """(field, its option, what is known of it), those of the class itself before those that it shares with others."""
    order = list(reversed(config.__mro__))
    fields = options(config)
    first = {
        name: next(i for i, base in enumerate(order) if name in getattr(base, "__annotations__", {})) for name in fields
    }
    for name in sorted(fields, key=first.__getitem__, reverse=True):
        if flag := fields[name].metadata["flag"]:
            yield name, f"--{name.replace('_', '-')}" if flag is True else flag, fields[name]


def _several(field: dataclasses.Field) -> bool:
    """Whether the option may be given again: its field is a list, which one text does not say whole."""
    return not field.metadata["read"] and any(typing.get_origin(kind) is Sequence for kind in types_of(field))


def _type(field: dataclasses.Field) -> Callable[[str], object]:
    """What makes the value of the text."""
    return field.metadata["read"] or next((kind for kind in types_of(field) if kind in (int, float)), str)


def label_names_option(add: argparse.ArgumentParser) -> None:
    text = "of a .keras file, which holds none: names of its labels, in the order of its output: no,yes"
    add.add_argument("--label-names", metavar="NAME,NAME", help=text)


def label_names_of(model: str, names: str | None) -> list[str] | None:
    """The names of --label-names; None where they are not given.

    Raises:
        InputError: they are of another model than a `.keras` file, or wrong (`tasks.labels.names_of`).
    """
    if names is None:
        return None
    if not model.endswith(".keras"):
        raise InputError(f"--label-names are of a .keras file, which has none, and {model} has its own: leave them out")
    from kerasbert.tasks.labels import names_of

    return names_of(names)
