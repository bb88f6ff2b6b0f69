"""The command `kerasbert`. Errors are one line on stderr and exit status 2; a traceback comes with --debug."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kerasbert import __version__
from kerasbert.cli.parser import Parser
from kerasbert.errors import InputError

EXTRAS = {
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "tensorflow_text": "tensorflow",
    "rich": "tensorflow",
    "yaml": "tensorflow",
    "matplotlib": "tensorflow",
    "ai_edge_litert": "mobile",
    "flatbuffers": "mobile",
    "apache_beam": "beam",
    "jax": "tpu-check",
    "libtpu": "tpu-check",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status.

    0; 2 for a mistake in what was given or a file system that refuses; 3 where the numbers of a run exploded; 1 for a
    fault of ours; 75 after a SIGTERM: the same command goes on.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    options = parser().parse_args(arguments)
    try:
        options.plugins = _plugins(options.plugin)
        return options.run(options) or 0
    except (Exception, KeyboardInterrupt) as error:
        if options.debug:
            raise
        line, status = _line(error)
        print(f"error: {line}", file=sys.stderr)
        return status


def _line(error: BaseException) -> tuple[str, int]:
    """What to print of an error, and the exit status."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted. The same command goes on from the last checkpoint", 130
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
        extra = EXTRAS[error.name.partition(".")[0]]
        return f"this command needs {error.name}, which is not installed: pip install 'kerasbert[{extra}]'", 2
    line = " ".join(str(error).split())
    # TensorFlow tells of a full disk or a missing bucket by errors of its own
    if isinstance(error, InputError):
        return line, error.status
    if isinstance(error, OSError) or type(error).__module__ == "tensorflow.python.framework.errors_impl":
        return line, 2
    return f"unexpected {type(error).__name__}: {line}. Run it again with --debug and report what it shows", 1


def _plugins(paths: Sequence[str]) -> dict[str, str] | None:
    from kerasbert import registry

    loaded = [registry.load_plugin(path) for path in paths]
    return loaded[0] if loaded else None


def parser() -> Parser:
    """The command line."""
    from kerasbert.cli import answers, exchange, look, text, training

    top = Parser(prog="kerasbert", description="The BERT family from raw text to a phone.")
    top.add_argument("--version", action="version", version=__version__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show a traceback on errors")
    shared.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a file that registers more")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, run: Callable[[argparse.Namespace], Any], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=[shared])
        made.set_defaults(run=run)
        return made

    for part in (look, text, training, answers, exchange):
        part.add(command)
    return top
