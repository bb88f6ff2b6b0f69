"""What the tests of the marker `native` need beside a C compiler; `setup.sh` installs it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.native import build


def needed(*names: str) -> list[str]:
    """Paths of commands; the test is skipped by the name of the first that is absent."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}: tests/mobile/native/setup.sh")
    return [str(shutil.which(name)) for name in names]


def compiler() -> None:
    """The test is skipped where nothing compiles WebAssembly."""
    try:
        build.zig()
    except InputError as error:
        pytest.skip(str(error))


def npm(*names: str) -> Path:
    """The folder of npm's packages; the test is skipped where it has not those of `names`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("KERASBERT_NPM") or cache / "kerasbert" / "npm")
    for name in names or ("@litertjs/core", "playwright-core", "typescript"):
        if not (folder / "node_modules" / name).is_dir():
            pytest.skip(f"needs the npm package {name}: tests/mobile/native/setup.sh")
    return folder


def jvm(folder: Path, driver: str) -> list:
    """The command of a driver in Java, compiled into a folder with the library beside its classes."""
    _, compiler = needed("java", "javac")
    home = Path(compiler).resolve().parents[1] / "include"
    if not (home / "jni.h").is_file():
        pytest.skip("needs jni.h of a JDK: tests/mobile/native/setup.sh")
    headers = [f"-I{home}", f"-I{home / 'linux'}"]
    build.build(folder / "libkerasbert.so", headers, [build.FOLDER / "java" / "jni.c"], program=False)
    files = [*(build.FOLDER / "java").rglob("*.java"), *Path(__file__).parent.glob("*.java")]
    subprocess.run([compiler, "-Xlint:all", "-Werror", "--release", "11", "-d", folder, *files], check=True)
    return ["java", "-Xcheck:jni", f"-Djava.library.path={folder}", "-cp", folder, driver]


def in_chromium(path: Path | str, **jobs: Any) -> dict:
    """What chromium.mjs says of its jobs in a page: a file or an address."""
    node, chromium = needed("node", "chromium")
    command = [node, Path(__file__).parent / "chromium.mjs", path]
    environment = {**os.environ, "KERASBERT_NPM": str(npm()), "CHROMIUM": chromium}
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["errors"] == []
    return result
