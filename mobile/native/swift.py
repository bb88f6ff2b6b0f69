"""Write the Swift package of the portable core: `python -m kerasbert.mobile.native.swift --out FOLDER`.

FOLDER is what Xcode adds as a local package, or what `.package(path:)` names: the C sources as a target, and Swift's classes.
"""

import os
import sys
from pathlib import Path

from kerasbert.storage.files import new_directory
from . import build
from .android import copy

FOLDER = build.FOLDER / "swift"
MODULE = 'module CKerasbert {\n    header "kerasbert.h"\n    export *\n}\n'


def write(out: str | os.PathLike, overwrite: bool = False) -> Path:
    """The package.

    Args:
        out: the directory to write.
        overwrite: bool, whether it takes the place of an earlier one.

    Raises:
        InputError: the directory exists.
    """
    with new_directory(out, overwrite) as folder:
        copy(FOLDER, folder)
        core = folder / "Sources" / "CKerasbert"
        header = build.FOLDER / "kerasbert.h"
        for source in (*build.sources(), *build.FOLDER.glob("*.h")):
            copy(source, core / "include" / source.name if source == header else core / source.name)
        (core / "include" / "module.modulemap").write_text(MODULE, "utf-8")
    return Path(out)


def main() -> int:
    """The command."""
    return build.package("swift", __doc__, write)


if __name__ == "__main__":
    sys.exit(main())
