"""The model directory: model.json, tokenizer/ and weights.safetensors (names relative to the encoder, float32).

model.json holds the sha256 of the other files and of itself, and both are compared whenever a directory is read: 0.3 s for
the 440 MB of BERT-base. Directories without it, of before, are read.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import children, registry
from kerasbert import spec as specs
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.text import knowledge
from kerasbert.text.base import Tokenizer
from kerasbert.text.languages import write_languages

if TYPE_CHECKING:  # command lines read model.json without Keras
    import keras

    from kerasbert.checkpoints.readers import Tensors
    from kerasbert.layers.encoder import SpecModel
    from kerasbert.spec import Spec

FORMAT = 1
WEIGHTS = "weights.safetensors"


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What model.json says.

    Args:
        family, name: str, as in `bert` and `bert/base`.
        spec: Spec of the encoder.
        task: dict with at least `kind`, or None for a bare encoder.
        labels: names of the classes in order, or None.
        plugin: {"file", "sha256"} of the file that brought the family, or None.
        source: {"hub", "revision"}, the name on the Hugging Face hub and the commit that it was imported from, or None.
        generation: how the checkpoint that it was imported from writes, as `generation_config.read` gives it, or None.
    """

    family: str
    name: str
    spec: specs.Spec
    task: Json | None = None
    labels: tuple[str, ...] | None = None
    plugin: dict[str, str] | None = None
    source: dict[str, str] | None = None
    generation: Json | None = None


@dataclasses.dataclass(frozen=True)
class Weights:
    """An encoder that is only written: no device is touched for it.

    Args:
        spec: Spec.
        arrays: weight name -> float32 array.
    """

    spec: specs.Spec
    arrays: Mapping[str, np.ndarray]


def named_weights(model: "keras.layers.Layer | Weights") -> dict[str, Tensor]:
    """Weight name -> Keras variable of a built model or layer, or -> array of a `Weights`."""
    if isinstance(model, Weights):
        return dict(model.arrays)
    from kerasbert.layers.naming import names

    return names(model)


@dataclasses.dataclass(frozen=True)
class ModelParts:
    """What a model directory is written of.

    Args:
        encoder: a built encoder with `.spec`, or Weights.
        name: str, `family/size` or `family`.
        heads: head name -> a built layer, or {weight name: array}; None for none.
        tokenizer: anything with `.save(directory)`, or None.
        task: dict with at least `kind`, or None.
        labels: names of the classes in order, or None.
        plugin: {"file", "sha256"}, as `registry.load_plugin` returns it.
        source: {"hub", "revision"} of an import by name.
        languages: language -> number, written beside the tokenizer's files.
        generation: as of `ModelInfo`.
    """

    encoder: "keras.Model | Weights"
    name: str
    heads: "Mapping[str, keras.layers.Layer | Mapping[str, np.ndarray]] | None" = None
    tokenizer: Tokenizer | None = None
    task: JsonMap | None = None
    labels: Sequence[str] | None = None
    plugin: Mapping[str, str] | None = None
    source: Mapping[str, str] | None = None
    languages: Mapping[str, int] | None = None
    generation: JsonMap | None = None

    def weights(self) -> dict[str, Tensor]:
        """Weight name -> Keras variable or array; those of a head under `heads/NAME/`."""
        weights = dict(named_weights(self.encoder))
        for head, part in (self.heads or {}).items():
            part = part if isinstance(part, Mapping) else named_weights(part)
            weights |= {f"heads/{head}/{weight}": value for weight, value in part.items()}
        return weights

    def to_json(self) -> Json:
        """The content of model.json but for its hashes."""
        return {
            "format": FORMAT,
            "family": self.name.partition("/")[0],
            "name": self.name,
            "spec": specs.to_dict(self.encoder.spec),
            "task": dict(self.task) if self.task else None,
            "labels": list(self.labels) if self.labels else None,
            "plugin": dict(self.plugin) if self.plugin else None,
            **({"source": dict(self.source)} if self.source else {}),
            **({"generation": dict(self.generation)} if self.generation else {}),
        }


def save_model(directory: str | os.PathLike, *, replace: bool = False, **parts: Any) -> None:
    """Write a model directory, whole or not at all; `parts` are the fields of `ModelParts`.

    Raises:
        InputError: the directory holds something already (unless `replace`), or the disk is full.
    """
    with files.new_directory(directory, replace) as folder:
        write_model(folder, ModelParts(**parts))


def write_model(folder: str | os.PathLike, parts: ModelParts) -> None:
    """Write the files of a model directory into an existing folder."""
    folder = Path(folder)
    weights, tokenizer = parts.weights(), parts.tokenizer
    write_safetensors(
        folder / WEIGHTS,
        {weight: tuple(value.shape) for weight, value in weights.items()},
        lambda weight: as_array(weights[weight]),
    )
    if tokenizer is not None:
        knowledge.save(tokenizer, folder / "tokenizer")
    if table := parts.languages or getattr(tokenizer, "languages", None):
        write_languages(folder / "tokenizer", table)
    written = [path for path in sorted((folder / "tokenizer").rglob("*")) if path.is_file()] + [folder / WEIGHTS]
    content = parts.to_json() | {
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
            for path in written
        },
    }
    content = json.loads(json.dumps(content))  # as it will be read
    files.write_json(folder / "model.json", content | {"sha256": _digest(content)})


def _digest(content: JsonMap) -> str:
    """sha256 of what model.json says, without the hash itself."""
    said = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def as_array(value: Tensor) -> np.ndarray:
    """A Keras variable or an array as float32 numpy."""
    # numpy 2 warns about the conversion that Keras and TensorFlow variables bring along, but not about .numpy()
    return np.asarray(value if isinstance(value, np.ndarray) else value.value.numpy(), np.float32)


def read_model_json(directory: str | os.PathLike) -> ModelInfo:
    """What a model directory says about itself.

    Raises:
        InputError: no model directory, another format version, an unknown family, or a damaged file, the tokenizer's too.
    """
    path = Path(directory) / "model.json"
    if not path.is_file():
        raise InputError(f"{directory} is no model directory (no model.json). Expected a folder that kerasbert wrote")
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {content.get('format')!r}, expected {FORMAT}: use the version that wrote it"
        )
    if "sha256" in content and content["sha256"] != _digest(content):
        raise InputError(
            f'{path} is not as it was written: copy it again, or, if you changed it yourself, remove "sha256" from it'
        )
    _check_files(directory, content, weights=False)
    family, plugin, labels, source = (content.get(name) for name in ("family", "plugin", "labels", "source"))
    named = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    whole = isinstance(family, str) and isinstance(content.get("spec"), dict)
    if not whole or not isinstance(content.get("task"), dict | None) or not (labels is None or named):
        raise InputError(
            f"{path} is damaged: expected family (text), spec (object), task (object), labels (list of text)"
        )
    return ModelInfo(
        family=str(family),
        name=str(content.get("name", family)),
        spec=_spec(content, path),
        task=content.get("task"),
        labels=tuple(labels) if labels else None,
        plugin=plugin,
        source=source if isinstance(source, dict) else None,
        generation=_generation(content.get("generation"), path),
    )


def _spec(content: JsonMap, path: Path) -> "Spec":
    """The settings of the family that a model.json names."""
    family, plugin = content["family"], content.get("plugin")
    if family not in registry.families() and isinstance(plugin, dict):
        raise InputError(
            f"the family {family!r} of {path} comes with the plug-in {plugin.get('file')}: pass it as --plugin FILE"
        )
    kind = type(registry.family(family).spec)
    try:
        return specs.from_dict(content["spec"], kind)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (AttributeError, TypeError) as error:
        raise InputError(f"{path} is damaged: its spec is not the nested object that was written") from error


def _generation(held: object, path: Path) -> Json | None:
    """How the checkpoint wrote, if what is held is that."""
    if held is None:
        return None
    tasks = held.get("tasks", {}) if isinstance(held, dict) else None
    if not isinstance(held, dict) or not all(
        isinstance(part, dict)
        for part in (held.get("options", {}), tasks, *(tasks.values() if isinstance(tasks, dict) else ()))
    ):
        raise InputError(f"{path} is damaged: expected generation to be options by name")
    return held


def _check_files(directory: str | os.PathLike, content: JsonMap, weights: bool) -> None:
    """Compare the weights, or the other files, with what model.json says of them."""
    place, listed = Path(directory) / "model.json", content.get("files", {})
    if not isinstance(listed, dict) or not all(isinstance(of, dict) and "sha256" in of for of in listed.values()):
        raise InputError(f'{place} is damaged: expected "files" with the sha256 of each')
    for name, known in listed.items():
        path = Path(directory) / name
        if (name == WEIGHTS) != weights:
            continue
        if not path.is_file():
            raise InputError(f"{path} is missing: copy the directory again")
        at = path.stat()
        if _sha256(path, at.st_size, at.st_mtime_ns, at.st_ino) != known["sha256"]:
            raise InputError(
                f"{path} is not the file that was written (another sha256; {at.st_size} bytes, {known.get('bytes')} then): "
                "copy it again, "
                f'or, if you changed it yourself, remove "files" and "sha256" from {place}'
            )


@functools.lru_cache(256)  # a file is read once, and then head by head
def _sha256(path: Path, *state: int) -> str:
    return files.sha256(path)


def read_tensors(directory: str | os.PathLike) -> Safetensors:
    """The weights of a model directory, read lazily by name.

    Raises:
        InputError: the file is damaged, or is not the one that model.json was written with.
    """
    tensors, place = Safetensors(Path(directory) / WEIGHTS), Path(directory) / "model.json"
    if place.is_file():
        _check_files(directory, read_json(place), weights=True)
    return tensors


def head_names(tensors: "Tensors") -> list[str]:
    """Names of the heads that a weight file holds."""
    return sorted({name.split("/")[1] for name in tensors.names() if name.startswith("heads/") and name.count("/") > 1})


def head_arrays(tensors: Safetensors, head: str) -> dict[str, np.ndarray]:
    """The arrays of a head by their names in it; {} of one that the file has not."""
    prefix = f"heads/{head}/"
    return {name.removeprefix(prefix): tensors.read(name) for name in tensors.names() if name.startswith(prefix)}


def load_weights(directory: str | os.PathLike, model: "keras.layers.Layer", prefix: str = "") -> None:
    """Assign every weight of a built model or layer exactly once.

    Args:
        directory: a model directory.
        model: the encoder, or a head.
        prefix: str, "" for the encoder, `heads/NAME/` for a head.

    Raises:
        InputError: missing, extra, misshaped or non-finite tensors, all of them listed; nothing was assigned then.
    """
    tensors = read_tensors(directory)
    found = {name for name in tensors.names() if (name.startswith(prefix) if prefix else not name.startswith("heads/"))}
    weights = {prefix + name: variable for name, variable in named_weights(model).items()}
    if prefix and weights and not found:
        raise InputError(
            f"{tensors.path} has no head {prefix.split('/')[1]!r}, it has: {', '.join(head_names(tensors)) or 'none'}. Leave out "
            "what asks for that head (an option of the task), or train new heads (without keep_head)"
        )
    shapes = {name: (tensors.shape(name), tuple(variable.shape)) for name, variable in weights.items() if name in found}
    problems = {
        "missing": [f"{name} {list(variable.shape)}" for name, variable in weights.items() if name not in found],
        "extra": [f"{name} {list(tensors.shape(name))}" for name in sorted(found - set(weights))],
        "misshaped": [
            f"{n} received {list(got)} expected {list(want)}" for n, (got, want) in shapes.items() if got != want
        ],
    }
    if any(problems.values()):
        lines = [f"{len(names)} {kind}: {', '.join(names)}" for kind, names in problems.items() if names]
        raise InputError(
            f"{tensors.path} does not fit the model. {'; '.join(lines)}. Load it with the model it was saved from"
        )
    bad = [name for name in weights if not np.isfinite(tensors.read(name)).all()]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise InputError(
            f"{tensors.path} holds nan or inf in {', '.join(bad[:5])}{more}: no model computes with them. Take another copy"
        )
    for name, variable in weights.items():
        variable.assign(tensors.read(name))


def load_encoder(directory: str | os.PathLike) -> "tuple[SpecModel, ModelInfo]":
    """The encoder of a model directory with `.tokenizer` and `.labels`, and what model.json says.

    Raises:
        InputError: as `read_model_json` and `load_weights`.
    """
    from kerasbert.layers import initial

    info = read_model_json(directory)
    children.computing()
    with initial.unset():
        encoder = built(registry.family(info.family), info.spec, info.name)
    load_weights(directory, encoder)
    encoder.labels, encoder.generation = info.labels, info.generation
    from kerasbert import text

    if (tokenizer := text.held_tokenizer(directory)) is not None:
        encoder.tokenizer = tokenizer
    return encoder, info


def built(family: registry.Family, spec: specs.Spec, name: str | None = None) -> "SpecModel":
    """A built encoder of a family, which remembers its name (`family/size`)."""
    encoder = family.encoder(spec)
    if not encoder.built:
        encoder.build(None)
    encoder.model_name = name or family.name
    return encoder
