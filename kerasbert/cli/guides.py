"""`kerasbert docs | samples`: the guides that are installed with the package, and small files to follow them with."""

import argparse
import re
import sys
from importlib import resources

from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.errors import InputError, unknown

PACKAGES = ("kerasbert", "kerasbert.mobile")  # each has a folder `guides`


def guides() -> dict[str, str]:
    """Name -> the text of each guide that is installed, in the order of the table in the README."""
    found = {}
    for package in PACKAGES:
        pages = [page for page in (resources.files(package) / "guides").iterdir() if page.name.endswith(".md")]
        for page in sorted(pages, key=lambda page: page.name):
            found[page.name.removesuffix(".md")] = page.read_text(encoding="utf-8")
    return found


def title(text: str) -> str:
    """The first heading of a guide.

    >>> title("# Search: sentences by meaning")
    'Search: sentences by meaning'
    """
    return text.partition("\n")[0].lstrip("# ").strip()


def _docs(options: argparse.Namespace) -> None:
    found = guides()
    if options.name is None:
        width = max(map(len, found))
        lines = [f"  {name:{width}}  {title(text)}" for name, text in found.items()]
        show(None, False, "\n".join(["kerasbert docs NAME shows one of these guides:", "", *lines]))
        return
    name = options.name.rpartition("/")[2].removesuffix(".md")  # as links name it
    if name not in found:
        count = {
            guide: len(re.findall(rf"^kerasbert(?:-mobile)? {re.escape(name)}\b", found[guide], re.M))
            for guide in found
        }
        if any(count.values()):
            raise InputError(
                f"no guide {options.name!r}: the command {name} is in kerasbert docs {max(found, key=count.__getitem__)}"
            )
        raise unknown("guide", options.name, found, "kerasbert docs")
    if sys.stdin.isatty() and sys.stdout.isatty():
        import pydoc

        pydoc.pager(found[name])
    else:
        print(found[name], end="")


def _samples(options: argparse.Namespace) -> None:
    from kerasbert.quickstart import samples

    written = samples.write(options.out, overwrite=options.overwrite)
    width = max(map(len, written))
    lines = [f"  {name:{width}}  {about}" for name, about in written.items()]
    show(None, False, "\n".join([f"{options.out}:", *lines]))


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("docs", _docs, "show the guides that are installed with the package")
    add.add_argument("name", nargs="?", metavar="NAME", help="of the guide; without it their names are listed")

    add = command("samples", _samples, "write small files of every format, to follow the guides with")
    text = "a new or an empty folder (default: samples)"
    writes(add.add_argument("out", nargs="?", default="samples", metavar="DIR", help=text), "folder")
    add.add_argument("--overwrite", action="store_true", help="replace samples that DIR holds, and nothing else")
