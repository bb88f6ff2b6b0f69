"""What the commands share: a parser whose errors are one line, options that several have. Standard library only."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from kerasbert.errors import InputError

# (name of a command, the function that runs it, one line of help) -> its parser
Declare = Callable[[str, Callable[[argparse.Namespace], Any], str], argparse.ArgumentParser]


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, as everywhere here."""

    def error(self, message: str) -> None:
        """Print one line and leave with status 2."""
        self.exit(2, f"error: {message}. See {self.prog} --help\n")


def show(value: Any, as_json: bool, text: str) -> None:
    print(json.dumps(value, ensure_ascii=False) if as_json else text)


def chosen(options: argparse.Namespace, names: str) -> dict[str, Any]:
    """The options of these names that the command line has."""
    return {name: getattr(options, name) for name in names.split() if hasattr(options, name)}


def changes_of(pairs: Sequence[str]) -> dict[str, Any]:
    """`a.b=1` -> {"a.b": 1}; values are json, else text."""
    found = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair!r} has no '=', expected FIELD=VALUE such as dropout=0")
        try:
            found[path] = json.loads(value)
        except ValueError:
            found[path] = {"none": None, "None": None, "True": True, "False": False}.get(value, value)
    return found


def set_option(add: argparse.ArgumentParser) -> None:
    add.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the Spec: dropout=0")


def out_options(add: argparse.ArgumentParser, required: bool = True) -> None:
    add.add_argument("--out", required=required, metavar="DIR")
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")


def column_options(add: argparse.ArgumentParser) -> None:
    for name in ("text", "text-b", "label"):
        add.add_argument(
            f"--{name}-column", metavar="NAME", help=f"column of the {name.replace('-', ' ')} in your files"
        )
