"""What a finished run leaves: the files of a model directory, in the run's directory."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import keras

from kerasbert import checkpoints, progress, text
from kerasbert.checkpoints import ModelParts
from kerasbert.errors import InputError
from kerasbert.layers.naming import values
from kerasbert.storage import files, folders, scratch
from kerasbert.storage.remote import is_remote
from kerasbert.text import knowledge
from kerasbert.training.runs import Run, another_run


def write(run: Run, parts: ModelParts) -> None:
    """Put a model directory's files into the run's directory, the weights last, and mark the run finished."""
    try:
        _write(run, parts)
    except (OSError, InputError) as error:
        refused = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(refused, OSError):
            raise
        raise InputError(
            f"cannot write the model into {run.directory}: {refused.strerror or refused}. Free space"
        ) from refused


def _write(run: Run, parts: ModelParts) -> None:
    remote, directory = is_remote(run.directory), Path(run.directory)
    for left in [] if remote else directory.glob(".model.*"):  # by a kill
        shutil.rmtree(left, ignore_errors=True)
    beside = scratch.folder() if remote else tempfile.TemporaryDirectory(prefix=".model.", dir=run.directory)
    with beside as folder:
        checkpoints.write_model(folder, parts)
        made = Path(folder)
        if remote:
            folders.upload(made, str(run.directory), last="weights.safetensors")
            run.finish()
            return
        for file in made.rglob("*"):
            files.sync(file)
        (directory / "tokenizer").mkdir(exist_ok=True)
        for file in sorted(made.rglob("*"), key=lambda file: (file.name == "weights.safetensors", file)):
            if file.is_file():
                os.replace(file, directory / file.relative_to(made))
        files.sync(directory)
    run.finish()


def begin(run: Run, parts: ModelParts) -> None:
    """Put model.json and the tokenizer into a local run's directory before the first update: a checkpoint is a model then.

    Raises:
        InputError: the run goes on, and the model that it begins from has another tokenizer or other settings by now.
    """
    directory = Path(run.directory)
    if is_remote(run.directory):
        return
    if (directory / "model.json").exists():
        _check_begun(directory, parts)
        return
    if parts.tokenizer is not None:
        knowledge.save(parts.tokenizer, directory / "tokenizer")
    files.write_json(directory / "model.json", parts.to_json())


def _check_begun(directory: Path, parts: ModelParts) -> None:
    """Refuse a run that was begun with another tokenizer or another network, which the hash of the weights does not tell."""
    held = text.held_tokenizer(directory)
    differ = []
    if held is not None and parts.tokenizer is not None and held.digest() != parts.tokenizer.digest():
        differ.append(
            f"the tokenizer is {held.digest()[:12]} there, {parts.tokenizer.digest()[:12]} of what it begins from"
        )
    if checkpoints.read_model_json(directory).spec != parts.encoder.spec:
        differ.append("the settings of the network are others")
    if differ:
        raise another_run(directory, differ)


def load_heads(directory: str | os.PathLike, heads: Mapping[str, keras.layers.Layer]) -> None:
    """Load the heads that a model directory holds; the others start at random, and that is said."""
    held = checkpoints.head_names(checkpoints.read_tensors(directory))
    for name, head in heads.items():
        if name in held:
            checkpoints.load_weights(directory, head, f"heads/{name}/")
        else:
            progress.say(f"{directory} has no head {name!r}: it starts at random")


def digest(directory: str | os.PathLike) -> str:
    """sha256 of a model directory's weights."""
    return files.sha256(Path(directory) / "weights.safetensors")


def digest_of(model: keras.Model) -> str:
    """sha256 of a model's weights, by name."""
    found = hashlib.sha256()
    for name, value in sorted(values(model).items()):
        found.update(name.encode() + value.tobytes())
    return found.hexdigest()
