"""The weight cache: XNNPACK's packed weights in a file, so that a second launch maps them instead of packing them.

`<sha256>-<machine>-<code>.weights`: the key is computed, never read from a file that came from elsewhere; the code in the
name, a keyed hash of the bytes (HMAC, RFC 2104), makes a file valid or not. A file that is damaged, or that somebody else put
there, would otherwise be mapped and computed with: wrong answers, or a segmentation fault. Its secret lies in the folder,
readable by the one who made it alone.

XNNPACK aborts the process when its cache cannot be written: a full disk, a quota, a limit on the size of files. So it
packs into memory (a memfd of Linux and Android; elsewhere there is no cache), and the copy to the disk is made here,
where an error is an exception.
"""

import contextlib
import hashlib
import hmac
import os
import re
import stat
import time
from pathlib import Path

SUFFIX = ".weights"
CHUNK = 1 << 20
KEPT = 8  # files of a folder, the last used ones
STALE = 3600  # seconds after which a draft's writer is dead
PACKED = re.compile(r"([0-9a-f]{64}-[0-9a-f]{8})-([0-9a-f]{32})\.weights")
SECRET, SIZE = ".secret", 32  # its name, and its bytes
DRAFT = re.compile(r"\.[a-z0-9_]{8}\.draft")
MEMORY = "XNNPack in-memory weight cache"


def default_directory() -> Path | None:
    """$XDG_CACHE_HOME/kerasbert, or ~/.cache/kerasbert; None where there is no home."""
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path("~/.cache").expanduser()) / "kerasbert"
    except RuntimeError:
        return None


def key(digest: str, threads: int, version: str) -> str:
    """The name of a model's packed weights on this machine.

    Args:
        digest: str, hex sha256 of the bytes of the model and of what was checked of them.
        threads: int, of the interpreter.
        version: str, of the interpreter: another one packs otherwise and would write the file again in its place.
    """
    processor = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:
        lines = file.read(8192).split(b"\n")  # of the first core
        processor = repr(sorted({line for line in lines if line.lower().startswith((b"flags", b"features", b"model"))}))
    return f"{digest}-{hashlib.sha256(f'{threads} {version} {processor}'.encode()).hexdigest()[:8]}"


def find(directory: Path, key: str) -> Path | None:
    """The valid cache file of a model, or None; a damaged one is removed."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return None
    if (secret := _secret(directory)) is None:
        return None
    for path, match in ((directory / name, PACKED.fullmatch(name)) for name in names):
        if not match or match[1] != key or not path.is_file():
            continue
        with contextlib.suppress(OSError):
            if hmac.compare_digest(code(path, secret), match[2]):
                with contextlib.suppress(OSError):  # a folder that is read only
                    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
                return path
            path.unlink()
    return None


def can_pack(size: int) -> bool:
    """Whether XNNPACK may pack a model of `size` bytes into memory here; it aborts the process where it cannot.

    A limit on the size of files holds for memory files too. Packed weights are smaller than float32: at most four times
    the file, and a few tiles.
    """
    try:
        os.close(os.memfd_create("kerasbert"))
    except (AttributeError, OSError):  # another system, a sandbox
        return False
    try:
        import resource
    except ImportError:
        return True
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit == resource.RLIM_INFINITY or limit > 4 * size + (4 << 20)


def packed() -> set[int]:
    """Descriptors of this process's memory files of packed weights."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if MEMORY in os.readlink(f"/proc/self/fd/{name}"):
                    found.add(int(name))
    return found


def keep(directory: Path, key: str, handle: int) -> Path | None:
    """Copy packed weights from a memory file to the folder, at once and whole, then `sweep`; None where that fails.

    Args:
        directory: folder; made where it is missing.
        key: str.
        handle: int, descriptor of the memory file; its position is not moved.
    """
    import tempfile  # here: a launch that finds its weights does without

    draft = None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = _secret(directory)
        secret = held or os.urandom(SIZE)
        number, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=directory)
        written, value = 0, hmac.new(secret, digestmod="sha256")
        with os.fdopen(number, "wb") as file:
            while chunk := os.pread(handle, CHUNK, written):
                value.update(chunk)
                written += file.write(chunk)
        if not written or os.path.getsize(draft) != os.fstat(handle).st_size:
            raise OSError("not all was written")
        if not held and not _publish(directory, secret):
            raise OSError("the folder's secret is another's")
        path = directory / f"{key}-{value.hexdigest()[:32]}{SUFFIX}"
        os.replace(draft, path)
        sweep(directory)
        return path
    except OSError:
        if draft:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        return None


def sweep(directory: Path) -> None:
    """Remove drafts that a kill left behind an hour ago, and all but the KEPT caches that were used last."""
    caches = []
    for entry in os.scandir(directory):
        with contextlib.suppress(OSError):
            if not entry.is_file(follow_symlinks=False):
                continue
            if PACKED.fullmatch(entry.name):
                caches.append((entry.stat().st_atime_ns, entry.path))
            elif DRAFT.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > STALE:
                os.unlink(entry.path)
    for _, path in sorted(caches)[:-KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(path)


def code(path: Path, secret: bytes) -> str:
    """The keyed hash of a file, in hexadecimal: 11 MB take 7 ms (AMD EPYC)."""
    value = hmac.new(secret, digestmod="sha256")
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            value.update(chunk)
    return value.hexdigest()[:32]


def _secret(directory: Path) -> bytes | None:
    """The folder's secret; None where there is none, or one that somebody else made or can read."""
    try:
        number = os.open(directory / SECRET, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        about, secret = os.fstat(number), os.read(number, SIZE + 1)
    except OSError:  # a folder
        return None
    finally:
        os.close(number)
    private = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    return secret if private and len(secret) == SIZE else None


def _publish(directory: Path, secret: bytes) -> bool:
    """Make a secret the folder's, whole at once; whether it is. One of somebody else, or of a faster process, stays."""
    import tempfile

    number, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=directory)  # readable by its owner alone
    try:
        with os.fdopen(number, "wb") as file:
            file.write(secret)
        try:
            os.link(draft, directory / SECRET)
        except FileExistsError:
            if _secret(directory) is None and os.lstat(directory / SECRET).st_uid == os.geteuid():  # ours, damaged
                os.replace(draft, directory / SECRET)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    return _secret(directory) == secret
