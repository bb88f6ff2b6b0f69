"""Open mutated files one after the other and count what comes of them."""

import collections
import json
import os
import select
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.hostile.worker import SECONDS, WALL
from tests.support import ROOT

OUTCOMES = ("same", "near", "other", "error", "traceback", "nan", "signal", "hang")
IMPORTS = 120.0  # seconds
BAD = ("traceback", "nan", "signal", "hang")
NEAR = 1e-3  # a number that differs by less is the same answer

Case = tuple[str, str, Callable[[Path], Path]]


class Worker:
    """A `tests.hostile.worker`, started again when a file has killed it, and a folder that is watched.

    Cases are written into `inside`; its home and its current directory is `folder`/home/user.

    Args:
        folder: empty folder.
        fork: bool, whether each file is opened in a child; False for what has started threads.
    """

    def __init__(self, folder: Path, fork: bool = True):
        self.command = [sys.executable, "-m", "tests.hostile.worker", *(["fork"] if fork else [])]
        self.folder, self.inside, self.home = folder, folder / "inside/case", folder / "home/user"
        self.process, self.fork = None, fork
        self.inside.mkdir(parents=True)
        (self.home / "tmp").mkdir(parents=True)
        for place in (folder, folder / "inside", folder / "home", self.home):
            (place / "precious.weights").write_text("not to be touched")

    def __call__(self, subject: str, path: Path) -> dict[str, Any]:
        """The reply about a file: `subject` is a function of `subjects`."""
        if self.process is None:
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "HOME": str(self.home)}
            environment |= {"TMPDIR": str(self.home / "tmp")}
            environment.pop("XDG_CACHE_HOME", None)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.process = subprocess.Popen(self.command, bufsize=0, cwd=self.home, env=environment, **pipes)
        self.process.stdin.write(json.dumps([subject, str(path)]).encode() + b"\n")
        self.process.stdin.flush()
        line = self._line(IMPORTS) and self._line(2 * WALL if self.fork else WALL, None if self.fork else 2 * SECONDS)
        if line is None:
            self.close(kill=True)
            return {"hang": f"more than {WALL} s, or {SECONDS} s of CPU time on each of two cores"}
        if line.endswith(b"\n"):
            return json.loads(line)
        status = self.process.wait()
        self.close()
        return {"signal": f"status {status}"}

    def _line(self, seconds: float, computing: float | None = None) -> bytes | None:
        """The next line, the first of which says that the imports are done; None where it does not come.

        Args:
            seconds: float, to wait at most. computing: float, seconds of CPU time that the process may take meanwhile.
        """
        end, begun = time.monotonic() + seconds, self._computed()
        while time.monotonic() < end and (computing is None or self._computed() - begun < computing):
            if select.select([self.process.stdout], [], [], min(0.5, max(0.0, end - time.monotonic())))[0]:
                return self.process.stdout.readline()
        return None

    def _computed(self) -> float:
        """Seconds of CPU time that the process has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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
    worker: Worker, subject: str, good: Path | Sequence[Path], cases: Iterable[Case]
) -> tuple[dict[str, collections.Counter], list[str]]:
    """Open what is good, then every mutation of it.

    Args:
        worker: Worker. subject: str, a function of `subjects`.
        good: the file or directory that was mutated; more than one where a mutation may also have the answer of another,
            which counts as "near".
        cases: (group, name, write): `write` puts the mutated file into a folder and returns its path.

    Returns:
        Counter of OUTCOMES by group, and a line about each outcome that is not "same", "near" or "error".

    Raises:
        AssertionError: what is good has no answer, or a file outside of the cases' folder was written or deleted.
    """
    expected = []
    for path in [good] if isinstance(good, Path) else good:
        reply = worker(subject, path)
        assert "answer" in reply, reply
        expected.append(reply["answer"])
    before, began = snapshot(worker), time.monotonic()
    table: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    lines, slowest = [], 0.0
    for group, name, write in cases:
        clear(worker.inside)
        path, at = write(worker.inside), time.monotonic()
        ((outcome, detail),) = worker(subject, path).items()
        slowest = max(slowest, time.monotonic() - at)
        if outcome == "answer":
            outcome = compare(expected[0], detail)
            outcome = "near" if outcome == "other" and detail in expected[1:] else outcome
        table[group][outcome] += 1
        if outcome not in ("same", "near", "error"):
            lines.append(f"{group}: {name}: {outcome}: {str(detail)[:80] if outcome == 'other' else detail}")
    clear(worker.inside)
    assert snapshot(worker) == before
    print(f"\n{subject}: {time.monotonic() - began:.0f} s, at most {slowest:.1f} s a case\n{shown(table)}")
    print(*(line for line in lines if ": other: " not in line), sep="\n")
    return dict(table), lines


def clear(folder: Path) -> None:
    """Empty a folder."""
    shutil.rmtree(folder)
    folder.mkdir()


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


def snapshot(worker: Worker) -> dict[str, tuple[int, int]]:
    """Name, size and checksum of every file below a worker's folder, but for the cases and temporary files."""
    without = {worker.inside, worker.home / "tmp"}
    files = (path for path in worker.folder.rglob("*") if path.is_file() and not without.intersection(path.parents))
    return {str(path): (path.stat().st_size, zlib.crc32(path.read_bytes())) for path in sorted(files)}


def shown(table: dict[str, collections.Counter]) -> str:
    """The counts as a table of text."""
    head = f"{'':40}" + "".join(f"{name:>11}" for name in OUTCOMES)
    return "\n".join([head, *(f"{g:40}" + "".join(f"{c[name]:11}" for name in OUTCOMES) for g, c in table.items())])
