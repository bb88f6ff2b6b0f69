"""What the tests of the marker `native` need beside a C compiler; `setup.sh` installs it."""

import os
import shutil
from pathlib import Path

import pytest


def needed(*names: str) -> list[str]:
    """Paths of commands; the test is skipped by the name of the first that is absent."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}: tests/mobile/native/setup.sh")
    return [str(shutil.which(name)) for name in names]


def npm() -> Path:
    """The folder of npm's packages; the test is skipped where there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("KERASBERT_NPM") or cache / "kerasbert" / "npm")
    for name in ("@litertjs/core", "playwright-core"):
        if not (folder / "node_modules" / name).is_dir():
            pytest.skip(f"needs the npm package {name}: tests/mobile/native/setup.sh")
    return folder
