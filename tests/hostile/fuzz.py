"""Open mutated files one after the other and count what comes of them."""

import collections
import json
import os
import select
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.hostile.worker import SECONDS
from tests.support import ROOT

OUTCOMES = ("same", "near", "other", "error", "traceback", "nan", "signal", "hang")
NEAR = 1e-3  # a number that differs by less is the same answer


class Worker:
    """A `tests.hostile.worker` that is started again when a file has killed it.

    Args:
        subject: str, a function of `subjects`.
        home: folder that is its home and current directory.
        fork: bool, whether each file is opened in a child; False for what has started threads.
    """

    def __init__(self, subject: str, home: Path, fork: bool = True):
        self.command = [sys.executable, "-m", "tests.hostile.worker", subject, *(["fork"] if fork else [])]
        self.home, self.process, self.fork = home, None, fork

    def __call__(self, path: Path) -> dict[str, Any]:
        """The worker's reply about a file."""
        if self.process is None:
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "HOME": str(self.home)}
            environment.pop("XDG_CACHE_HOME", None)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.process = subprocess.Popen(self.command, cwd=self.home, env=environment, **pipes)
            started = 120.0  # imports
        else:
            started = 0.0
        self.process.stdin.write(json.dumps(str(path)).encode() + b"\n")
        self.process.stdin.flush()
        # a child's own limit is the worker's affair; this one is for a worker without children
        if not select.select([self.process.stdout], [], [], started + (4 if self.fork else 1) * SECONDS)[0]:
            self.close(kill=True)
            return {"hang": f"more than {SECONDS} s"}
        line = self.process.stdout.readline()
        if line.endswith(b"\n"):
            return json.loads(line)
        status = self.process.wait()
        self.close()
        return {"signal": f"status {status}"}

    def close(self, kill: bool = False) -> None:
        """End the process."""
        if self.process is not None:
            if kill:
                self.process.kill()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
            self.process = None


def run(
    subject: str,
    folder: Path,
    good: Path,
    cases: Iterable[tuple[str, str, Callable[[Path], Path]]],
    fork: bool = True,
) -> tuple[dict[str, collections.Counter], list[str]]:
    """Open the good file, then every mutated one.

    Args:
        subject: str, a function of `subjects`.
        folder: empty folder for all that follows.
        good: the file or directory that was mutated.
        cases: (group, name, write): `write` puts the mutated file into a folder and returns its path.
        fork: bool, as of Worker.
    Returns:
        Counter of OUTCOMES by group, and a line about each outcome that is not "same", "near" or "error".
    Raises:
        AssertionError: the good file has no answer, or a file outside of the cases' folder was written or deleted.
    """
    inside, home = folder / "inside/case", folder / "home/user"
    inside.mkdir(parents=True)
    home.mkdir(parents=True)
    for place in (folder, folder / "inside", folder / "home", home):
        (place / "precious.weights").write_text("not to be touched")
    worker = Worker(subject, home, fork)
    try:
        reply = worker(good)
        assert "answer" in reply, reply
        before, expected = snapshot(folder, inside), reply["answer"]
        table: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        lines = []
        for group, name, write in cases:
            reply = worker(write(inside))
            ((outcome, detail),) = reply.items()
            if outcome == "answer":
                outcome = compare(expected, detail)
            table[group][outcome] += 1
            if outcome not in ("same", "near", "error"):
                lines.append(f"{group}: {name}: {outcome}: {str(detail)[:80] if outcome == 'other' else detail}")
        assert snapshot(folder, inside) == before
        return dict(table), lines
    finally:
        worker.close()


def compare(expected: Any, found: Any) -> str:
    """Two answers -> "same", "near" or "other"."""
    if expected == found:
        return "same"
    if isinstance(expected, float) and isinstance(found, float):
        return "near" if abs(expected - found) <= NEAR else "other"
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        parts = [compare(*pair) for pair in zip(expected, found)]
    elif isinstance(expected, dict) and isinstance(found, dict) and list(expected) == list(found):
        parts = [compare(expected[key], found[key]) for key in expected]
    else:
        return "other"
    return "other" if "other" in parts else "near"


def snapshot(folder: Path, without: Path) -> dict[str, tuple[int, int]]:
    """Name, size and checksum of every file below a folder, but for those below another."""
    files = (path for path in folder.rglob("*") if path.is_file() and without not in path.parents)
    return {str(path): (path.stat().st_size, zlib.crc32(path.read_bytes())) for path in sorted(files)}


def shown(table: dict[str, collections.Counter]) -> str:
    """The counts as a table of text."""
    head = f"{'':16}" + "".join(f"{name:>11}" for name in OUTCOMES)
    return "\n".join([head, *(f"{g:16}" + "".join(f"{c[name]:11}" for name in OUTCOMES) for g, c in table.items())])
