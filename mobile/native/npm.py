"""Write the npm package of the portable core: `python -m kerasbert.mobile.native.npm --out FOLDER`.

FOLDER is what `npm install FOLDER` or `npm pack FOLDER` takes: JavaScript with types, and the core as WebAssembly, which Zig
compiles (`pip install ziglang`).
"""

import json
import os
import sys
from pathlib import Path

import kerasbert
from kerasbert.storage.files import new_directory
from . import build
from .page import FOLDER

SCRIPTS = ("index.js", "index.d.ts", "kerasbert.js", "litert.js", "node.js", "web.js")


def write(out: str | os.PathLike, overwrite: bool = False) -> Path:
    """The package, with kerasbert's version.

    Args:
        out: the directory to write.
        overwrite: bool, whether it takes the place of an earlier one.

    Raises:
        InputError: no compiler, or the directory exists.
    """
    settings = {**json.loads((FOLDER / "package.json").read_text("utf-8")), "version": kerasbert.__version__}
    with new_directory(out, overwrite) as folder:
        build.build(folder / "kerasbert.wasm")
        for name in SCRIPTS:
            (folder / name).write_bytes((FOLDER / name).read_bytes())
        (folder / "package.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    return Path(out)


def main() -> int:
    """The command."""
    return build.package("npm", __doc__, write, told="; npm install {out} @litertjs/core")


if __name__ == "__main__":
    sys.exit(main())
