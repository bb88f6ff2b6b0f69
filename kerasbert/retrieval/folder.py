"""The folder of an index, as its index.json tells it. Standard library alone: the command line asks."""

import errno
import hashlib
import json
import os
from pathlib import Path

from kerasbert.errors import InputError, nearest
from kerasbert.storage.json_view import Json

INDEX, VECTORS, TEXTS, GRAPH = "index.json", "vectors.npy", "texts.jsonl", "graph.faiss"
FORMAT = 2
PIECES, PIECE = 1024, 2**16  # of a file that is too large to be read whole each time
SETTINGS = ("pooling", "dims", "length", "language", "prompt_name")
"""What `kb.encode` was told of the texts, and is of a query."""


def damaged(path: str | os.PathLike, name: str) -> InputError:
    """The error of an index whose file of that name is not what was written, or may not be read."""
    file = Path(path, name)
    if file.is_file() and not os.access(file, os.R_OK):
        return InputError(f"cannot read {file}: {os.strerror(errno.EACCES)}")
    return InputError(f"{path} is damaged ({name}): build it again with --overwrite")


def sealed(folder: Path, about: Json) -> Json:
    """What index.json says, with the fingerprints of all files that the folder holds and of what it says itself."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    about = {**about, "files": {name: _fingerprint(folder, name) for name in names}}
    return {**about, "seal": seal(about)}


def seal(about: Json) -> str:
    """sha256 of what index.json says, but for the place of the model, which may move."""
    held = {**about, "model": {**about["model"], "path": None}}
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def _fingerprint(folder: Path, name: str) -> str:
    """sha256 of a file; of large vectors, texts and graphs that of their size and of PIECES pieces from end to end. Of these
    nothing but numbers and json is read, and faiss refuses a graph with a link to no vector.
    """
    path = folder / name
    size, state = os.path.getsize(path), hashlib.sha256()
    whole = size <= PIECES * PIECE or name not in (VECTORS, TEXTS, GRAPH)
    starts = range(0, size, PIECE) if whole else (i * (size - PIECE) // (PIECES - 1) for i in range(PIECES))
    state.update(str(size).encode())
    with open(path, "rb") as file:
        for start in starts:
            file.seek(start)
            state.update(file.read(PIECE))
    return state.hexdigest()


def is_written(folder: Path, name: str, expected: str) -> bool:
    """Whether a file is the one that was written, whose fingerprint is `expected`."""
    return _fingerprint(folder, name) == expected


def check_files(folder: Path, about: Json) -> None:
    """Refuse a folder whose files are not those that were written."""
    for name, expected in about["files"].items():
        try:
            same = is_written(folder, name, expected)
        except FileNotFoundError as error:
            raise damaged(folder, f"{name} is missing") from error
        except OSError as error:
            raise damaged(folder, f"{name}: {error.strerror}") from error
        if not same:
            raise damaged(folder, f"{name} is not the file that was written")


def is_index(path: str | os.PathLike) -> bool:
    """Whether a folder is an index, or what is left of one."""
    has = [os.path.isfile(os.path.join(path, name)) for name in (INDEX, VECTORS, TEXTS)]
    return has[0] or all(has[1:])


def missing(path: Path) -> InputError:
    """The error of an index that is not there, with the nearest one beside it."""
    beside = sorted(each.name for each in path.parent.iterdir() if is_index(each)) if path.parent.is_dir() else []
    best = nearest(path.name, beside) or (beside[0] if len(beside) == 1 else None)
    told = f" Nearest: {str(path.parent / best)!r}." if best else ""
    return InputError(f"no index {path}.{told} kerasbert index RUN FILE --out {path} makes one")


def about(path: str | os.PathLike) -> Json:
    """What index.json says, without TensorFlow.

    Raises:
        InputError: it is no index, or one of another version.
    """
    path = Path(path)
    if not path.exists():
        raise missing(path)
    if not is_index(path):
        raise InputError(f"{path} is no index (no {INDEX}), expected a folder that kerasbert index wrote")
    if not (path / INDEX).is_file():
        raise damaged(path, f"{INDEX} is missing")
    try:
        found = json.loads((path / INDEX).read_text(encoding="utf-8"))
        version, whole = found["index"], found.pop("seal", None) == seal(found)
        place = found["model"]["path"]
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise damaged(path, INDEX) from error
    if version != FORMAT:
        raise InputError(
            f"{path} has the format {version!r} of an index, this kerasbert reads {FORMAT}: build it again"
        )
    if not whole or not (place is None or isinstance(place, str)):
        raise damaged(path, INDEX)
    return found
