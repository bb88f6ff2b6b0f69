"""Files appear whole or not at all: written beside their place, synced, then renamed."""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from kerasbert.errors import InputError
from kerasbert.storage import locks, places
from kerasbert.storage.aside import ASIDE, Aside, make, shown, sweep, sync, unmake

__all__ = [
    "check_free",
    "digest",
    "kept",
    "lock",
    "make",
    "new_directory",
    "new_file",
    "new_version",
    "next_version",
    "sha256",
    "sweep",
    "sync",
    "unmake",
    "write_atomic",
    "write_json",
    "writing",
]


NOT_WRITTEN = "cannot write {}: {}. {} another place"
NOWHERE = "No usable temporary directory"
REFUSALS = [os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)]


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """What a disk refuses within becomes one line about `path`, however the library that writes calls it.

    Raises:
        InputError: it is full, is read only, or fails.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        told = error.strerror or str(error) if isinstance(error, OSError) else refusal(error)
        if told is None:
            raise
        advice = "Free space or choose" if told in REFUSALS else "Choose"
        raise InputError(temporary(error) or NOT_WRITTEN.format(shown(os.fspath(path)), told, advice)) from error


def refusal(error: BaseException) -> str | None:
    """What a disk said, however the library that writes calls it; None of another error."""
    return next((known for known in REFUSALS if known in str(error)), None)


def temporary(error: BaseException) -> str | None:
    """The line of what a disk refused of files that a library writes for a while; None of another error."""
    if NOWHERE in str(error):  # tempfile's own, which looked for a place
        tried = str(error).rpartition(" in ")[2]
        return f"no folder for temporary files can be written, of {tried}: free space there or name another by TMPDIR"
    if (told := refusal(error)) is None:
        return None
    place = tempfile.gettempdir()
    if not re.search(rf"{re.escape(place)}/(tmp|kerasbert-temporary\.)\w{{8}}\b", str(error)):
        return None
    return f"cannot write temporary files in {place}: {told}. Free space there or name another place by TMPDIR"


@contextlib.contextmanager
def kept(place: str | os.PathLike) -> Iterator[None]:
    """What a disk refuses within is told with where that lies which the same command goes on with."""
    try:
        yield
    except Exception as error:
        said = temporary(error) or str(error)
        refused = refusal(error) is not None or isinstance(error.__cause__, OSError)
        if "the same command goes on" in said or not refused:
            raise
        raise InputError(f"{said}. What was made is kept in {place}: the same command goes on") from error


def write_atomic(path: str | os.PathLike, data: bytes | str) -> None:
    """Write a whole file: a reader sees the old content or the new, never a part.

    Raises:
        InputError: the disk is full, the folder cannot be written, a folder or device is there; nothing is left behind.
    """
    with new_file(path) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


def _is_other(path: Path) -> bool:
    """Whether a folder, device or pipe has the name; in one look, since another process may delete what is there."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def new_file(path: str | os.PathLike) -> Iterator[Path]:
    """A path to write beside `path`; what was written there becomes `path` when the block ends without an error.

    Raises:
        InputError: the disk is full, the folder cannot be written, a folder or device is there; nothing is left behind.
    """
    path = Path(os.path.realpath(path))  # of a link the file that it leads to
    part, made = None, list[Path]()
    try:
        with writing(path):
            if _is_other(path):
                raise InputError(f"{path} is no file, expected one to write. Choose another place")
            made = make(path.parent)
            part = Aside(path, folder=False)
            yield part.new
            sync(part.new)
            part.put()
            made = []
    finally:
        if part is not None:
            part.discard()
        unmake(made)


def lock(file: IO[bytes], told: str) -> None:
    """Keep an open file for this process, until it is closed.

    Args:
        told: str, the beginning of the error where another process has it.
    """
    if locks.lock(file.fileno()) is False:
        raise InputError(f"{told}: wait for it, or choose another --out")


def sha256(path: str | os.PathLike, most: int | None = None) -> str:
    """The hash of a file's content, or of its first bytes, in hexadecimal."""
    with open(path, "rb") as file:
        if most is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha256()
        while most > 0 and (part := file.read(min(most, 1 << 20))):
            found.update(part)
            most -= len(part)
        return found.hexdigest()


def digest(*paths: str | os.PathLike | None) -> list[str]:
    """Of each model directory or file what tells it from another: its weights, settings and tokenizer."""
    found = []
    for path in (Path(path) for path in paths if path is not None):
        if not path.is_dir():
            found.append(sha256(path) if path.is_file() else str(path))
            continue
        every = {*path.glob("*"), *path.glob("tokenizer/*"), *path.glob("*/*.json")}
        held = sorted(file for file in every if not ASIDE.fullmatch(file.name))  # what somebody else writes there
        lines = [f"{file.relative_to(path).as_posix()} {sha256(file)}\n" for file in held if file.is_file()]
        found.append(hashlib.sha256("".join(lines).encode()).hexdigest())
    return found


def write_json(path: str | os.PathLike, value: object) -> None:
    """Write `value` as indented json, atomically."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def check_free(
    path: str | os.PathLike, replace: bool = False, inputs: Iterable[str | os.PathLike] = (), *, claim: bool = True
) -> None:
    """Refuse a place for a directory that holds something already, unless that is ours and to be replaced.

    Args:
        inputs: what is read, in whose place nothing is written.
        claim: bool, keep it for the call that asks; not where another one that wants it takes the next instead.
    """
    places.check_folder(path, replace, inputs, claim=claim)


@contextlib.contextmanager
def new_directory(path: str | os.PathLike, replace: bool = False, *, inside: bool = False) -> Iterator[Path]:
    """A directory that appears at `path` only when the block ends without an error.

    Args:
        replace: bool, put it in the place of an existing directory of ours; else an existing, non-empty one is an error.
        inside: bool, whether it is a part of a directory of ours: then it bears no mark of its own.
    """
    real = Path(os.path.realpath(path)) if inside else places.check_folder(path, replace)

    def put(new: Aside) -> None:
        if not inside and replace:
            places.check_folder(path, replace)  # again: it may have taken hours
        new.put(replace)

    with _folder(path, real, put, mark=not inside) as new:
        yield new.new


@contextlib.contextmanager
def new_version(base: str | os.PathLike) -> Iterator[Aside]:
    """A directory in `base` that appears only when the block ends without an error, named by the number that is next then.

    Of what it gives `new` is where it is written, and `path` is its place, another one where somebody else took that meanwhile.
    """
    real = places.check_folder(next_version(base), claim=False)

    def put(new: Aside) -> None:
        while True:
            new.path = next_version(real.parent)
            try:
                return new.put()
            except InputError:
                if not os.path.lexists(new.path):
                    raise

    with _folder(base, real, put) as new:
        yield new


def next_version(base: str | os.PathLike) -> Path:
    """The place of the number after those by which anything in `base` is named."""
    numbers = [int(each.name) for each in Path(base).glob("*") if re.fullmatch("[0-9]{1,18}", each.name)]
    return Path(base) / str(1 + max(numbers, default=0))


@contextlib.contextmanager
def _folder(path: str | os.PathLike, real: Path, put: Callable[[Aside], None], mark: bool = True) -> Iterator[Aside]:
    """A directory beside `real` that `put` gives its name when the block ends without an error.

    Args:
        path: what an error calls it. mark: bool, whether it bears a mark of ours.
    """
    new, made = None, list[Path]()
    try:
        with writing(path):
            made = make(real.parent)
            new = Aside(real, folder=True)
            yield new
            if mark:
                places.mark(new.new)
            for file in sorted(new.new.rglob("*")):
                sync(file)
            sync(new.new)
            put(new)
            made = []
    finally:
        if new is not None:
            new.discard()
        unmake(made)
