"""The Android library: the Gradle project and the AAR, whose classes and x86-64 library answer here as Python does."""

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import kerasbert
from kerasbert.errors import InputError
from kerasbert.mobile.native import android, build
from kerasbert.mobile.runtime import load
from tests.mobile.native import script
from tests.mobile.native.networks import network
from tests.mobile.native.runners import litert
from tests.mobile.native.test_targets import follow
from tests.mobile.native.tools import compiler, needed
from tests.support import ROOT

HERE = ROOT / "tests/mobile/native"
ANDROID = "{http://schemas.android.com/apk/res/android}"
TEXTS = ["the happy cat 😀 sees a dog", "Zoë hat عبد الله in 東京 gesehen", "a\u0301 dog sees THE cat"]
# what the sample calls of Android, without what it does
STUBS = {
    "app.Activity": """public class Activity extends android.content.Context {
        protected void onCreate(android.os.Bundle state) {}
        protected void onDestroy() {}
        public void setContentView(android.view.View view) {} }""",
    "content.Context": "public class Context { public android.content.res.AssetManager getAssets() { return null; } }",
    "content.res.AssetManager": "public class AssetManager { public AssetFileDescriptor openFd(String n) { return null; } }",
    "content.res.AssetFileDescriptor": """public class AssetFileDescriptor implements java.io.Closeable {
        public void close() {}
        public java.io.FileDescriptor getFileDescriptor() { return null; }
        public long getStartOffset() { return 0; }
        public long getDeclaredLength() { return 0; } }""",
    "os.Bundle": "public class Bundle {}",
    "view.View": """public class View {
        public interface OnClickListener { void onClick(View view); }
        public void setOnClickListener(OnClickListener listener) {}
        public void setFitsSystemWindows(boolean fits) {} }""",
    "widget.TextView": """public class TextView extends android.view.View {
        public TextView(android.content.Context context) {}
        public CharSequence getText() { return null; }
        public final void setText(CharSequence text) {} }""",
    "widget.Button": """public class Button extends TextView {
        public Button(android.content.Context context) { super(context); } }""",
    "widget.EditText": """public class EditText extends TextView {
        public EditText(android.content.Context context) { super(context); }
        @Override public android.text.Editable getText() { return null; } }""",
    "text.Editable": "public interface Editable extends CharSequence {}",
    "widget.LinearLayout": """public class LinearLayout extends android.view.View {
        public static final int VERTICAL = 1;
        public LinearLayout(android.content.Context context) {}
        public int getOrientation() { return 0; }
        public void setOrientation(int orientation) {}
        public void addView(android.view.View view) {} }""",
}


def names(folder: Path) -> set[str]:
    """The files of a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_project_is_whole(tmp_path, capsys, monkeypatch):
    """Every source is in it once, CMake's paths hold, and the sample depends on the library."""
    monkeypatch.setattr("sys.argv", ["android", "--out", str(tmp_path / "project")])
    assert android.main() == 0
    assert re.fullmatch(r".*project: \d+ kB\n", capsys.readouterr().out)
    main = tmp_path / "project" / "kerasbert" / "src" / "main"
    files = names(main)
    cpp = {
        f"cpp/{path.name}"
        for path in build.FOLDER.iterdir()
        if path.suffix in (".c", ".h", ".hpp") or path.name == "CMakeLists.txt"
    }
    java = {f"java/{path.relative_to(android.JAVA).as_posix()}" for path in android.JAVA.rglob("*.java")}
    kotlin = {"kotlin/org/kerasbert/Coroutines.kt", "AndroidManifest.xml", "prefab/kerasbert.h", "prefab/kerasbert.hpp"}
    assert files == cpp | java | kotlin | {"cpp/java/jni.c"}
    gradle = (main.parents[1] / "build.gradle.kts").read_text()
    header = re.search(r"file\(\"(.*?)\"\)\.readText", gradle)
    assert header is not None
    assert f'KB_RELEASE "{kerasbert.__version__}"' in (main.parents[1] / header[1]).read_text()
    for path in re.findall(r'(?:file\(|headers = )"(.*?)"', gradle):
        assert (main.parents[1] / path).exists(), path
    assert f"minSdk = {android.LEAST} " in gradle
    sample = tmp_path / "project" / "sample"
    assert 'implementation(project(":kerasbert"))' in (sample / "build.gradle.kts").read_text()
    activity = xml.parse(sample / "src/main/AndroidManifest.xml").find("application/activity")
    assert activity is not None
    assert (sample / "src/main/kotlin/org/kerasbert/sample" / f"{activity.get(f'{ANDROID}name')[1:]}.kt").is_file()


def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "old.aar").write_bytes(b"")
    monkeypatch.setenv("KOTLINC", "no-such-compiler")
    for out, said in (
        ("old.aar", "old.aar exists, expected a new file or --overwrite"),
        ("new.aar", "no kotlinc, which the AAR is made with: npm install kotlin-compiler"),
    ):
        monkeypatch.setattr("sys.argv", ["android", "--out", str(tmp_path / out)])
        assert android.main() == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert names(tmp_path) == {"old.aar"}
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_bytes(b"")
    with pytest.raises(InputError, match="folder"):
        android.project(tmp_path / "folder", overwrite=True)


class Unpacked(NamedTuple):
    """The AAR's folder, and Kotlin's compiler with its libraries."""

    folder: Path
    kotlinc: str
    path: str


@pytest.fixture(scope="module")
def aar(tmp_path_factory) -> Unpacked:
    """The AAR, made by one call and unpacked."""
    compiler()
    kotlinc, _, _ = needed(os.environ.get("KOTLINC", "kotlinc"), "javac", "java")
    folder = tmp_path_factory.mktemp("aar")
    made = android.aar(folder / "kerasbert.aar")
    zipfile.ZipFile(made).extractall(folder / "unpacked")
    sizes = {info.filename: info.compress_size for info in zipfile.ZipFile(made).infolist()}
    print(f"\nAAR of {made.stat().st_size / 1e3:.0f} kB, classes.jar {sizes['classes.jar'] / 1e3:.0f} kB", end="")
    print(
        *(
            f", {abi} {(folder / 'unpacked/jni' / abi / 'libkerasbert.so').stat().st_size / 1e3:.0f} kB"
            for abi in android.ABIS
        )
    )
    libraries = Path(kotlinc).resolve().parents[1] / "lib"
    jars = [
        folder / "unpacked/classes.jar",
        *(libraries / f"{name}.jar" for name in ("kotlin-stdlib", "kotlinx-coroutines-core-jvm")),
    ]
    return Unpacked(folder / "unpacked", kotlinc, os.pathsep.join(map(str, jars)))


@pytest.mark.native
def test_the_aar_is_laid_out_by_its_rules(aar):
    found = names(aar.folder)
    libraries = {
        f"{place}/libkerasbert.so"
        for abi in android.ABIS
        for place in (f"jni/{abi}", f"prefab/modules/kerasbert/libs/android.{abi}")
    }
    module = {
        f"prefab/modules/kerasbert/{name}" for name in ("module.json", "include/kerasbert.h", "include/kerasbert.hpp")
    }
    abis = {f"prefab/modules/kerasbert/libs/android.{abi}/abi.json" for abi in android.ABIS}
    assert (
        found
        == {"AndroidManifest.xml", "classes.jar", "R.txt", "proguard.txt", "prefab/prefab.json"}
        | libraries
        | module
        | abis
    )
    manifest = xml.parse(aar.folder / "AndroidManifest.xml").getroot()
    least = manifest.find("uses-sdk")
    assert least is not None
    assert (manifest.get("package"), least.get(f"{ANDROID}minSdkVersion")) == ("org.kerasbert", str(android.LEAST))
    assert json.loads((aar.folder / "prefab/prefab.json").read_text())["version"] == kerasbert.__version__
    for abi in android.ABIS:
        about = json.loads((aar.folder / f"prefab/modules/kerasbert/libs/android.{abi}/abi.json").read_text())
        assert (about["abi"], about["api"]) == (abi, android.LEAST)
        assert len({(aar.folder / name).read_bytes() for name in libraries if abi in name}) == 1
    kept = re.findall(r"class ([\w.]+)", (aar.folder / "proguard.txt").read_text())
    classes = set(zipfile.ZipFile(aar.folder / "classes.jar").namelist())
    assert {f"{name.replace('.', '/')}.class" for name in kept} <= classes
    named = set(re.findall(r'FindClass\(env, "(org/kerasbert/\w+)"', (android.JAVA / "jni.c").read_text()))
    assert named <= {name.replace(".", "/") for name in kept}
    assert {"org/kerasbert/CoroutinesKt.class", "META-INF/kerasbert.kotlin_module"} <= classes


@pytest.mark.native
@pytest.mark.parametrize("abi", android.ABIS)
def test_a_library_asks_for_android_alone(abi, aar):
    """Its name, its libraries, pages of 16 KiB, and functions that Android has."""
    (readelf,) = needed("readelf")
    said = subprocess.run(
        [readelf, "-hdlW", "--dyn-syms", aar.folder / "jni" / abi / "libkerasbert.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {"arm64-v8a": "AArch64", "armeabi-v7a": "Machine:                           ARM\n", "x86_64": "X86-64"}[
        abi
    ] in said
    assert re.findall(r"soname: \[(.*)\]", said) == ["libkerasbert.so"]
    assert re.findall(r"NEEDED.*\[(.*)\]", said) == [*android.CALLED]
    assert set(re.findall(r"LOAD .* (0x\w+)$", said, re.MULTILINE)) == {"0x4000"}
    symbols = {
        (words[6], words[7])
        for line in said.splitlines()
        if len(words := line.split()) == 8 and words[0][:-1].isdigit()
    }
    assert {name for place, name in symbols if place == "UND"} <= set(" ".join(android.CALLED.values()).split())
    assert {name for place, name in symbols if place != "UND"} >= {*build.exported(), "Java_org_kerasbert_Core_version"}


def named(folder: Path, gcc: str) -> None:
    """Write a processor's own C library under the names that Android has for it."""
    (folder / "x.c").write_text(
        "extern int *__errno_location(void);\nint *__errno(void) { return __errno_location(); }\n"
    )
    for name, real in (("libc.so", "c"), ("libm.so", "m"), ("libdl.so", "dl")):
        flags = ["-shared", "-fPIC", f"-Wl,-soname,{name}", "-Wl,--no-as-needed", f"-l{real}"]
        subprocess.run([gcc, "-o", folder / name, folder / "x.c", *flags], check=True)


EMULATED = {"arm64-v8a": ("aarch64-linux-gnu", "qemu-aarch64"), "armeabi-v7a": ("arm-linux-gnueabi", "qemu-arm")}


@pytest.mark.native
@pytest.mark.parametrize("abi", EMULATED)
def test_an_arm_library_under_qemu(abi, aar, tmp_path):
    """Ids, offsets, rows and answers of Python by what is in the AAR; a file that it maps."""
    target, emulator = EMULATED[abi]
    gcc, qemu = needed(f"{target}-gcc", emulator)
    named(tmp_path, gcc)
    library, program = aar.folder / "jni" / abi, tmp_path / "driver"
    flags = [
        "-D_POSIX_C_SOURCE=200809L",
        f"-I{build.FOLDER}",
        f"-L{library}",
        "-lkerasbert",
        "-Wl,--allow-shlib-undefined",
    ]
    subprocess.run([gcc, "-O2", "-o", program, HERE / "driver.c", *flags], check=True)
    libraries = f"LD_LIBRARY_PATH={library}:{tmp_path}"
    command = [qemu, "-L", f"/usr/{target}", "-E", libraries, program]
    follow(command, list(script.parts(1_000, 20)))
    (tmp_path / "x.tflite").write_bytes(b"no model")
    for path, wanted in (
        (tmp_path / "x.tflite", "carries no readable bundle"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
    ):
        line = f"runner 0 {script.word(str(path))} {script.word('libLiteRt.so')}\n"
        said = subprocess.run(command, input=line, capture_output=True, encoding="utf-8", timeout=60)
        assert wanted in said.stdout


@pytest.fixture(scope="module")
def kotlin(aar, tmp_path_factory) -> list:
    """The command of Asked.kt over the AAR's classes and its x86-64 library; Android's libraries are names of this machine's."""
    folder = tmp_path_factory.mktemp("kotlin")
    named(folder, *needed("gcc"))
    sources = [HERE / "Asked.kt", *(android.FOLDER / "sample").rglob("*.kt")]
    for name, source in STUBS.items():
        path = folder / "stubs" / "android" / f"{name.replace('.', '/')}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"package android.{name.rpartition('.')[0]};\n{source}\n")
    (shown,) = re.findall(r"```kotlin\n(val file.*?)```", (ROOT / "mobile/guides/android.md").read_text(), re.DOTALL)
    given = "assets: android.content.res.AssetManager, tagger: Tagger, writer: Writer, text: String"
    page = f"import org.kerasbert.*\nsuspend fun page({given}) {{\n"
    (folder / "Page.kt").write_text(f"{page}{shown}}}\n")
    sources.append(folder / "Page.kt")
    flags = ["-Werror", "-no-stdlib", "-jvm-target", "11", "-cp", aar.path, "-d", folder]
    subprocess.run([aar.kotlinc, *flags, *sources, folder / "stubs"], check=True)
    path = os.pathsep.join([aar.path, str(folder)])
    return [
        "env",
        f"LD_LIBRARY_PATH={folder}",
        "java",
        f"-Djava.library.path={aar.folder / 'jni/x86_64'}",
        "-Xcheck:jni",
        "-cp",
        path,
        "AskedKt",
    ]


def asked(command: list, *arguments: object) -> list[str]:
    """What Asked.kt prints for TEXTS."""
    done = subprocess.run(
        [*command, *arguments, litert()], input="\n".join(TEXTS), capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.native
def test_entities_in_kotlin(kotlin, tmp_path):
    """Coroutines that share a runner; a cancelled one; parts by their ranges."""
    path = network("ner", tmp_path)
    with load(path, cache=False) as python:
        wanted = [answer.to_json()["entities"] for answer in python(TEXTS)]
    assert any(wanted)
    for line, entities in zip(asked(kotlin, "Tagger", path), wanted, strict=True):
        parts = line.split("\t")[:-1]
        assert [*zip(parts[::3], parts[1::3])] == [(each["text"], each["label"]) for each in entities]
        assert [*map(float, parts[2::3])] == pytest.approx([each["score"] for each in entities], abs=1e-6)


@pytest.mark.native
def test_a_text_comes_in_kotlin(kotlin, tmp_path):
    """A Flow's pieces are the text, and leaving it early ends the text."""
    from kerasbert.mobile import compress
    from tests.mobile.generation.test_phone import TEXTS as GIVEN
    from tests.mobile.generation.test_phone import writer
    from tests.mobile.native.test_generation import FAMILIES

    path = tmp_path / "x.tflite"
    compress(writer("gpt2", tmp_path), "float32", path, texts=GIVEN[:8], length=FAMILIES["gpt2"])
    with load(path, cache=False) as python:
        wanted = [python.generate(text).to_json()["text"] for text in TEXTS]
    assert asked(kotlin, "Writer", path) == wanted


@pytest.mark.native
def test_the_java_driver_over_the_aar(aar, kotlin, tmp_path):
    """The AAR's classes are those that the other tests of Java run."""
    javac = shutil.which("javac")
    subprocess.run([javac, "-d", tmp_path, "-cp", aar.path, *HERE.glob("*.java")], check=True)
    command = [*kotlin[:5], "-cp", os.pathsep.join([aar.path, str(tmp_path)]), "Driver"]
    done = subprocess.run(command, input="model 00\n", capture_output=True, text=True, check=True)
    assert "carries no readable bundle" in done.stdout
