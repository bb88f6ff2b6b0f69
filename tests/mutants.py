"""Which slips of the hand the nearest tests notice: `python -m tests.mutants [--of layers text] [-n 10] [--seed 0]`.

A mutant is one changed line of a file of kerasbert/<folder> or mobile/ (`tests.mutating`): another comparison, a boundary moved,
and for or, a constant one off, a returned value dropped. It lives in a temporary copy of the repository. The nearest tests run
there: at most two files of default tests, the most telling first (see `nearest`). A mutant that they do not notice survives; it
is listed with its place. Either a test is missing, or the mutant computes the same: then it stands with the reason in
mutants_equivalent.json and is not drawn again.
"""

import argparse
import ast
import collections
import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutating import Mutant, compiles, mutants

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("layers", "objectives", "text", "tasks", "answers", "checkpoints", "export", "mobile/runtime")
LIGHT = ("answers",)  # folders whose own tests need no TensorFlow: others are not near
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.json")
FILES, SECONDS = 2, 45  # of the nearest tests; seconds of a processor that a file may take
BUSY = 4  # times as long it may take on a machine that does other things


@dataclasses.dataclass(frozen=True)
class Place:
    """A mutant of a file. Attributes: path: str, from the root. mutant: the change."""

    path: str
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.path}:{self.mutant.line}  {self.mutant.change}  in: {self.mutant.old[:90]}"


def equivalents(path: Path = EQUIVALENT) -> set[tuple[str, str, str]]:
    """(file, line, change) of the mutants that compute the same."""
    rows = json.loads(path.read_text())
    assert all(set(row) == {"file", "line", "change", "why"} and row["why"] for row in rows)
    return {(row["file"], row["line"], row["change"]) for row in rows}


def candidates(folder: str) -> list[Place]:
    """All mutants of a folder but the equivalent ones."""
    known, places = equivalents(), []
    for path in sorted((ROOT / ("" if folder.startswith("mobile") else "kerasbert") / folder).glob("*.py")):
        name = str(path.relative_to(ROOT))
        places += [Place(name, mutant) for mutant in mutants(path.read_text())]
    return [place for place in places if (place.path, place.mutant.old, place.mutant.change) not in known]


def _imported(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere."""
    found, package = set(), _dotted(str(path.relative_to(ROOT).with_name("x.py"))).split(".")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: -node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return found


@functools.cache
def _tests() -> dict[str, tuple[set[str], set[str]]]:
    """Test file -> the dotted names that it imports, and all names in it."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        found[str(path.relative_to(ROOT))] = _imported(path), set(re.findall(r"\w+", source))
    return found


@functools.cache
def _uses() -> collections.Counter:
    """How many test files name a name."""
    return collections.Counter(name for _, names in _tests().values() for name in names)


def _default(path: str) -> bool:
    """Whether a file has tests that pytest selects by default."""
    text = (ROOT / path).read_text()
    return not re.search(r"^pytestmark = .*(slow|full|peers|native)", text, re.MULTILINE)


@functools.cache
def _importers() -> dict[str, set[str]]:
    """Dotted module -> the files of kerasbert/ and mobile/ that import it."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for path in sorted([*(ROOT / "kerasbert").rglob("*.py"), *(ROOT / "mobile").rglob("*.py")]):
        for name in _imported(path):
            found[name].add(str(path.relative_to(ROOT)))
    return found


def _dotted(path: str) -> str:
    """The module of a file; mobile/ is imported as kerasbert.mobile."""
    path = f"kerasbert/{path}" if path.startswith("mobile/") else path
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _home(path: str) -> Path:
    """The folder of the tests of a file: that of its package, or of the nearest package above that has one."""
    folder = Path("tests", path.removeprefix("kerasbert/")).parent
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder


@functools.cache
def nearest(path: str) -> tuple[str, ...]:
    """The files of default tests nearest to a source file, the nearest first.

    10 points for the mirror of its path (tests/text/test_bpe.py of text/bpe.py), 4 for another file of that folder whose name
    has the module's or is a part of it, 3 for importing the module, 1 for the same folder, and for each public class or function
    of the module that the test names 2, shared with the other tests that name it. For a file that imports the module, 2 for
    its mirror and a half, shared, for the tests that import it. Less than 1.5 points: not near.
    """
    module, home, stem = _dotted(path), _home(path), Path(path).stem
    light = Path(path).parent.name in LIGHT
    tree = ast.parse((ROOT / path).read_text())
    public = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    importers = _importers()[module]
    importers = [other for other in importers if Path(other).stem != "__init__"] or importers
    mirrors = {str(_home(other) / f"test_{Path(other).name}") for other in importers}
    dotted = {_dotted(other) for other in importers}
    scores = {}
    for test, (imported, names) in _tests().items():
        own = Path(test).stem.removeprefix("test_")
        near = Path(test).parent == home
        score = 1.0 * near + 3 * (module in imported)
        score += 10 * (near and own == stem) or 4 * (near and (own in stem or stem in own))
        score += sum(2 / _uses()[name] for name in public & names)
        score += 2 * (test in mirrors) + 0.5 * len(dotted & imported) / max(1, len(dotted))
        if score >= 1.5 and _default(test) and (near or not light):
            scores[test] = score
    return tuple(sorted(scores, key=lambda test: (-scores[test], test)))


class Bench:
    """A copy of the repository in which mutants are tried, and tests that run there in forks of this process.

    Args:
        folder: an empty one.
        heavy: whether TensorFlow is imported once, here.
    """

    def __init__(self, folder: Path, heavy: bool):
        self.root = folder / "copy"
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self.root / name)
        for name in (
            "numpy",
            "pytest",
            "tokenizers",
            "sentencepiece",
            *(("tensorflow", "tensorflow_text", "keras") if heavy else ()),
        ):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
        self.times: dict[str, float] = {}

    def run(self, tests: tuple[str, ...], seconds: float) -> tuple[int | None, float]:
        """pytest's status of test files, None where they took longer; and the seconds of a processor that they took."""
        output = self.root.parent / "output.txt"
        if not (pid := os.fork()):
            self._child(tests, output)
        end = time.monotonic() + seconds
        while not (ended := os.wait4(pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return None, seconds
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what a test left behind
        return os.waitstatus_to_exitcode(ended[1]), ended[2].ru_utime + ended[2].ru_stime

    def _child(self, tests: tuple[str, ...], output: Path) -> None:
        status = 70
        try:
            os.setsid()
            os.chdir(self.root)
            os.environ |= {"PYTHONPATH": str(self.root), "TF_CPP_MIN_LOG_LEVEL": "3"}
            file = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            for number in (1, 2):
                os.dup2(file, number)
            for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "kerasbert")]:
                del sys.modules[name]
            sys.path[:] = [str(self.root), *(path for path in sys.path if path not in ("", str(ROOT)))]
            import pytest

            temporary = str(self.root.parent / "pytest")
            status = int(pytest.main(["-x", "-q", "-n0", "-pno:cacheprovider", f"--basetemp={temporary}", *tests]))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    def checked(self, tests: tuple[str, ...]) -> list[str]:
        """The first FILES of these tests that pass without a mutant, in time."""
        passing: list[str] = []
        for test in tests[: 2 * FILES]:
            if test not in self.times:
                status, seconds = self.run((test,), BUSY * SECONDS)
                fits = status == 0 and seconds <= SECONDS  # 5: nothing but slow tests in it
                self.times[test] = seconds if fits else 0.0
            if self.times[test]:
                passing.append(test)
            if len(passing) == FILES:
                break
        return passing

    def killer(self, place: Place) -> str:
        """The nearest test file that notices a mutant; "" where none does, "no tests" where none is near."""
        if not (tests := self.checked(nearest(place.path))):
            return "no tests"
        file = self.root / place.path
        source = file.read_text()
        try:
            file.write_text(place.mutant.applied(source))
            for test in tests:
                # the compiled file is told by a time in seconds and a size, which may be the same
                shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)
                if self.run((test,), BUSY * (2 * self.times[test] + 5))[0] != 0:
                    return test
        finally:
            file.write_text(source)
            shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)
        return ""


def drawn(folder: str, count: int, seed: int, only: str = "") -> list[Place]:
    """Mutants of a folder by chance, the same of one seed; `only`: of files whose path has this."""
    places = [place for place in candidates(folder) if only in place.path]
    random.Random(f"{seed} {folder}").shuffle(places)
    good = (place for place in places if compiles(place.mutant.applied((ROOT / place.path).read_text())))
    return list(itertools.islice(good, count))


def main(argv: list[str] | None = None) -> int:
    """Print killed and surviving mutants and a table -> the number of survivors, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--of", nargs="+", choices=FOLDERS, default=FOLDERS, help="folders of kerasbert/")
    parser.add_argument("-n", type=int, default=10, help="mutants of each folder (default 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the paths of the files to change")
    options = parser.parse_args(argv)
    survivors, table = [], []
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        bench = Bench(Path(folder), heavy=not set(options.of) <= set(LIGHT))
        for part in options.of:
            start, killed = time.monotonic(), 0
            places = drawn(part, options.n, options.seed, options.only)
            for place in places:
                test = bench.killer(place)
                killed += (done := test not in ("", "no tests"))
                print(f"{'killed  ' if done else 'SURVIVES'} {place}{'  by ' * bool(test)}{test}", flush=True)
                if not done:
                    survivors.append((place, bench.checked(nearest(place.path))))
            table.append(f"{part:12} {killed:3} of {len(places):3} killed, {time.monotonic() - start:4.0f} s")
    for place, tests in survivors:
        print(f"survivor: {place}\n    not noticed by: {' '.join(tests) or 'no test is near'}")
    print(f"seed {options.seed}", *table, sep="\n")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
