"""The weight cache: XNNPACK's packed weights in a file, so that a second launch maps them instead of packing them.

`<sha256>-<machine>-<crc32>.weights`: the key is computed, never read from a file that came from elsewhere;
the checksum in the name makes a file valid or not, with nothing beside it to fall out of step. A damaged file would
otherwise be mapped and computed with.

XNNPACK aborts the process when its cache cannot be written: a full disk, a quota, a limit on the size of files. So it
packs into memory (a memfd of Linux and Android; elsewhere there is no cache), and the copy to the disk is made here,
where an error is an exception.
"""

import contextlib
import hashlib
import os
import re
import time
import zlib
from pathlib import Path

SUFFIX = ".weights"
CHUNK = 1 << 20
KEPT = 8  # files of a folder, the last used ones
STALE = 3600  # seconds after which a draft's writer is dead
PACKED = re.compile(r"([0-9a-f]{64}-[0-9a-f]{8})-([0-9a-f]{8})\.weights")
OLDER = re.compile(r"[0-9a-f]{32}-\d+-[0-9a-f]{8}\.weights")  # as kerasbert wrote them before; never used again
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
    for path, match in ((directory / name, PACKED.fullmatch(name)) for name in names):
        if not match or match[1] != key or not path.is_file():
            continue
        with contextlib.suppress(OSError):
            if checksum(path) == match[2]:
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
        number, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=directory)
        written = value = 0
        with os.fdopen(number, "wb") as file:
            while chunk := os.pread(handle, CHUNK, written):
                written, value = written + file.write(chunk), zlib.crc32(chunk, value)
        if not written or os.path.getsize(draft) != os.fstat(handle).st_size:
            raise OSError("not all was written")
        path = directory / f"{key}-{value:08x}{SUFFIX}"
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
            if PACKED.fullmatch(entry.name) or OLDER.fullmatch(entry.name):
                caches.append((entry.stat().st_atime_ns, entry.path))
            elif DRAFT.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > STALE:
                os.unlink(entry.path)
    for _, path in sorted(caches)[:-KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(path)


def checksum(path: Path) -> str:
    """crc32 of a file, in hexadecimal: 11 MB take 3 ms, against 7 ms for sha256 (AMD EPYC)."""
    value = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"
