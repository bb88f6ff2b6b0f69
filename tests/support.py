"""What tests share: paths of the data beside the project, fresh processes, tiny models."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared(path: str) -> Path:
    """A file or folder of the data beside the project; the test is skipped where it is absent."""
    found = ROOT.parent / "shared" / path
    if not found.exists():
        pytest.skip(f"needs ../shared/{path}")
    return found


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
    if check:
        assert done.returncode == 0, (
            f"{arguments} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """What plug-ins register within is forgotten afterwards."""
    from kerasbert import answers, inputs, registry
    from kerasbert.tasks import base

    registry.families(), registry.objectives(), registry.tasks()
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
