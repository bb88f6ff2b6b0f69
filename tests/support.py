"""What tests share: paths of the data beside the project, fresh processes, tiny models."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import forks

ROOT = Path(__file__).resolve().parent.parent


def often(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters of a test: CI (slow) runs it for those that are kept, one of each sort; the others run by hand (full)."""
    marks = {True: pytest.mark.slow, False: pytest.mark.full}
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=marks[each in kept]) for each in values]


def by_hand(values: Iterable[Any]) -> list[Any]:
    """Further parameters of a slow test, which CI leaves out and `-m full` runs."""
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.full) for each in values]


def shared(path: str) -> Path:
    """A file or folder of the data beside the project; the test is skipped where it is absent."""
    found = ROOT.parent / "shared" / path
    if not found.exists():
        pytest.skip(f"needs ../shared/{path}")
    return found


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """What `make(folder)` writes, made by the first worker of this run that asks; the others wait for it.

    Args:
        factory: pytest's `tmp_path_factory`. name: of the folder.
        make: is called with an empty folder; what it returns must survive json.

    Returns:
        the folder, and what `make` returned.
    """
    import fcntl  # not on Windows

    base = factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    root.mkdir(exist_ok=True)
    folder, done = root / name, root / f"{name}.json"
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed half-way
            folder.mkdir()
            result = json.dumps(make(folder))
            done.write_text(result)
    return folder, json.loads(done.read_text())


def python(*arguments: str, check: bool = True, timeout: float = 600, **env: str) -> subprocess.CompletedProcess:
    """Run this interpreter in a process of its own, from the project's root, without TensorFlow's chatter."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return _checked(done, check)


_forks = forks.Server()
start = _forks.start  # a process as `forked`, which is not waited for


def forked(*arguments: str, check: bool = True, timeout: float = 600, **env: str) -> subprocess.CompletedProcess:
    """The same for what needs TensorFlow in a process of its own: forked from one that has imported it, see `tests.forks`.

    What is tested of imports, of the interpreter's options or of TensorFlow's own start takes `python`.
    """
    child = start(*arguments, **env)
    status = child.wait(timeout)
    said = child.stdout.read_text(), child.stderr.read_text()
    return _checked(subprocess.CompletedProcess([*map(str, arguments)], status, *said), check)


def _checked(done: subprocess.CompletedProcess, check: bool) -> subprocess.CompletedProcess:
    if check:
        assert done.returncode == 0, (
            f"{done.args} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done


class Dribble(io.BytesIO):
    """Gives a few bytes a call, whatever is asked for."""

    def __init__(self, data, count):
        super().__init__(data)
        self.count = count

    def read(self, size=-1):
        return super().read(min(self.count, size) if size >= 0 else self.count)


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """What plug-ins register within is forgotten afterwards."""
    from kerasbert import answers, inputs, registry
    from kerasbert.tasks import base

    for table in (registry.families(), registry.objectives(), registry.tasks()):
        dict(table)  # imports what fills it
    tables = [
        table
        for module in (registry, answers, inputs, base)
        for table in vars(module).values()
        if isinstance(table, MutableMapping)
    ]
    before, modules = [dict(table) for table in tables], set(sys.modules)
    try:
        yield
    finally:
        for table, entries in zip(tables, before, strict=True):
            for name in set(table) - set(entries):
                del table[name]
        for name in set(sys.modules) - modules:
            if name.startswith("kerasbert_plugin_"):
                del sys.modules[name]


def close(found: Any, wanted: Any, share: float = 2e-6) -> None:
    """Assert that two float32 arrays differ by at most that share of the largest number, or of 1: 16 of its last digits.

    A processor sums a product in its own order. A fixed bound of 1e-6 leaves numbers of 4 two digits, and fails elsewhere.
    """
    np.testing.assert_allclose(found, wanted, rtol=0, atol=share * max(1.0, np.abs(wanted).max()))
