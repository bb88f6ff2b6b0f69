"""The answers of a table are kept as they are made: a run that is killed goes on where it was, and ends with the same file.

Beside `--out` lies `.STEM.DIGEST.partial`, whose first line says of what the answers are (the digest is of that), and each
other line is a row's: its number from 0, whether its text was truncated, the fields of its answer. It is appended to and
flushed after each batch; a line that was cut is dropped.
"""

import array
import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.storage import aside, files
from kerasbert.storage.json_view import JsonMap

FORMAT = "answers"
END = ".partial"
TAKEN = 1024  # rows of another run's that are copied at once


class Journal:
    """The answers of a table so far.

    Args:
        out: path of the file to be.
        about: json values by name that the answers depend on.
        count: int, rows of the table.
        same: what another run's answers are of -> how many of its first rows are those of this table, in the same batches.

    Attributes:
        path: of the file. kept: int, rows that an earlier run answered. others: names of what differs -> the partial file,
            of what other runs left for the same `out`.

    Raises:
        InputError: another process writes it, or the folder cannot be written.
    """

    def __init__(
        self,
        out: str | os.PathLike,
        about: Mapping[str, object],
        count: int,
        same: Callable[[JsonMap], int] = lambda head: 0,
    ) -> None:
        out = Path(out)
        head = json.dumps({FORMAT: 1, **about}, sort_keys=True)
        digest = hashlib.sha256(head.encode()).hexdigest()[:12]
        self.path = out.with_name(f".{out.stem}.{digest}{END}")
        self.places = array.array("q", [-1]) * count
        self.others = {path: _differ(found, about) for path, found in _left(out) if path != self.path}
        with files.writing(out):
            self._made = files.make(out.parent)
            self.file = open(self.path, "a+b")  # noqa: SIM115 (it is open while the table is answered)
        try:
            files.lock(self.file, f"another process answers the same table into {self.path}")
            self._read(f"{head}\n".encode())
            for path, found in _left(out):
                if self.others.get(path) == ["data"]:
                    self._take(path, same(found))
        except BaseException:
            self.close()
            raise
        self.kept = sum(place >= 0 for place in self.places)

    def _read(self, head: bytes) -> None:
        """Find the rows that are there; what is behind the last whole line goes."""
        self.file.seek(0)
        whole = 0
        for line in self.file:
            if not whole and not head.startswith(line):
                raise InputError(
                    f"{self.path} is in the way and was not written here: move it, or choose another --out"
                )
            if not line.endswith(b"\n"):
                break
            if whole:
                try:
                    number = json.loads(line)[0]
                    self.places[number] = whole
                except (ValueError, IndexError, TypeError, KeyError):
                    break
            whole += len(line)
        self.file.truncate(whole)
        self.file.seek(whole)
        if not whole:
            self._append(head)

    def _take(self, path: Path, most: int) -> None:
        """Copy the answers of the first rows that another run left."""
        with path.open("rb") as file, contextlib.suppress(ValueError, IndexError, TypeError):  # a damaged end
            file.readline()
            rows = (json.loads(line) for line in file)
            wanted = (row for row in rows if row[0] < most and row[0] not in self)
            while part := list(itertools.islice(wanted, TAKEN)):
                self.add([row[0] for row in part], [row[1:] for row in part])

    def _append(self, content: bytes) -> None:
        with files.writing(self.path):
            self.file.write(content)
            self.file.flush()

    def __contains__(self, number: int) -> bool:
        return self.places[number] >= 0

    def add(self, numbers: Sequence[int], answers: Iterable[Sequence[object]]) -> None:
        """Keep the answers of a batch: whether each text was truncated, and the answer's fields."""
        lines = [
            json.dumps([number, *answer]).encode() + b"\n" for number, answer in zip(numbers, answers, strict=True)
        ]
        place = self.file.seek(0, os.SEEK_END)
        self._append(b"".join(lines))
        for number, line in zip(numbers, lines):
            self.places[number] = place
            place += len(line)

    def answer(self, number: int) -> tuple[bool, list[object]] | None:
        """What was kept of a row, None of one without text."""
        if self.places[number] < 0:
            return None
        self.file.seek(self.places[number])
        _, truncated, values = json.loads(self.file.readline())
        return truncated, values

    def close(self, done: bool = False) -> None:
        """Leave the file; delete it, and what other runs left for the same place, where the table is written."""
        if done:
            with contextlib.suppress(OSError):
                self.path.unlink()
            for path in self.others:
                aside.remove_left(path)
            files.unmake(self._made)  # of a table that was not written
        with contextlib.suppress(OSError):  # what a full disk did not take was told
            self.file.close()


def _left(out: Path) -> list[tuple[Path, JsonMap]]:
    """The partial files of a place, and their first lines; others' files of such names are none."""
    found = []
    for path in sorted(out.parent.glob(f".*{END}")) if out.parent.is_dir() else ():
        if path.name.rpartition(".")[0].rpartition(".")[0] != f".{out.stem}":
            continue
        try:
            with path.open("rb") as file:
                head = json.loads(file.readline(2**20))
        except (OSError, ValueError):
            continue
        if isinstance(head, dict) and head.get(FORMAT) == 1:
            found.append((path, head))
    return found


def _differ(head: Mapping[str, object], about: Mapping[str, object]) -> list[str]:
    told = json.loads(json.dumps(about))
    return [name for name in about if head.get(name) != told[name]]
