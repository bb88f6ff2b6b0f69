"""The C library, compiled once a run; its tests are skipped by name where there is no compiler."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerasbert
from kerasbert.mobile.native import build
from kerasbert.mobile.native.npm import write
from kerasbert.mobile.runtime import native
from tests.mobile.native.tools import compiler, jvm, needed, npm
from tests.support import ROOT, once

HERE = ROOT / "tests/mobile/native"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    """The library's file."""
    if build.compiler() is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    folder, _ = once(tmp_path_factory, "native", lambda folder: str(build.build(folder / build.NAME)))
    return folder / build.NAME


@pytest.fixture(scope="module", autouse=True)
def library(compiled: Path) -> Iterator[Path]:
    """The library where the runtime looks for it."""
    before = os.environ.get(native.VARIABLE)
    os.environ[native.VARIABLE] = str(compiled)
    yield compiled
    os.environ.pop(native.VARIABLE)
    if before is not None:
        os.environ[native.VARIABLE] = before


@pytest.fixture(scope="session")
def cpp(tmp_path_factory) -> list:
    """The driver in C++ under the sanitizers."""
    (gcc,) = needed("g++")
    folder = tmp_path_factory.mktemp("cpp")
    library = build.build(folder / build.NAME, build.SANITIZERS)
    flags = [
        "-std=c++17",
        "-pthread",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        *build.SANITIZERS,
        f"-I{build.FOLDER}",
    ]
    source = [HERE / "typed.cpp", library, f"-Wl,-rpath,{folder}"]
    subprocess.run([gcc, *flags, "-o", folder / "typed", *source], check=True)
    return ["env", "ASAN_OPTIONS=detect_leaks=0", folder / "typed"]  # LiteRT keeps what it made once


@pytest.fixture(scope="session")
def java(tmp_path_factory) -> list:
    """The driver on the JVM."""
    return jvm(tmp_path_factory.mktemp("java"), "Typed")


@pytest.fixture(scope="session")
def node(tmp_path_factory) -> list:
    """The driver under Node, in a project of its own into which the package was installed."""
    command, manager = needed("node", "npm")
    compiler()
    folder = tmp_path_factory.mktemp("node")
    write(folder / "package")
    subprocess.run([manager, "pack", "--silent", "--pack-destination", folder, folder / "package"], check=True)
    (packed,) = folder.glob("kerasbert-*.tgz")
    assert packed.name == f"kerasbert-{kerasbert.__version__}.tgz"
    print(f"\nnpm package of {packed.stat().st_size / 1e3:.0f} kB")
    install = [manager, "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder / "app", packed]
    subprocess.run(
        [*install, *(npm() / "node_modules" / "@litertjs" / name for name in ("core", "wasm-utils"))], check=True
    )
    shutil.copy(HERE / "typed.mjs", folder / "app")
    return [command, folder / "app" / "typed.mjs"]
