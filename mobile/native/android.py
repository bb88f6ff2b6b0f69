"""Write the Android library: `python -m kerasbert.mobile.native.android --out FOLDER`, or `--out FILE.aar`.

FOLDER becomes a Gradle project: the library, which Gradle builds with the NDK, and a sample app. FILE.aar is the library
itself, compiled here without Gradle and NDK: it needs javac, Zig (`pip install ziglang`) and Kotlin's compiler.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import kerasbert
from kerasbert.errors import InputError
from kerasbert.storage.files import new_directory, new_file
from . import build

FOLDER = build.FOLDER / "android"
JAVA = build.FOLDER / "java"
HEADERS = ("kerasbert.h", "kerasbert.hpp")
LEAST = 24
"""API level: java.util.function."""
ABIS = {
    "arm64-v8a": ["aarch64-linux-musl", "-ffixed-x18"],  # which is Android's
    "armeabi-v7a": [
        "arm-linux-musleabi",
        *"-mcpu=generic+v7a+neon -mfloat-abi=softfp -fno-unwind-tables -rtlib=compiler-rt".split(),
    ],
    "x86_64": ["x86_64-linux-musl"],
}
"""What the AAR has: Zig's name of each, and options of its compiler."""
NARROW = """#define _GNU_SOURCE
#include <dlfcn.h>
#undef RTLD_DEFAULT
#undef RTLD_NOW
#define RTLD_DEFAULT ((void *)0xffffffff)
#define RTLD_NOW 0
#define getrlimit getrlimit64
#define lseek lseek64
#define mmap mmap64
"""
"""Android of 32 bits over Zig's headers (musl's), whose off_t and rlim_t have 64 there (bionic's dlfcn.h and libc.map.txt)."""
# what the core calls, by Android's library that has it since API 21: another function does not link
CALLED = {
    "libc.so": "__errno calloc close free getrlimit getrlimit64 lseek lseek64 malloc memchr memcmp memcpy memmove memset mmap "
    "mmap64 munmap open qsort read realloc snprintf strchr strcmp strerror strlen strtod strtol vsnprintf",
    "libm.so": "exp expf log log1pf logf powf sqrt",
    "libdl.so": "dlopen dlsym",
}
JDK = "install a JDK"
COMPILER = "npm install kotlin-compiler, then KOTLINC=node_modules/kotlin-compiler/bin/kotlinc"


def copy(source: Path, out: Path) -> None:
    """A file or a folder with all that is in it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, out, dirs_exist_ok=True) if source.is_dir() else shutil.copyfile(source, out)


def project(out: str | os.PathLike, overwrite: bool = False) -> Path:
    """The Gradle project: `kerasbert`, the library, and `sample`.

    Args:
        out: the directory to write.
        overwrite: bool, whether it takes the place of an earlier one.

    Raises:
        InputError: the directory exists.
    """
    with new_directory(out, overwrite) as folder:
        copy(FOLDER, folder)
        main = folder / "kerasbert" / "src" / "main"
        copy(JAVA / "org", main / "java" / "org")
        for source in (*build.sources(), *build.FOLDER.glob("*.h*"), build.FOLDER / "CMakeLists.txt", JAVA / "jni.c"):
            copy(source, main / "cpp" / source.relative_to(build.FOLDER))
        for name in HEADERS:
            copy(build.FOLDER / name, main / "prefab" / name)
        (folder / "sample" / "src" / "main" / "assets").mkdir()
    return Path(out)


def found(name: str, remedy: str) -> str:
    """A command's path.

    Raises:
        InputError: it is not there.
    """
    path = shutil.which(os.environ.get(name.upper()) or name)
    if path is None:
        raise InputError(
            f"no {name}, which the AAR is made with: {remedy}. `--out FOLDER` writes the Gradle project without"
        )
    return path


def called(*command: object) -> None:
    """Run a compiler.

    Raises:
        InputError: it fails.
    """
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise InputError(f"{Path(str(command[0])).name} failed: {' '.join(said.split())[:300]}")


def classes(folder: Path) -> Path:
    """classes.jar, of the Java classes and the Kotlin functions."""
    kotlinc, out = Path(found("kotlinc", COMPILER)).resolve(), folder / "classes"
    javac = found("javac", JDK)
    called(javac, "--release", "11", "-d", out, *sorted(JAVA.rglob("*.java")))
    libraries = [kotlinc.parents[1] / "lib" / name for name in ("kotlin-stdlib.jar", "kotlinx-coroutines-core-jvm.jar")]
    version = ["-language-version", "2.2", "-api-version", "2.2", "-jvm-target", "11", "-module-name", "kerasbert"]
    path = os.pathsep.join(map(str, [out, *libraries]))
    called(kotlinc, *version, "-no-stdlib", "-cp", path, "-d", out, *sorted((FOLDER / "kerasbert").rglob("*.kt")))
    return packed(out, folder / "classes.jar")


def library(folder: Path, abi: str) -> Path:
    """libkerasbert.so of one of ABIS, linked against the names of Android's libraries alone."""
    folder /= abi
    folder.mkdir()
    target, *more = ABIS[abi]
    zig = [*build.zig(), "-target", target, "-shared", "-nostdlib"]
    for name, functions in CALLED.items():
        lines = [f".globl {each}\n.type {each},%function\n{each}:" for each in functions.split()]
        (folder / "names.s").write_text("\n".join(lines) + "\n", "utf-8")
        called(*zig, f"-Wl,-soname,{name}", "-o", folder / name, folder / "names.s")
    headers = Path(zig[0]).resolve().parent / "lib" / "libc" / "include"
    processor = target.partition("-")[0]
    kinds = (f"{processor}-linux-musl", "generic-musl", f"{processor.partition('_')[0]}-linux-any", "any-linux-any")
    jdk = Path(found("javac", JDK)).resolve().parents[1] / "include"
    flags = [
        "-O2",
        *build.WARNINGS,
        "-fPIC",
        "-s",
        "-fno-builtin-bcmp",
        "-fvisibility=hidden",
        "-ffp-contract=off",
        "-D__errno_location=__errno",
    ]
    (folder / "narrow.h").write_text("#if __SIZEOF_POINTER__ == 4\n" + NARROW + "#endif\n", "utf-8")
    flags += [*more, "-include", str(folder / "narrow.h"), f"-I{build.FOLDER}", f"-I{jdk}", f"-I{jdk / 'linux'}"]
    flags += [word for kind in kinds for word in ("-isystem", str(headers / kind))]
    flags += ["-Wl,-soname,libkerasbert.so", "-Wl,-z,max-page-size=16384", "-Wl,-z,defs"]
    out = folder / "libkerasbert.so"
    called(*zig, *flags, "-o", out, *build.sources(), JAVA / "jni.c", *(folder / name for name in CALLED))
    return out


def packed(folder: Path, out: Path) -> Path:
    """A zip of a folder's files: the same files give the same bytes."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = zipfile.ZipInfo(path.relative_to(folder).as_posix())
            archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out


def prefab(folder: Path, abis: dict[str, Path]) -> None:
    """The C library and its headers, as CMake of an app's own C or C++ finds them."""
    module = folder / "modules" / "kerasbert"
    about = {"schema_version": 2, "name": "kerasbert", "version": kerasbert.__version__, "dependencies": []}
    parts: dict[Path, dict] = {folder / "prefab.json": about, module / "module.json": {"export_libraries": []}}
    for abi in abis:
        said = {"abi": abi, "api": LEAST, "ndk": 21, "stl": "none", "static": False}
        parts[module / "libs" / f"android.{abi}" / "abi.json"] = said
        copy(abis[abi], module / "libs" / f"android.{abi}" / "libkerasbert.so")
    for path, said in parts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said, indent=2) + "\n", "utf-8")
    for name in HEADERS:
        copy(build.FOLDER / name, module / "include" / name)


def aar(out: str | os.PathLike) -> Path:
    """The library as one file.

    Raises:
        InputError: a compiler is not there or fails, or the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as place:
        made, folder = Path(place), Path(place) / "aar"
        folder.mkdir()
        copy(classes(made), folder / "classes.jar")
        abis = {abi: library(made, abi) for abi in ABIS}
        for abi, path in abis.items():
            copy(path, folder / "jni" / abi / path.name)
        prefab(folder / "prefab", abis)
        copy(FOLDER / "kerasbert" / "consumer-rules.pro", folder / "proguard.txt")
        manifest = '<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="org.kerasbert">\n'
        manifest += f'    <uses-sdk android:minSdkVersion="{LEAST}" />\n</manifest>\n'
        (folder / "AndroidManifest.xml").write_text(manifest, "utf-8")
        (folder / "R.txt").write_text("", "utf-8")  # there are no resources
        with new_file(out) as part:
            packed(folder, part)
    return Path(out)


def write(out: Path, overwrite: bool = False) -> Path:
    """The library as one file where `out` has the suffix .aar, else the project.

    Raises:
        InputError: as of both; the file exists and is not to be overwritten.
    """
    if out.suffix != ".aar":
        return project(out, overwrite)
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists, expected a new file or --overwrite")
    return aar(out)


def main() -> int:
    """The command."""
    return build.package("android", __doc__, write, "the folder, or the file of the suffix .aar, to write")


if __name__ == "__main__":
    sys.exit(main())
