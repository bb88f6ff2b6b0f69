"""What is written beside its place until it is whole, and what a kill left of that.

A file or folder NAME is written as `.NAME.TOKEN.kerasbert-new`, locked by the process that writes it: the lock ends with the
process, however that ends. A folder that it replaces changes names with it at once; where the system cannot, that is
`.NAME.TOKEN.kerasbert-old` until the new one has the name. It is `.NAME.TOKEN.kerasbert-gone` while it is deleted. So a kill at
any instant leaves the old or the new one whole under its name, or the old one aside, where `sweep` puts it back.

A call that will write NAME, of a command or of a program, holds `.NAME.000000000000.kerasbert-claim` meanwhile, locked too, so
that a second one is refused: `claim`, which `places.check_*` ask for, within `claiming`, which every public function is.
"""

import contextlib
import contextvars
import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError
from kerasbert.storage import locks
from kerasbert.within import within

NEW, OLD, GONE, CLAIM = "new", "old", "gone", "claim"
ASIDE = re.compile(
    rf"\.(?P<name>.+)\.(?P<token>[0-9a-f]{{12}})\.kerasbert-(?P<state>{NEW}|{OLD}|{GONE}|{CLAIM})", re.DOTALL
)
_CALLED: dict[str, str] = {}  # temporary folder -> what the user gave
_claims: contextvars.ContextVar[frozenset[Path]] = contextvars.ContextVar("claims", default=frozenset())
_call: contextvars.ContextVar[contextlib.ExitStack | None] = contextvars.ContextVar("call", default=None)
HERE, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
LONGEST = 200  # bytes of a name: 255 with what is added here


def called(made: str | os.PathLike, name: str | os.PathLike) -> None:
    """What is made for a while of what a user gave is called by its name in lines for the user."""
    _CALLED[os.fspath(made)] = os.fspath(name)


def shown(said: str) -> str:
    """A line about what is aside, or made for a while, as one about what it is to be, or of what it was made.

    >>> shown("cannot write out/.run.0123456789ab.kerasbert-new/model.json")
    'cannot write out/run/model.json'
    """
    for made, name in _CALLED.items():
        said = said.replace(made, name)
    return re.sub(r"\.([^/]+)\.[0-9a-f]{12}\.kerasbert-new", r"\1", said)


def sync(path: str | os.PathLike) -> None:
    """Flush a file or directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(path: Path, token: str, state: str) -> Path:
    return path.parent / f".{path.name}.{token}.kerasbert-{state}"


class Aside:
    """A new file or folder beside `path`, which takes its name by `put`; modes are those of the umask.

    Args:
        path: what it will be.
        folder: bool, a folder in the place of a file.
    Attributes:
        new: Path, where it is written.
    """

    def __init__(self, path: Path, folder: bool) -> None:
        self.path = path
        self._handle: int | None = None
        while self._handle is None:
            self.token = secrets.token_hex(6)
            self.new = _beside(path, self.token, NEW)
            with contextlib.suppress(FileExistsError):
                self._handle = _created(self.new, folder)

    def put(self, replace: bool = False) -> None:
        """Give it the name, which the file there loses, and a folder where it is empty or `replace`.

        Raises:
            InputError: somebody else has made something of that name.
        """
        if replace and self.new.is_dir() and _exchanged(self.new, self.path):
            sync(self.path.parent)
            _delete(self.new, NEW)  # the older one
            self._unlock()
            return
        moved = False
        try:
            if replace and self.new.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    os.rename(self.path, _beside(self.path, self.token, OLD))
                    moved = True
            os.replace(self.new, self.path)
        except BaseException as error:
            if moved and not os.path.lexists(self.path):
                os.rename(_beside(self.path, self.token, OLD), self.path)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise InputError(
                    f"{self.path} was made by another process meanwhile: it is kept. Choose another place"
                ) from error
            raise
        sync(self.path.parent)
        if moved:
            _delete(_beside(self.path, self.token, OLD))
        self._unlock()

    def discard(self) -> None:
        """Delete what has not got the name."""
        with contextlib.suppress(OSError):
            _erase(self.new)
        self._unlock()

    def _unlock(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class claiming:  # as a context manager, of a microsecond: a call of the runtime takes a few hundred
    """A call: what `claim` is given within is its own until it ends."""

    def __enter__(self) -> None:
        self.claims = contextlib.ExitStack()
        self.token = _call.set(self.claims)

    def __exit__(self, *error: Any) -> None:
        _call.reset(self.token)
        self.claims.__exit__(*error)


def claim(path: str | os.PathLike, several: bool = False) -> bool:
    """Keep a place, as `claimed` does, until the call ends that is under way; -> whether it was not kept before."""
    call = _call.get()
    if call is None or not locks.AVAILABLE or Path(os.path.realpath(path)) in _claims.get():
        return False
    call.enter_context(claimed(path, several))
    return True


@contextlib.contextmanager
def claimed(path: str | os.PathLike, several: bool = False) -> Iterator[None]:
    """Nobody else writes what has this name within; who holds a claim already may claim the same again.

    Args:
        several: bool, share it with others that do, such as a training on several machines.

    Raises:
        InputError: another process, or another thread, has it.
    """
    real = Path(os.path.realpath(path))
    if not locks.AVAILABLE or real in _claims.get():
        yield
        return
    made, handle = list[Path](), None
    place = _beside(real, "0" * 12, CLAIM)
    try:
        with contextlib.suppress(OSError):  # what is wrong with the place is told by who writes there
            made = make(real.parent)
            handle = _claim(place, path, several)
        with within(_claims, _claims.get() | {real}):
            yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                if locks.lock(handle):  # else it is another one's too
                    place.unlink()  # before the lock ends: the next one is of another file
            os.close(handle)
        unmake(made)


def _claim(place: Path, path: str | os.PathLike, several: bool) -> int:
    """The descriptor of a claim's file, locked."""
    while True:
        try:
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except PermissionError:  # another user's, whose lock shows to who may read it
            handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
        if (locked := locks.lock(handle, several)) is False:
            os.close(handle)
            raise InputError(
                f"{path} is being written by another process: wait for it, or choose another place"
            ) from None
        if locked is None or is_of(place, handle):
            return handle
        os.close(handle)  # deleted meanwhile


def make(folder: Path) -> list[Path]:
    """Make a folder; -> it and those above that were not there, the lowest first."""
    absent = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return absent


def unmake(folders: Iterable[Path]) -> None:
    """Remove what `make` made, while it is empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def newest(path: Path) -> Path | None:
    """What is being written to be `path`, begun last; None where nothing is."""
    prefix, suffix = f".{path.name}.", f".kerasbert-{NEW}"
    begun = {}
    for each in path.parent.iterdir():
        if each.name.startswith(prefix) and each.name.endswith(suffix):
            with contextlib.suppress(FileNotFoundError):  # it has its name by now
                begun[each] = each.stat().st_mtime_ns
    return max(begun, key=begun.__getitem__, default=None)


def _created(path: Path, folder: bool) -> int | None:
    """A new file or folder -> its descriptor, locked; None where a `sweep` took it before it was."""
    if folder:
        os.mkdir(path)
    flags = os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        handle = os.open(path, flags, 0o666)
    except FileNotFoundError:
        if folder:
            return None
        raise
    # without locks nothing is swept; a `sweep` that has it deletes it
    if locks.lock(handle) is not False and is_of(path, handle):
        return handle
    os.close(handle)
    return None


def is_of(path: Path, handle: int) -> bool:
    """Whether a descriptor is of what has that name."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except OSError:
        return False


@contextlib.contextmanager
def _left(path: Path) -> Iterator[bool]:
    """Whether what is aside belongs to no living process; it is locked within."""
    handle = None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        left = bool(locks.lock(handle)) and is_of(path, handle)
    except OSError:
        left = False
    try:
        yield left
    finally:
        if handle is not None:
            os.close(handle)


def remove_left(path: Path) -> None:
    """Delete what a process wrote, but not that of a living one, which has it locked."""
    with _left(path) if locks.AVAILABLE else contextlib.nullcontext(True) as left:
        if left:
            _erase(path)


def sweep(folder: str | os.PathLike, name: str | None = None) -> None:
    """Put back or delete what killed processes left in a folder, of one name or of all; the living ones' is left alone."""
    if not locks.AVAILABLE:
        return
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return
    found = [match for match in map(ASIDE.fullmatch, entries) if match and name in (None, match["name"])]
    for match in found:
        if match["state"] == OLD:
            _settle(Path(folder, match["name"]), match["token"])
    for match in found:
        path = Path(folder, match[0])
        if match["state"] == GONE:
            _erase(path)
        elif match["state"] in (NEW, CLAIM):
            remove_left(path)


def _settle(path: Path, token: str) -> None:
    """Put the old one back where the new one has not got its name, else delete it; not while they are being exchanged."""
    old, new = _beside(path, token, OLD), _beside(path, token, NEW)
    if os.path.lexists(path):
        _delete(old)
        return
    if os.path.lexists(new):
        with _left(new) as left:
            if not left:
                return
    with contextlib.suppress(OSError):
        os.rename(old, path)
        sync(path.parent)


def _exchanged(new: Path, path: Path) -> bool:
    """Let two folders change their names, so that whoever looks finds one of them; whether the system did."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an older C library
        return False
    return rename(HERE, os.fsencode(new.absolute()), HERE, os.fsencode(path.absolute()), EXCHANGE) == 0


def _delete(old: Path, state: str = OLD) -> None:
    """Delete a folder that was replaced; it is no longer one to put back once the first file is gone."""
    gone = old.with_name(old.name.removesuffix(state) + GONE)
    with contextlib.suppress(OSError):
        os.rename(old, gone)
    _erase(gone)


def _erase(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()
