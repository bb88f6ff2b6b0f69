"""The model directory: model.json, tokenizer/ and weights.safetensors (names relative to the encoder, float32)."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import files, registry
from kerasbert import spec as specs
from kerasbert.checkpoints.readers import read_json
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError

FORMAT = 1


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
    """

    family: str
    name: str
    spec: specs.Spec
    task: dict[str, Any] | None = None
    labels: tuple[str, ...] | None = None
    plugin: dict[str, str] | None = None
    source: dict[str, str] | None = None


def named_weights(model: Any) -> dict[str, Any]:
    """Weight name -> Keras variable of a built model or layer."""
    from kerasbert.layers.naming import names

    return names(model)


def save_model(directory: str | os.PathLike, *, replace: bool = False, **parts: Any) -> None:
    """Write a model directory, whole or not at all; `parts` are the arguments of `write_model`.

    Raises:
        InputError: the directory holds something already (unless `replace`), or the disk is full.
    """
    with files.new_directory(directory, replace) as folder:
        write_model(folder, **parts)


def write_model(
    folder: str | os.PathLike,
    *,
    encoder: Any,
    name: str,
    heads: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    task: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
    plugin: Mapping[str, str] | None = None,
    source: Mapping[str, str] | None = None,
) -> None:
    """Write the files of a model directory into an existing folder.

    Args:
        folder: an existing folder.
        encoder: a built encoder with `.spec`.
        name: str, `family/size` or `family`.
        heads: head name -> a built layer, or {weight name: array}.
        tokenizer: anything with `.save(directory)`, or None.
        task: dict with at least `kind`, or None.
        labels: names of the classes in order, or None.
        plugin: {"file", "sha256"}, as `registry.load_plugin` returns it.
        source: {"hub", "revision"} of an import by name.
    """
    folder = Path(folder)
    weights = dict(named_weights(encoder))
    for head, part in (heads or {}).items():
        part = part if isinstance(part, Mapping) else named_weights(part)
        weights |= {f"heads/{head}/{weight}": value for weight, value in part.items()}
    write_safetensors(
        folder / "weights.safetensors",
        {weight: tuple(value.shape) for weight, value in weights.items()},
        lambda weight: _array(weights[weight]),
    )
    if tokenizer is not None:
        tokenizer.save(folder / "tokenizer")
    described = describe(encoder.spec, name, task, labels, plugin)
    files.write_json(folder / "model.json", described | ({"source": dict(source)} if source else {}))


def describe(
    spec: specs.Spec,
    name: str,
    task: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
    plugin: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The content of model.json; arguments as those of `write_model`."""
    return {
        "format": FORMAT,
        "family": name.partition("/")[0],
        "name": name,
        "spec": specs.to_dict(spec),
        "task": dict(task) if task else None,
        "labels": list(labels) if labels else None,
        "plugin": dict(plugin) if plugin else None,
    }


def _array(value: Any) -> np.ndarray:
    """A Keras variable or an array as float32 numpy."""
    # numpy 2 warns about the conversion that Keras and TensorFlow variables bring along, but not about .numpy()
    return np.asarray(value if isinstance(value, np.ndarray) else value.value.numpy(), np.float32)


def read_model_json(directory: str | os.PathLike) -> ModelInfo:
    """What a model directory says about itself.

    Raises:
        InputError: no model directory, another format version, an unknown family, or a damaged file.
    """
    path = Path(directory) / "model.json"
    if not path.is_file():
        raise InputError(f"{directory} is no model directory (no model.json). Expected a folder that kerasbert wrote")
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {content.get('format')!r}, expected {FORMAT}: use the version that wrote it"
        )
    family, spec, plugin = content.get("family"), content.get("spec"), content.get("plugin")
    task, labels, source = content.get("task"), content.get("labels"), content.get("source")
    named = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not (
        isinstance(family, str)
        and isinstance(spec, dict)
        and isinstance(task, dict | None)
        and (labels is None or named)
    ):
        raise InputError(
            f"{path} is damaged: expected family (text), spec (object), task (object), labels (list of text)"
        )
    if family not in registry.families() and isinstance(plugin, dict):
        raise InputError(
            f"the family {family!r} of {path} comes with the plug-in {plugin.get('file')}: pass it as --plugin FILE"
        )
    kind = type(registry.family(family).spec)
    try:
        made = specs.from_dict(spec, kind)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (AttributeError, TypeError) as error:
        raise InputError(f"{path} is damaged: its spec is not the nested object that was written") from error
    return ModelInfo(
        family=family,
        name=str(content.get("name", family)),
        spec=made,
        task=task,
        labels=tuple(labels) if labels else None,
        plugin=plugin,
        source=source if isinstance(source, dict) else None,
    )


def read_tensors(directory: str | os.PathLike) -> Safetensors:
    """The weights of a model directory, read lazily by name."""
    return Safetensors(Path(directory) / "weights.safetensors")


def head_names(tensors: Safetensors) -> list[str]:
    """Names of the heads that a weight file holds."""
    return sorted({name.split("/")[1] for name in tensors.names() if name.startswith("heads/") and name.count("/") > 1})


def load_weights(directory: str | os.PathLike, model: Any, prefix: str = "") -> None:
    """Assign every weight of a built model or layer exactly once.

    Args:
        directory: a model directory.
        model: the encoder, or a head.
        prefix: str, "" for the encoder, `heads/NAME/` for a head.

    Raises:
        InputError: missing, extra or misshaped tensors, all of them listed; nothing was assigned then.
    """
    tensors = read_tensors(directory)
    found = {name for name in tensors.names() if (name.startswith(prefix) if prefix else not name.startswith("heads/"))}
    weights = {prefix + name: variable for name, variable in named_weights(model).items()}
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
    for name, variable in weights.items():
        variable.assign(tensors.read(name))


def load_encoder(directory: str | os.PathLike) -> tuple[Any, ModelInfo]:
    """The encoder of a model directory with `.tokenizer` and `.labels`, and what model.json says.

    Raises:
        InputError: as `read_model_json` and `load_weights`.
    """
    info = read_model_json(directory)
    encoder = built(registry.family(info.family), info.spec, info.name)
    load_weights(directory, encoder)
    encoder.labels = info.labels
    if (Path(directory) / "tokenizer").is_dir():
        from kerasbert import text

        encoder.tokenizer = text.load_tokenizer(Path(directory) / "tokenizer")
    return encoder, info


def built(family: registry.Family, spec: specs.Spec, name: str | None = None) -> Any:
    """A built encoder of a family, which remembers its name (`family/size`)."""
    encoder = family.encoder(spec)
    if not encoder.built:
        encoder.build(None)
    encoder.model_name = name or family.name
    return encoder
