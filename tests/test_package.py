"""What is installed is what is in the tree, and every way to install or run it finds kerasbert.mobile."""

import configparser
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest

from tests import readme
from tests.support import ROOT, python

FIND = "import kerasbert.mobile.runtime, importlib.util as u; print(u.find_spec('kerasbert.mobile.pipeline.compression').origin)"


def config() -> configparser.ConfigParser:
    """setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def tree() -> set[str]:
    """Every Python file of the package as it is installed, the portable core's sources, and the package's data."""
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "kerasbert").rglob("*.py")}
    found |= {f"kerasbert/{path.relative_to(ROOT)}" for path in (ROOT / "mobile").rglob("*.py")}
    native = ROOT / "mobile" / "native"
    for pattern in ("*.[ch]", "*.hpp", "CMakeLists.txt", "browser/*", "java/*.c", "java/org/kerasbert/*.java"):
        found |= {f"kerasbert/{path.relative_to(ROOT)}" for path in native.glob(pattern)}
    for name in ("android", "swift"):
        found |= {f"kerasbert/{path.relative_to(ROOT)}" for path in (native / name).rglob("*") if path.is_file()}
    found |= {"kerasbert/shipped.json", "kerasbert/py.typed", "kerasbert/mobile/py.typed"}
    found |= {f"kerasbert/guides/{path.name}" for path in (ROOT / "kerasbert/guides").iterdir()}
    found |= {f"kerasbert/lab/recipes/{path.name}" for path in (ROOT / "kerasbert/lab/recipes").iterdir()}
    found |= {f"kerasbert/mobile/guides/{path.name}" for path in (ROOT / "mobile/guides").iterdir()}
    for name in ("books", "notebooks"):
        found |= {str(path.relative_to(ROOT)) for path in (ROOT / "kerasbert/quickstart" / name).iterdir()}
    return found


def test_setup_cfg_lists_every_package():
    """A new folder that is not listed would be missing from the wheel."""
    listed = config()["options"]["packages"].split()
    assert sorted({os.path.dirname(name).replace("/", ".") for name in tree() if name.endswith(".py")}) == sorted(
        listed
    )


def test_a_checker_finds_the_types():
    """PEP 561: without `py.typed` in the wheel a user's checker takes everything for Any."""
    data = config()["options.package_data"]
    for folder, package in (("kerasbert", "kerasbert"), ("mobile", "kerasbert.mobile")):
        assert (ROOT / folder / "py.typed").read_text() == ""
        assert "py.typed" in data[package].split(", ")


def test_base_install_needs_numpy_alone():
    """TensorFlow comes with an extra: a phone or a TPU VM brings its own."""
    assert config()["options"]["install_requires"].split() == ["numpy>=1.26"]


def test_python_dash_m_finds_mobile_in_the_tree():
    """`python -m pytest` in a checkout, whatever is installed."""
    assert python("-c", FIND).stdout.strip().startswith(str(ROOT / "mobile"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The tree's files without what building leaves there."""
    folder = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def environment(folder: Path) -> Path:
    """A fresh virtual environment; returns its interpreter."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def call(*command: object, cwd: Path) -> str:
    """Run a command without this process' PYTHONPATH -> stdout."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(copy, tmp_path_factory) -> tuple[Path, Path]:
    """An sdist, and a wheel made from it."""
    folder = tmp_path_factory.mktemp("dist")
    maker = environment(tmp_path_factory.mktemp("maker") / "venv")
    call(maker, "-m", "pip", "install", "-q", "setuptools>=77", cwd=copy)
    backend = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    call(maker, "-c", backend, folder, cwd=copy)
    (sdist,) = folder.glob("*.tar.gz")
    call(maker, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, sdist, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_wheel_and_sdist_hold_everything(built):
    """All Python files, the books, the licence; no tests in the wheel."""
    sdist, wheel = built
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == tree()
    metadata = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" in name]
    assert any(name.endswith("LICENSE") for name in metadata)
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "setup.cfg",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "mobile/cli.py",
        "tests/support.py",
    } <= held


@pytest.mark.slow
def test_wheel_runs_from_anywhere(built, tmp_path):
    """Both console scripts work with numpy alone, and say which extra is missing where one is."""
    interpreter = environment(tmp_path / "venv")
    call(interpreter, "-m", "pip", "install", "-q", built[1], cwd=tmp_path)
    assert "site-packages" in call(interpreter, "-c", FIND, cwd=tmp_path)
    assert "quickstart" in call(interpreter.with_name("kerasbert"), "--help", cwd=tmp_path)
    assert "compress" in call(interpreter.with_name("kerasbert-mobile"), "--help", cwd=tmp_path)
    assert "bert/base" in call(interpreter.with_name("kerasbert"), "list", "models", cwd=tmp_path)
    done = subprocess.run(
        [interpreter.with_name("kerasbert"), "show", "bert/base", "--set", "hidden=1536"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install '.[tensorflow]'" in done.stderr


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("plain", marks=pytest.mark.slow),
        pytest.param("lenient", marks=pytest.mark.full),
        pytest.param("strict", marks=pytest.mark.full),
        pytest.param("compat", marks=pytest.mark.full),
    ],
)
def test_install_of_the_tree_finds_mobile(copy, mode, tmp_path):
    """A plain install and the three editable ones, from elsewhere and with `python -m` in the tree."""
    interpreter = environment(tmp_path / "venv")
    how = ["."] if mode == "plain" else ["-e", ".", "--config-settings", f"editable_mode={mode}"]
    call(interpreter, "-m", "pip", "install", "-q", *how, cwd=copy)
    for place in (tmp_path, copy):
        assert call(interpreter, "-c", FIND, cwd=place).strip().endswith("compression.py")
    assert "usage: " in call(interpreter, "-m", "kerasbert.cli", "--help", cwd=copy)
    assert "compress" in call(interpreter, "-m", "kerasbert.mobile.cli", "--help", cwd=tmp_path)


def interpreter(version: str) -> Path:
    """A working interpreter of that version, from PATH or pyenv; the test is skipped where there is none."""
    folders = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin"))
    for candidate in [*(folder / "python" for folder in folders), shutil.which(f"python{version}")]:
        if candidate and subprocess.run([candidate, "-V"], capture_output=True, check=False).returncode == 0:
            return Path(candidate)
    return pytest.skip(f"needs Python {version}")


@pytest.mark.full
@pytest.mark.parametrize(("version", "source"), [("3.11", "checkout"), ("3.13", "checkout"), ("3.13", "wheel")])
def test_the_readme_in_a_fresh_environment(version, source, copy, built, tmp_path):
    """Install, quickstart, then every block, a process for each command; the seconds of each are printed."""
    venv_folder, clean = tmp_path / "venv", {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    clean |= {"PATH": f"{venv_folder / 'bin'}{os.pathsep}{clean['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    what = ".[mobile]" if source == "checkout" else f"{built[1]}[mobile]"
    for name, command in (
        ("environment", [interpreter(version), "-m", "venv", venv_folder]),
        ("install", ["pip", "install", "-q", what]),
        ("quickstart", ["kerasbert", "quickstart", "--out", tmp_path / "quickstart"]),
        (
            "README",
            [
                "python",
                ROOT / "tests" / "readme.py",
                tmp_path / "readme",
                "README",
                "--shell",
                "--encoder",
                readme.encoder(),
            ],
        ),
    ):
        began = time.monotonic()
        place = copy if name == "install" else tmp_path
        found = [shutil.which(str(command[0]), path=clean["PATH"]), *map(str, command[1:])]
        done = subprocess.run(found, cwd=place, env=clean, capture_output=True, text=True, check=False)
        print(f"{version} {source}: {name} {time.monotonic() - began:.0f} s")
        assert done.returncode == 0, f"{name}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    print("\n".join(line for line in done.stdout.splitlines() if " s  " in line or "not run" in line))


def test_this_python_is_supported():
    """The range that setup.cfg names."""
    assert (3, 11) <= sys.version_info < (3, 14)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> tuple[Path, Path]:
    """An int8 .tflite and what it tests itself by."""
    from kerasbert.mobile import compress
    from tests.mobile.conftest import make_run

    folder = tmp_path_factory.mktemp("classifier")
    paths = folder / "x.tflite", folder / "x.golden"
    compress(make_run(folder / "run"), out=paths[0], golden=paths[1], lengths=[8, 24], min_agreement=0.9)
    return paths


@pytest.mark.full
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_device_extra_installs_alone_and_answers(version, built, classifier, tmp_path):
    """`kerasbert[device]` on a device: no TensorFlow, the same answers; `verify` ends with status 0."""
    from kerasbert.mobile.runtime import load

    call(interpreter(version), "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", f"{built[1]}[device]", cwd=tmp_path)
    installed = call(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).lower()
    assert "ai-edge-litert" in installed or "ai_edge_litert" in installed
    assert not {"tensorflow", "keras", "torch"} & {line.partition("==")[0] for line in installed.splitlines()}
    command = python.with_name("kerasbert-mobile")
    texts = ("a good film", "very bad")
    told = call(command, "run", classifier[0], *texts, "--json", "--no-cache", cwd=tmp_path).splitlines()
    assert [json.loads(line)["label"] for line in told] == [a.label for a in load(classifier[0], cache=False)(texts)]
    assert "the same ids, outputs and answers" in call(command, "verify", *classifier, "--no-cache", cwd=tmp_path)
    timed = call(command, "benchmark", classifier[0], "--rounds", "1", "--no-cache", "--json", cwd=tmp_path)
    assert json.loads(timed)["p50_ms"] > 0
