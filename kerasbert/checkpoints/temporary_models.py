"""Model directories that are gone when the process ends, made of what a user named: a Hugging Face folder or a name on the
hub, word vectors, a checkpoint of a run.

TensorFlow is loaded where a folder of others is converted.
"""

import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import progress, registry
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.run_checkpoints import FOLDER, STEP, steps, verified
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.storage import aside, files, scratch
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    import numpy as np

WEIGHTS = "weights.safetensors"


def place(name: str | os.PathLike) -> Path:
    """Where to write such a model directory, in a new folder; errors call it by the name that the user gave."""
    path = scratch.made() / "model"
    aside.called(path, name)
    return path


def of_folder(path: Path) -> Path:
    """The model directory of a Hugging Face folder, once in a process while its files stay as they are."""
    state = tuple(sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in path.iterdir()))
    return _imported(os.path.abspath(path), state)


def of_hub(name: str, revision: str | None) -> Path:
    """The model directory of a name on the Hugging Face hub, once in a process."""
    return _imported(name, revision)


@functools.cache
def _imported(path: str, version: object) -> Path:
    """The model directory of a folder or a name.

    Args:
        version: of a name its revision or None; of a folder a tuple of what changes with its files.
    """
    from kerasbert.checkpoints.load import import_checkpoint

    made = place(path)
    named = {} if isinstance(version, tuple) else {"revision": version}
    import_checkpoint(path, "hf", out=made, build=False, **named)
    content = read_json(made / "model.json")
    what = f"is commit {content['source']['revision'][:12]} of the hub" if named else "is a Hugging Face folder"
    progress.say(f"{path} {what}: read as {content['name']} (kerasbert import keeps it)")
    return made


def of_vectors(path: Path) -> Path:
    """The model directory of word vectors, a file or a directory, once in a process while it stays as it is."""
    return _of_vectors(os.path.abspath(path), path.stat().st_mtime_ns)


@functools.cache
def _of_vectors(path: str, changed: int) -> Path:
    from kerasbert.checkpoints.directory import Weights, save_model
    from kerasbert.checkpoints.vectors import read_vectors, settings_of

    vectors = read_vectors(path)
    family = next(family for family in registry.families().values() if family.of_vectors)
    assert family.of_vectors is not None
    spec, arrays, tokenizer = family.of_vectors(vectors, settings_of(path))
    name = f"{family.name}/{next(iter(family.sizes))}"
    made = place(path)
    save_model(made, encoder=Weights(spec, arrays), name=name, tokenizer=tokenizer)
    progress.say(
        f"{path}: {len(vectors):,} word vectors, read as {name} with {tokenizer.size:,} rows of {vectors.width}"
    )
    return made


def of_checkpoint(run: Path, step: str) -> Path:
    """The model directory of a run's checkpoint: model.json and tokenizer of the run, weights of the step, averaged if it is.

    Args:
        run: a run directory with such a checkpoint (`steps`). step: its number, or "last".

    Raises:
        InputError: a damaged checkpoint, or a run that is no model's.
    """
    number = steps(run)[-1] if step == "last" else int(step)
    folder = run / FOLDER / f"{STEP}{number}"
    manifest = verified(folder, [WEIGHTS])
    made = place(f"{run}@{step}")
    made.mkdir()
    files.write_json(made / "model.json", _described(run))
    if (run / "tokenizer").is_dir():
        shutil.copytree(run / "tokenizer", made / "tokenizer")
    averages = manifest["state"]["average"]
    if averages is None:
        shutil.copyfile(folder / WEIGHTS, made / WEIGHTS)
        return made
    verified(folder, ["optimizer.safetensors"])
    weights, slots = Safetensors(folder / WEIGHTS), Safetensors(folder / "optimizer.safetensors")

    def read(name: str) -> "np.ndarray":
        return slots.read(averages[name]) if name in averages else weights.read(name)

    write_safetensors(made / WEIGHTS, {name: weights.shape(name) for name in weights.names()}, read)
    return made


def _described(run: Path) -> Json:
    """What model.json says of a run, without its hashes, which are of the finished model's weights."""
    if (run / "model.json").is_file():
        return {name: value for name, value in read_json(run / "model.json").items() if name not in ("files", "sha256")}
    raise InputError(
        f"{run} has no model.json, expected the directory of a pretraining or a fine-tuning: what a distillation makes is a "
        "model when it is finished"
    )
