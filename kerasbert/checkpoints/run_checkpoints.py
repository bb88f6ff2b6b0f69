"""Where the checkpoints of a run lie, `checkpoints/step_N/`, and whether one is whole. `training.checkpoints` writes them."""

from collections.abc import Iterable
from pathlib import Path

from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.storage.json_view import Json

FOLDER, STEP = "checkpoints", "step_"
MANIFEST = "manifest.json"  # step, files with bytes and sha256, state; written last


def numbers(names: Iterable[str]) -> list[int]:
    """The steps that are named among a folder's entries, ascending.

    >>> numbers(["step_10", "step_4", "best.safetensors", ".step_2.x7"])
    [4, 10]
    """
    found = [name.removeprefix(STEP) for name in names if name.startswith(STEP)]
    return sorted(int(step) for step in found if step.isdecimal())


def steps(run: Path) -> list[int]:
    """Steps of a local run's complete checkpoints, ascending."""
    return numbers(path.parent.name for path in (run / FOLDER).glob(f"{STEP}*/{MANIFEST}"))


def verified(folder: Path, names: list[str]) -> Json:
    """A checkpoint's manifest, if the files of these names are what it says.

    Raises:
        InputError: they are not, or the manifest is damaged.
    """
    manifest = read_json(folder / MANIFEST)
    try:
        expected = {name: manifest["files"][name]["sha256"] for name in names}
        _ = manifest["state"]["average"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / MANIFEST} is damaged: take another checkpoint of the run") from error
    for name, digest in expected.items():
        if not (folder / name).is_file() or files.sha256(folder / name) != digest:
            raise InputError(f"{folder / name} is damaged (another sha256): take another checkpoint of the run")
    return manifest
