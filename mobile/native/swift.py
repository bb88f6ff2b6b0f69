"""Write the Swift package of the portable core: `python -m kerasbert.mobile.native.swift --out FOLDER`.

FOLDER is what Xcode adds as a local package, or what `.package(path:)` names: the C sources as a target, and Swift's classes.
"""

import argparse
import os
import sys
from pathlib import Path

from kerasbert.errors import InputError
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
    parser = argparse.ArgumentParser(prog="python -m kerasbert.mobile.native.swift", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--overwrite", action="store_true", help="put it in the place of an earlier one")
    options = parser.parse_args()
    try:
        out = write(options.out, options.overwrite)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{out}: {sum(path.stat().st_size for path in out.rglob('*') if path.is_file()) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
