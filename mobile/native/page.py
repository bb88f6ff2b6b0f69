"""A page of one file that answers texts in a browser: `python -m kerasbert.mobile.native.page --litert FOLDER --out FILE`.

It holds the portable core, LiteRT.js with its WebAssembly, and a model. FOLDER is where `npm install @litertjs/core` was called.
"""

import argparse
import base64
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.export import bundle
from . import build

FOLDER = build.FOLDER / "browser"
INTERPRETER = (
    "litert_wasm_compat_internal"  # of LiteRT.js: needs no relaxed SIMD, so that every browser gives the same numbers
)


def packed(data: bytes) -> str:
    """Bytes as the page holds them: the same bytes give the same text."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def module(text: str) -> str:
    """A script as the address of an import."""
    return "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()


def installed(litert: Path, name: str) -> bytes:
    """A file of the npm packages.

    Raises:
        InputError: it is not there.
    """
    path = litert / "node_modules" / "@litertjs" / name
    if not path.is_file():
        raise InputError(f"{path} is not there, expected LiteRT.js: npm install --prefix {litert} @litertjs/core")
    return path.read_bytes()


def page(litert: str | os.PathLike, core: bytes, model: bytes = b"") -> str:
    """The page's text.

    Args:
        litert: folder of npm's `node_modules`.
        core: the portable core as WebAssembly (`build.build` of a .wasm).
        model: bytes of a .tflite that `kerasbert-mobile compress` wrote; none: the page asks for the file.

    Raises:
        InputError: LiteRT.js is not there, or the model carries no bundle.
    """
    if model:
        bundle.read(model)
    folder = Path(litert)
    ours = module((FOLDER / "kerasbert.js").read_text("utf-8"))
    runner = (FOLDER / "litert.js").read_text("utf-8").replace('"./kerasbert.js"', '"kerasbert"')
    imports = {
        "kerasbert": ours,
        "kerasbert/litert": module(runner),
        "@litertjs/core": module(installed(folder, "core/dist/index.js").decode()),
        "@litertjs/wasm-utils": module(installed(folder, "wasm-utils/dist/index.js").decode()),
    }
    parts = {
        "IMPORTS": json.dumps({"imports": imports}),
        "CORE": packed(core),
        "INTERPRETER": packed(installed(folder, f"core/wasm/{INTERPRETER}.js")),
        "WASM": packed(installed(folder, f"core/wasm/{INTERPRETER}.wasm")),
        "MODEL": packed(model) if model else "",
    }
    text = (FOLDER / "page.html").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"/*{name}*/", part)
    return text


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kerasbert.mobile.native.page", description=__doc__)
    parser.add_argument("--litert", type=Path, required=True, help="the folder of npm's node_modules")
    parser.add_argument("--model", type=Path, help="a .tflite; without it the page asks for one")
    parser.add_argument("--out", type=Path, required=True, help="the .html to write")
    options = parser.parse_args()
    try:
        model = options.model.read_bytes() if options.model else b""
        with tempfile.TemporaryDirectory() as folder:
            core = build.build(Path(folder) / "kerasbert.wasm").read_bytes()
        options.out.write_text(page(options.litert, core, model), "utf-8")
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
