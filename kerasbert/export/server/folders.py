"""Which models and versions lie on the disk. Imports no TensorFlow: mistakes are told before it is there."""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.export.serve_check import SUMS, differing
from kerasbert.storage.aside import ASIDE

CARD = "MODEL_CARD.md"
CHECKED = ("saved_model.pb", "variables/", "assets/", "assets.extra/")  # a card may be edited
Stamp = tuple[tuple[str, int, int, int], ...]


def named(folders: Sequence[str], name: str | None) -> Mapping[str, Path]:
    """The models of a command: name -> folder, of DIR or NAME=DIR.

    Raises:
        InputError: a folder that holds no model, a name that no address can hold, or one given twice.
    """
    if name is not None and (len(folders) > 1 or _split(folders[0])[0]):
        raise InputError("--name is for one DIR: name several models by NAME=DIR")
    found: dict[str, Path] = {}
    for given in folders:
        own, folder = _split(given)
        chosen = name or own or default_name(folder)
        if not re.fullmatch(r"[^/:\s]+", chosen):
            raise InputError(
                f"a model's name stands in its address: no '/', ':' or blank. Received: {chosen!r}: --name or NAME=DIR"
            )
        if chosen in found:
            raise InputError(f"two models are called {chosen!r}: give them names by NAME=DIR")
        check(folder)
        found[chosen] = folder
    return found


def _split(given: str) -> tuple[str, Path]:
    """The name, "" for none, and the folder of an argument; a folder whose own name has a '=' is one."""
    name, equals, folder = given.partition("=")
    return ("", Path(given)) if not equals or Path(given).is_dir() else (name, Path(folder))


def default_name(folder: Path) -> str:
    """What a model is called: its folder's name, of serving/author/1 and of serving/author.

    >>> default_name(Path("serving/author/1"))
    'author'
    """
    whole = Path(os.path.abspath(folder))
    return whole.parent.name if whole.name.isdigit() else whole.name


def check(folder: Path) -> None:
    """Refuse a folder that holds no SavedModel.

    Raises:
        InputError: no folder, or no version in it.
    """
    if not folder.is_dir():
        raise InputError(f"no folder {folder}. A SavedModel is written by: kerasbert export RUN {folder}/1")
    if not versions(folder):
        kind = "a run" if (folder / "model.json").is_file() else "no SavedModel"
        raise InputError(
            f"{folder} is {kind}: expected saved_model.pb in it, or in folders called 1, 2, ... that "
            "kerasbert export RUN DIR/1 writes"
        )


def check_base(folder: str | os.PathLike) -> None:
    """Refuse a version of a model where the folder of all its versions is asked for.

    Raises:
        InputError: a SavedModel lies in it.
    """
    if Path(folder, "saved_model.pb").is_file():
        above = os.path.dirname(os.path.normpath(folder)) or "."
        raise InputError(
            f"{folder} is a version itself: --next takes the folder that holds the versions, such as {above}"
        )


def versions(folder: Path) -> dict[int, Path]:
    """Number -> folder of the versions of a model, oldest first; one folder alone is version 1, or what it is called."""
    if (folder / "saved_model.pb").is_file():
        name = Path(os.path.abspath(folder)).name
        return {int(name) if name.isdigit() else 1: folder}
    if not folder.is_dir():
        return {}
    numbered: dict[int, Path] = {}
    for each in sorted(folder.iterdir(), key=lambda each: (len(each.name), each.name)):  # 3 before 03
        if re.fullmatch("[0-9]{1,18}", each.name) and _holds_model(each):
            numbered.setdefault(int(each.name), each)
    return dict(sorted(numbered.items()))


def misnamed(folder: Path, known: Mapping[int, Path]) -> list[str]:
    """Folders in that of a model which hold a SavedModel and are none of its `known` versions."""
    if folder in known.values() or not folder.is_dir():
        return []
    inside = (each for each in folder.iterdir() if each not in known.values())
    return sorted(each.name for each in inside if not ASIDE.fullmatch(each.name) and _holds_model(each))


def _holds_model(folder: Path) -> bool:
    try:
        return (folder / "saved_model.pb").is_file()
    except PermissionError:  # it is refused, with this reason, when it is read
        return True


def stamp(folder: Path) -> Stamp:
    """Sizes, times and rights of a version's files: a refused one is tried again when they change. A card may be edited."""
    found = []
    for place, _, names in os.walk(folder):
        for name in {*names} - {CARD}:
            with contextlib.suppress(OSError):  # gone, or not to be read
                status = os.stat(os.path.join(place, name))
                found.append((os.path.join(place, name), status.st_size, status.st_mtime_ns, status.st_mode))
    return tuple(sorted(found))


def check_sums(folder: Path) -> None:
    """Compare a version with its SHA256SUMS, where it has them: a copy that is damaged or not finished is not loaded.

    Raises:
        InputError: the first file that differs.
    """
    if not (folder / SUMS).is_file():
        return
    for name, there in differing(folder):
        if name.startswith(CHECKED):
            said = f"differs from its sum in {SUMS}: it is damaged, or its copy is not finished"
            raise InputError(f"{name} {said if there else f'is missing, which {SUMS} lists'}")
