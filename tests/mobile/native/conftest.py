"""The C library, compiled once a run; its tests are skipped by name where there is no compiler."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import native
from tests.support import once


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
