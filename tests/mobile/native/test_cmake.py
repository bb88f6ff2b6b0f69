"""The core as a package of CMake: a project that finds it, built from nothing; one version everywhere."""

import json
import re
import subprocess
from pathlib import Path

import pytest

import kerasbert
from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import load
from tests.mobile.native.networks import network
from tests.mobile.native.runners import litert
from tests.mobile.native.script import word
from tests.mobile.native.test_answers import close
from tests.mobile.native.test_typed import form, plain
from tests.mobile.native.tools import jvm, needed
from tests.support import ROOT

HERE = ROOT / "tests/mobile/native"


def test_the_version_stands_in_one_place():
    """In the header, which equals Python's: CMake, Gradle and Swift read it there, npm and the AAR take Python's."""
    sources = [path for path in build.FOLDER.rglob("*") if path.suffix not in (".md", ".pyc", ".so") and path.is_file()]
    texts = {path.relative_to(build.FOLDER).as_posix(): path.read_text("utf-8") for path in sources}
    assert re.findall(r'#define KB_RELEASE "(.*)"', texts["kerasbert.h"]) == [kerasbert.__version__]
    assert [name for name, text in texts.items() if re.search(rf"\b{re.escape(kerasbert.__version__)}\b", text)] == [
        "kerasbert.h"
    ]
    for name in ("CMakeLists.txt", "android/kerasbert/build.gradle.kts", "swift/Sources/Kerasbert/Runner.swift"):
        assert "KB_RELEASE" in texts[name], name
    for name in ("npm.py", "android.py"):
        assert '"version": kerasbert.__version__' in texts[name], name
    assert "version" not in json.loads(texts["browser/package.json"])


def built(folder: Path, source: Path, *options: str) -> Path:
    """Configure and build a project -> its folder."""
    (cmake,) = needed("cmake")
    for command in ([cmake, "-S", source, "-B", folder, *options], [cmake, "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "warning" not in (done.stdout + done.stderr).lower()
    return folder


def installed(folder: Path, *options: str) -> Path:
    """Build the library and install it -> where to."""
    prefix = folder / "prefix"
    (cmake,) = needed("cmake")
    subprocess.run(
        [cmake, "--install", built(folder / "library", build.FOLDER, *options), "--prefix", prefix], check=True
    )
    return prefix


@pytest.mark.native
@pytest.mark.parametrize("shared", ["ON", "OFF"])
def test_a_project_that_finds_it(shared, tmp_path):
    """Installed, found by its version, compiled and linked by another project, which answers as Python does."""
    needed("g++")
    prefix = installed(tmp_path, f"-DBUILD_SHARED_LIBS={shared}")
    assert {path.name for path in (prefix / "include").iterdir()} == {"kerasbert.h", "kerasbert.hpp"}
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DWANTED={kerasbert.__version__}"]
    program = built(tmp_path / "consumer", HERE / "consumer", *options) / "consumer"
    path, text = network("ner", tmp_path), "the happy cat 😀 sees a dog"
    line = [program, "Tagger", path, litert()]
    done = subprocess.run(line, input=f"0 {word(text)}\n", capture_output=True, text=True, check=True)
    with load(path, cache=False) as python:
        close(form("tags", python([text])[0].to_json(), [text]), plain(json.loads(done.stdout)))
    size = sum(file.stat().st_size for file in (prefix / "lib").glob("libkerasbert.*") if not file.is_symlink())
    print(f"\nlibrary of {size / 1e3:.0f} kB, program of {program.stat().st_size / 1e3:.0f} kB")


@pytest.mark.native
def test_another_version_is_not_found(tmp_path):
    (cmake,) = needed("cmake")
    prefix = installed(tmp_path)
    command = [
        cmake,
        "-S",
        HERE / "consumer",
        "-B",
        tmp_path / "consumer",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DWANTED=9.0",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"version: {kerasbert.__version__}" in done.stderr


@pytest.mark.native
def test_with_jni(tmp_path, monkeypatch):
    """The library that CMake builds for the JVM."""
    command = jvm(tmp_path, "Driver")
    monkeypatch.setenv("JAVA_HOME", str(Path(needed("javac")[0]).resolve().parents[1]))
    prefix = installed(tmp_path / "cmake", "-DBUILD_SHARED_LIBS=ON", "-DKERASBERT_JNI=ON")
    (tmp_path / build.NAME).unlink()
    command = [*command[:2], f"-Djava.library.path={prefix / 'lib'}", *command[3:]]
    done = subprocess.run(command, input="model 00\n", capture_output=True, text=True, check=True)
    assert "carries no readable bundle" in done.stdout
