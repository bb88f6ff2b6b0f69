"""The Swift package, which nothing compiles here: what it calls of the header, what it reads of an answer, what is in it.

Its C target is compiled for Apple's processors as SwiftPM does, without an option of ours.
"""

import re
import subprocess
import sys

import pytest

import kerasbert
from kerasbert.mobile.native import android, build, swift
from tests.mobile.native.tools import compiler

HEADER = re.sub(r"/\*.*?\*/|//.*", "", (build.FOLDER / "kerasbert.h").read_text(), flags=re.DOTALL)
SOURCES = {path.name: path.read_text() for path in (swift.FOLDER / "Sources").rglob("*.swift")}
CODE = re.sub(r"//.*", "", "\n".join(SOURCES.values()))
CLASSES = (
    "Classifier",
    "Tagger",
    "QuestionAnswerer",
    "Embedder",
    "Regressor",
    "Chooser",
    "MaskFiller",
    "Writer",
    "Index",
)
# Java's name -> Swift's; a range has both ends
RENAMED = {"truncated": "isTruncated", "chosen": "isChosen", "start": "range", "end": "range"}


def inner(text: str, at: int, brackets: str = "()") -> str:
    """What stands between the bracket at `at` and the one that closes it."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == brackets[0]) - (text[place] == brackets[1])
        if depth == 0:
            return text[at + 1 : place]
    raise AssertionError(text[at : at + 80])


def parts(text: str) -> list[str]:
    """Arguments: what commas divide that stand in no brackets."""
    found, depth = [""], 0
    for each in text:
        depth += (each in "([{") - (each in ")]}")
        if each == "," and depth == 0:
            found.append("")
        else:
            found[-1] += each
    return [each.strip() for each in found if each.strip()]


def functions() -> dict[str, int]:
    """Functions of the header and their numbers of arguments."""
    found = {
        match[1]: inner(HEADER, match.end() - 1)
        for match in re.finditer(r"^KB_API [^;(]*?\b(kb_\w+)\(", HEADER, re.MULTILINE)
    }
    return {name: 0 if arguments == "void" else len(parts(arguments)) for name, arguments in found.items()}


def structs() -> dict[str, list[str]]:
    """Structs of the header and the names of their fields."""
    found = {}
    for match in re.finditer(r"typedef struct (kb_\w+) \{", HEADER):
        lines = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", inner(HEADER, match.end() - 1, "{}")).split(";")
        found[match[1]] = [name for line in lines for name in re.findall(r"(\w+)(?:\[\d+\])?\s*(?:,|$)", line)]
    return found


def test_every_call_has_the_arguments_of_the_header():
    known, fields, called = functions(), structs(), set()
    for match in re.finditer(r"\b(kb_\w+)\(", CODE):
        arguments = parts(inner(CODE, match.end() - 1))
        if match[1] in known:
            called.add(match[1])
            assert len(arguments) == known[match[1]], CODE[match.start() : match.start() + 150]
        else:  # a struct, empty or with all its fields
            assert [each.partition(":")[0] for each in arguments] in ([], fields[match[1]]), match[0]
    names = set(re.findall(r"\bkb_\w+\b", CODE))
    assert names - known.keys() - fields.keys() == {"kb_status", "kb_listener"}
    assert set(re.findall(r"\bKB_\w+\b", CODE)) <= set(re.findall(r"\bKB_\w+\b", HEADER))
    runner = {name for name in known if name.startswith("kb_runner_")} - {"kb_runner_open_bytes"}
    assert called >= runner | {
        "kb_index_open_file",
        "kb_index_nearest",
        "kb_index_count",
        "kb_index_close",
        "kb_model_close",
    }


def test_every_field_of_an_answer_is_read():
    fields = structs()
    for name, unread in (("kb_result", set()), ("kb_span", {"codes", "units"}), ("kb_label", set()), ("kb_hit", set())):
        read = set(re.findall(r"\b(?:from|result)\.(\w+)", CODE))
        assert set(fields[name]) - read == unread, name


@pytest.mark.parametrize("name", [*CLASSES, "Label", "Span", "Settings", "CoreException"])
def test_the_classes_are_those_of_java(name):
    """Each has the public fields and methods of Java's, by its own names."""
    java = (android.JAVA / "org" / "kerasbert" / f"{name}.java").read_text()
    name = {"CoreException": "CoreError"}.get(name, name)
    match = re.search(rf"public (?:final class|struct) {name}\b[^{{]*\{{", CODE)
    assert match is not None
    ours = inner(CODE, match.end() - 1, "{}")
    named = r"public final [\w<>\[\]]+ (\w+);|public (?:synchronized )?[\w<>\[\].]+ (\w+)\((?!\w+\.\.\.)"
    theirs = {field or method for field, method in re.findall(named, java)} - {"close", "toString", name, "size"}
    assert theirs
    declared = set(re.findall(r"\b(?:let|func|case) (\w+)", ours)) | set(
        re.findall(r"[\w]+(?=[,:])", "\n".join(re.findall(r"var .*", ours)))
    )
    renamed = RENAMED | {"unsupported": "isUnsupported", "cancelled": "isCancelled"}
    if name == "Classifier":
        renamed = {**renamed, "chosen": "chosen"}
    assert {renamed.get(each, each) for each in theirs} <= declared


def test_the_package_is_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["swift", "--out", str(tmp_path / "package")])
    assert swift.main() == 0
    assert re.fullmatch(r".*package: \d+ kB\n", capsys.readouterr().out)
    folder = tmp_path / "package"
    core = folder / "Sources" / "CKerasbert"
    assert {path.name for path in (core / "include").iterdir()} == {"kerasbert.h", "module.modulemap"}
    assert {path.name for path in core.glob("*.[ch]")} == {path.name for path in build.FOLDER.glob("*.[ch]")} - {
        "kerasbert.h"
    }
    targets = set(re.findall(r'\.target\(name: "(\w+)"', (folder / "Package.swift").read_text()))
    assert targets == {path.name for path in (folder / "Sources").iterdir()}
    assert f'KB_RELEASE "{kerasbert.__version__}"' in (core / "include" / "kerasbert.h").read_text()
    assert "public let release = KB_RELEASE" in SOURCES["Runner.swift"]
    assert swift.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.native
def test_the_c_target_compiles_without_an_option(tmp_path):
    """Its numbers are Python's: nothing is multiplied and added in one step, as Apple's compiler would of itself."""
    compiler()
    core = swift.write(tmp_path / "package") / "Sources" / "CKerasbert"
    fused = 0
    for source in sorted(core.glob("*.c")):
        line = [
            *build.zig(),
            "-target",
            "aarch64-macos",
            "-O2",
            "-S",
            "-Wno-unused-command-line-argument",
            f"-I{core / 'include'}",
            "-o",
            tmp_path / "x.s",
            source,
        ]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "warning" not in done.stderr, done.stderr[-2000:]
        fused += len(
            re.findall(r"^\s*fn?m(?:add|sub|la|ls)\w*\s", (tmp_path / "x.s").read_text("latin-1"), re.MULTILINE)
        )
    assert fused == 0
