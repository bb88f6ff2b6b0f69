"""What commands write, and the refusal of a place that is not theirs before anything is imported or computed.

An argument that names an output is declared by `writes`. What a command reads is known by the metavar of its arguments.
"""

import argparse
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from kerasbert.errors import InputError, is_pipe, no_file
from kerasbert.storage import aside, places

READ = ("FILE", "DIR", "PATH", "RUN", "MODEL/SIZE", "TEACHER", "DUMP", "ARTEFACT", "GOLDEN", "SOURCE", "X")
HELD = (
    "model.json",
    "weights.safetensors",
    "tokenizer",
    "config.json",
    "model.safetensors",
    "index.json",
    "vectors.npy",
)
Kind = str | Callable[[argparse.Namespace], str]
"""What is written, or a function of the options that says it:

folder: a folder, which is refused where one is, without --overwrite; one of BEGUN: one that the command goes on with;
place: folders within it, each asked for itself; beside: a file and a folder beside it, each asked for itself;
within: files within a folder, which may hold anything; else one of `places.FILES`.
"""
BEGUN = {  # kind of folder -> the file by which it is known, its name
    "run": ("run.json", "run"),
    "quickstart": ("quickstart.json", "quickstart"),
    "lab": ("lab.json", "lab"),
    "records": ("manifest.json", "folder of records"),
    "plan": ("plan.json", "plan's folder"),
}


def writes(action: argparse.Action, kind: Kind) -> None:
    """Declare that an argument names what the command writes."""
    action.writes = kind  # pyright: ignore[reportAttributeAccessIssue]


def outputs(command: argparse.ArgumentParser) -> dict[str, Kind]:
    """Name of an argument -> what it says is written."""
    return {action.dest: action.writes for action in command._actions if hasattr(action, "writes")}  # pyright: ignore


def inputs(command: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[str]:
    """What a command reads, among the values of its options."""
    known = vars(options)  # a look, by which no option counts as used
    for action in command._actions:
        if hasattr(action, "writes") or known.get(action.dest) is None:
            continue
        value = known[action.dest]
        for each in value if isinstance(value, list) else [value]:
            several = each if isinstance(each, list) else [each]
            names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar,)
            for i, name in enumerate(several):
                if isinstance(name, str) and names[min(i, len(names) - 1)] in READ:
                    yield name


@contextlib.contextmanager
def checked(command: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[list[str]]:
    """Refuse inputs and outputs; -> what is read. Within it no other command writes the outputs.

    Raises:
        InputError: what may not be read or is a pipe, a place where the command writes nothing, or which another one writes.
    """
    known, read = vars(options), list(inputs(command, options))
    for path in read:
        if is_pipe(path):
            raise no_file(path)
        _check_readable(path)
    written: dict[str, str] = {}
    with aside.claiming():
        for name, kind in outputs(command).items():
            if known.get(name) is None or "://" in known[name]:
                continue
            _check(kind(options) if callable(kind) else kind, known[name], bool(known.get("overwrite")), read)
            if (other := written.setdefault(os.path.realpath(known[name]), name)) != name:
                raise InputError(f"--{other} and --{name} are both {known[name]}, expected a place for each")
        yield read


def _check_readable(path: str) -> None:
    """Refuse what is there and may not be read, itself or what a model or an index is read from."""
    for each in (path, *(os.path.join(path, name) for name in HELD)):
        try:
            asked = os.R_OK | os.X_OK if stat.S_ISDIR(os.stat(each).st_mode) else os.R_OK
            if not os.access(each, asked):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except PermissionError as error:
            raise InputError(f"cannot read {each}: {error.strerror}") from error
        except (OSError, ValueError):  # who reads it tells what is absent, or has another name
            continue


def _check(kind: str, path: str | os.PathLike, overwrite: bool, read: list[str]) -> None:
    if kind in BEGUN:
        places.check_begun(path, *BEGUN[kind], overwrite, read, several=kind == "run")
    elif kind == "within":
        places.check_within(path)
    elif kind == "place":
        places.check_place(path, read)
        places.check_within(path)
    elif kind == "beside":
        places.check_place(path, read)
        places.check_within(os.path.dirname(path) or ".")
    elif kind == "folder":
        places.check_folder(path, overwrite, read)
    else:
        places.check_file(path, overwrite or kind in ("report", "look"), kind, read)
