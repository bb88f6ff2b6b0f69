"""Options that several commands have, each declared once. Standard library only."""

import argparse

from kerasbert.cli import outputs
from kerasbert.cli.changes import changes_of
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

TASK = "task."  # what the path of an option of a task's kind begins with in --set


def set_option(add: argparse.ArgumentParser) -> None:
    add.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the Spec: dropout=0")


def out_options(add: argparse.ArgumentParser, required: bool = True, kind: outputs.Kind = "folder") -> None:
    outputs.writes(add.add_argument("--out", required=required, metavar="DIR"), kind)
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")


def base_option(add: argparse.ArgumentParser) -> None:
    text = "where RUN is the directory of an adapter alone: the model it adapts"
    add.add_argument("--base", metavar="DIR", help=text)


def column_options(add: argparse.ArgumentParser) -> None:
    for name in ("text", "text-b", "label"):
        add.add_argument(
            f"--{name}-column", metavar="NAME", help=f"column of the {name.replace('-', ' ')} in your files"
        )
    encoding_option(add)


def encoding_option(add: argparse.ArgumentParser) -> None:
    """`--encoding`, which `main` sets for whatever files the command reads."""
    text = "text encoding of the files (default: UTF-8, or what their byte order mark says): cp1250, koi8-r, utf-16-le"
    add.add_argument("--encoding", metavar="NAME", help=text)


def ensemble_option(add: argparse.ArgumentParser) -> None:
    text = "another model of the task: the answers are the mean of all of them; repeatable"
    add.add_argument("--ensemble", action="append", default=[], metavar="RUN", help=text)


def precision_option(
    add: argparse.ArgumentParser,
    text: str = "faster on processors with AVX512-BF16 or AMX; the answers differ slightly",
) -> None:
    """In which precision a model answers; a training has other names."""
    choices = ("float32", "bfloat16")
    add.add_argument("--precision", dest="rounding", choices=choices, default="float32", help=f"bfloat16: {text}")


def task_option(add: argparse.ArgumentParser) -> None:
    add.add_argument(
        "--task", metavar="NAME", help="of a pretrained model that writes without fine-tuning: translation"
    )


def answer_options(add: argparse.ArgumentParser) -> None:
    add.add_argument("--prefix", help="in front of every source, of a model that writes: 'summarize: '")
    add.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="task.NAME=VALUE",
        help="an option of the task's kind over that of the training: task.beams=4",
    )


def answer_options_of(options: argparse.Namespace) -> Json:
    """The options of the task's kind of --set and --prefix.

    Raises:
        InputError: a field of something else.
    """
    found = changes_of(options.set)
    if other := next((name for name in found if not name.startswith(TASK)), None):
        raise InputError(f"--set {other!r} is no option of a task, expected task.NAME=VALUE such as task.beams=4")
    found = {name.removeprefix(TASK): value for name, value in found.items()}
    return found if options.prefix is None else {**found, "prefix": options.prefix}
