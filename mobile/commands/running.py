"""The file that a command runs, and how."""

import argparse
from typing import TYPE_CHECKING

from kerasbert.cli.options import Keywords

if TYPE_CHECKING:
    from kerasbert.mobile.runtime import Runner


def runtime_options(command: argparse.ArgumentParser) -> None:
    """Options of the interpreter."""
    command.add_argument("--threads", type=int, default=1, metavar="N", help="of the interpreter")
    command.add_argument("--cache", metavar="DIR", help="folder for packed weights (default: ~/.cache/kerasbert)")
    command.add_argument(
        "--windows", type=int, default=1024, metavar="N", help="rows that one document may take (default: 1024)"
    )
    command.add_argument("--no-cache", action="store_true", help="write no packed weights")
    command.add_argument(
        "--delegate",
        default="xnnpack",
        metavar="NAME",
        help="what computes: xnnpack (the default), gpu, npu, or the file of a TFLite delegate (.so)",
    )


def pair_option(command: argparse.ArgumentParser) -> None:
    """`--pair`, of commands that read texts by themselves."""
    command.add_argument("--pair", action="store_true", help="texts come in pairs: two arguments, or a tab in a line")


def loading(options: argparse.Namespace) -> Keywords:
    """The arguments of `runtime.load` that the options give."""
    cache = False if options.no_cache else options.cache
    return {"cache": cache} | {name: getattr(options, name) for name in ("threads", "plugin", "windows", "delegate")}


def load(options: argparse.Namespace) -> "Runner":
    """The Runner of the file."""
    from ..runtime import load as opened

    return opened(options.file, **loading(options))
