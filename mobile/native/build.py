"""Compile the portable core: `python -m kerasbert.mobile.native.build [--out FILE]`.

With the machine's C compiler, or another one in $CC; a FILE of the suffix .wasm with Zig's (`pip install ziglang`).
"""

import argparse
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kerasbert.errors import InputError

FOLDER = Path(__file__).resolve().parent
LOADER = () if platform.system() == "Windows" else ("-ldl",)  # of dlopen, for a runner
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
NAME = {"Darwin": "libkerasbert.dylib", "Windows": "kerasbert.dll"}.get(platform.system(), "libkerasbert.so")
LIBRARY = FOLDER / NAME
"""Where the runtime looks for it."""
# a module that asks for no function of its host
WASM = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-s", "-fvisibility=hidden")


def sources() -> list[Path]:
    """The C files of the library."""
    return sorted(FOLDER.glob("*.c"))


def compiler() -> str | None:
    """$CC, or the first of cc, gcc and clang that is installed; None without."""
    wanted = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    return next((found for name in wanted if (found := shutil.which(name))), None)


def zig() -> list[str]:
    """The command of Zig's C compiler, which brings WebAssembly's libc: of the package ziglang, or the machine's.

    Raises:
        InputError: there is none.
    """
    package = importlib.util.find_spec("ziglang")
    folders = list(package.submodule_search_locations or ()) if package else []
    found = shutil.which("zig", path=os.pathsep.join(folders)) or shutil.which("zig")
    if found is None:
        raise InputError("no compiler for WebAssembly: pip install ziglang, which brings one")
    return [found, "cc"]


def exported(wasm: bool = False) -> list[str]:
    """The functions of the header; `wasm`: those of WebAssembly, which has no files and whose runner is LiteRT.js."""
    text = (FOLDER / "kerasbert.h").read_text("utf-8")
    if wasm:
        text = re.sub(r"^#if !defined\(__wasm__\).*?^#endif", "", text, flags=re.MULTILINE | re.DOTALL)
    return sorted(set(re.findall(r"^KB_API [^;]*?\b(kb_\w+)\(", text, re.MULTILINE)))


def command(
    out: str | os.PathLike,
    extra: Sequence[str] = (),
    files: Sequence[str | os.PathLike] = (),
    program: bool = True,
) -> list[str]:
    """The compiler's command line; the arguments of `build`.

    Raises:
        InputError: no compiler.
    """
    flags = ["-O2", *WARNINGS, "-ffp-contract=off", f"-I{FOLDER}", *extra, "-o", str(out)]
    flags += [str(path) for path in (*sources(), *files)]
    if Path(out).suffix == ".wasm":
        return [*zig(), *WASM, *flags, *(f"-Wl,--export={name}" for name in [*exported(wasm=True), "malloc", "free"])]
    cc = compiler()
    if cc is None:
        raise InputError(
            "no C compiler: cc, gcc or clang, or name one in CC. Without it the pure-Python runtime is used"
        )
    shared = [] if files and program else ["-shared", "-fPIC", "-fvisibility=hidden"]
    return [cc, *shared, *flags, "-lm", *LOADER]


def build(
    out: str | os.PathLike = LIBRARY,
    extra: Sequence[str] = (),
    files: Sequence[str | os.PathLike] = (),
    program: bool = True,
) -> Path:
    """Compile the library; the file is replaced whole or not at all.

    Args:
        out: the file to write; of the suffix .wasm a WebAssembly module.
        extra: further options of the compiler.
        files: C files besides the library's.
        program: bool, whether `files` hold a `main`, so that the result is a program.

    Raises:
        InputError: no compiler, or it fails.
    """
    out = Path(out)
    try:
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            made = Path(folder) / out.name
            run = subprocess.run(command(made, extra, files, program), capture_output=True, text=True)
            if run.returncode:
                said = next((line for line in run.stderr.splitlines() if "error" in line), run.stderr)
                raise InputError(f"the C compiler failed: {' '.join(said.split())[:300]}")
            made.replace(out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}. Give another file: --out FILE") from error
    return out


def package(
    name: str,
    about: str | None,
    write: Callable[[Path, bool], Path],
    place: str = "the folder to write",
    told: str = "",
) -> int:
    """The command of a module that writes a package: `python -m kerasbert.mobile.native.NAME --out OUT`; -> its status.

    Args:
        about: what `--help` says.
        write: of the place and of whether it is overwritten.
        place: the help of --out.
        told: what stands behind the size, with `{out}` for the place as a shell and npm read it.
    """
    parser = argparse.ArgumentParser(prog=f"python -m kerasbert.mobile.native.{name}", description=about)
    parser.add_argument("--out", type=Path, required=True, help=place)
    parser.add_argument("--overwrite", action="store_true", help="put it in the place of an earlier one")
    options = parser.parse_args()
    try:
        out = write(options.out, options.overwrite)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    files = [path for path in (out, *out.rglob("*")) if path.is_file()]
    place = shlex.quote(str(out) if out.is_absolute() else f"./{out}")  # npm takes a bare name from its registry
    print(f"{out}: {sum(path.stat().st_size for path in files) / 1e3:.0f} kB{told.format(out=place)}")
    return 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kerasbert.mobile.native.build", description=__doc__)
    parser.add_argument("--out", type=Path, default=LIBRARY, help=f"the file to write; {LIBRARY} by default")
    parser.add_argument("--show", action="store_true", help="print the compiler's command and do nothing")
    options = parser.parse_args()
    try:
        if options.show:
            print(shlex.join(command(options.out)))
            return 0
        out = build(options.out)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    where = (
        ""
        if out == LIBRARY or out.suffix == ".wasm"
        else f"; the runtime finds it by KERASBERT_NATIVE={shlex.quote(str(out.absolute()))}"
    )
    print(f"{out}: {out.stat().st_size / 1024:.0f} kB{where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
