"""The portable core on aarch64 and armhf (under qemu) and on the JVM: ids, offsets, rows and answers of Python."""

import subprocess

import pytest

from kerasbert.mobile.native import build
from tests.mobile.native import script
from tests.mobile.native.tokenizers import SMALL
from tests.mobile.native.tools import compiler, jvm, needed
from tests.support import ROOT
from tests.text.kinds import small_bpe

pytestmark = pytest.mark.native
HERE = ROOT / "tests/mobile/native"
TARGETS = {"aarch64": ("aarch64-linux-gnu", "qemu-aarch64"), "armhf": ("arm-linux-gnueabihf", "qemu-arm")}


def follow(command: list, parts: list[script.Script]) -> None:
    """Give a driver the scripts; its answers must be Python's."""
    for lines, expected in parts:
        said = subprocess.run(
            command, input="\n".join(lines) + "\n", capture_output=True, timeout=900, encoding="utf-8"
        )
        assert said.returncode == 0, said.stderr[-2000:]
        script.compare(said.stdout, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_cross_compiled_and_under_qemu(target, tmp_path, monkeypatch):
    """1,000 strings and 100 of bytes for each of the small tokenizers, 20 inputs of every kind."""
    name, emulator = TARGETS[target]
    (compiler, qemu) = needed(f"{name}-gcc", emulator)
    monkeypatch.setenv("CC", compiler)
    library = build.build(tmp_path / "libkerasbert.so")
    assert library.stat().st_size <= 300_000
    print(f"\n{target}: library of {library.stat().st_size / 1e3:.0f} kB")
    program = build.build(tmp_path / "driver", ["-D_POSIX_C_SOURCE=200809L"], [HERE / "driver.c"])
    follow([qemu, "-L", f"/usr/{name}", program], list(script.parts(1_000, 20)))


@pytest.mark.parametrize(
    "target", ["x86_64-windows-gnu", "aarch64-macos", "x86_64-macos", "aarch64-linux-gnu", "arm-linux-gnueabihf"]
)
def test_compiled_by_zig(target, tmp_path):
    """Without a warning, as a shared library of a few hundred kB; what is not this machine's is not run."""
    compiler()
    flags = [
        "-target",
        target,
        "-O2",
        *build.WARNINGS,
        "-ffp-contract=off",
        "-fvisibility=hidden",
        "-shared",
        "-fPIC",
        "-s",
    ]
    libraries = [] if "windows" in target else ["-lm", "-ldl"]
    library = tmp_path / "library"
    line = [*build.zig(), *flags, f"-I{build.FOLDER}", "-o", library, *build.sources(), *libraries]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert library.stat().st_size <= 350_000
    print(f"\n{target}: library of {library.stat().st_size / 1e3:.0f} kB")


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> list:
    """The command of the driver on the JVM, with the library beside its classes."""
    return jvm(tmp_path_factory.mktemp("java"), "Driver")


def test_on_the_jvm(java):
    """10,000 strings and 1,000 of bytes for each of the small tokenizers, 200 inputs of every kind; lone surrogates."""
    follow(java, [script.of_units(small_bpe()), script.of_units(SMALL["wordpiece"]()), *script.parts(10_000, 200)])


def test_what_the_jvm_is_told(java):
    lines = ["model 00", "tokenizer 61 62", "model " + "00" * 100]
    done = subprocess.run(java, input="\n".join(lines), capture_output=True, text=True, timeout=60)
    said = done.stdout.split("\n")
    assert "carries no readable bundle" in said[0]
    assert said[1].startswith("error ")
    assert "tokenizer.json" in said[1]
    assert "carries no readable bundle" in said[2]


def test_the_driver_here(tmp_path):
    """The same with the machine's own compiler, so that a difference elsewhere is not the driver's."""
    if build.compiler() is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    program = build.build(tmp_path / "driver", ["-D_POSIX_C_SOURCE=200809L"], [HERE / "driver.c"])
    follow([program], list(script.parts(100, 20)))
