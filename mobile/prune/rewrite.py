"""A model directory read as Spec and tensors, and written again with others."""

import os

import numpy as np

from kerasbert import checkpoints, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import generation_config, source
from kerasbert.checkpoints.adapters import merged_directory
from kerasbert.errors import InputError
from kerasbert.layers.encoder import SpecModel
from kerasbert.layers.naming import names
from kerasbert.spec import Spec
from kerasbert.storage import files
from kerasbert.text.base import Tokenizer
from kerasbert.text.languages import read_languages
from kerasbert.training import runs

Tensors = dict[str, np.ndarray]


def read(run: str | os.PathLike) -> tuple[checkpoints.ModelInfo, Tensors]:
    """What model.json says, and the tensors by name, float32.

    Raises:
        InputError: no model directory, or the run is not finished.
    """
    path = merged_directory(run)
    info, tensors = checkpoints.read_model_json(path), checkpoints.read_tensors(path)
    return info, {name: tensors.read(name) for name in tensors.names()}


def read_blocks(run: str | os.PathLike) -> tuple[checkpoints.ModelInfo, Tensors]:
    """`read` of a model that is a stack of blocks.

    Raises:
        InputError: as `read`, or a family without blocks.
    """
    info, tensors = read(run)
    registry.family(info.family).needs_blocks("nothing to prune by heads, neurons or layers")
    return info, tensors


def tokenizer(run: str | os.PathLike) -> Tokenizer | None:
    """The tokenizer of a model directory, or None."""
    return text.held_tokenizer(source.directory(run))


def encoder(info: checkpoints.ModelInfo, spec: Spec, tensors: Tensors) -> SpecModel:
    """The family's encoder of another Spec with the tensors.

    Raises:
        InputError: the family has a weight that the tensors do not fit.
    """
    made = registry.family(info.family).encoder(spec)
    made.build()
    weights = names(made)
    got = {name: getattr(tensors.get(name), "shape", None) for name in weights}
    wrong = [name for name, variable in weights.items() if got[name] != tuple(variable.shape)]
    extra = [name for name in tensors if not name.startswith("heads/") and name not in weights]
    if wrong or extra:
        raise InputError(
            f"{(wrong or extra)[0]} does not fit the smaller model, and the family {info.family!r} says nothing about it: "
            "this family cannot be made smaller so"
        )
    for name, variable in weights.items():
        variable.assign(tensors[name])
    return made


def write(
    run: str | os.PathLike,
    out: str | os.PathLike,
    info: checkpoints.ModelInfo,
    spec: Spec,
    tensors: Tensors,
    tokenizer: Tokenizer | None,
    overwrite: bool,
) -> None:
    """Write a model directory; name, task, labels and plug-in are those of `info`.

    Args:
        run: the model directory it is made of, whose table of languages and whose rows held out are kept.
    """
    made = encoder(info, spec, tensors)
    heads: dict[str, Tensors] = {}
    for name, value in tensors.items():
        if name.startswith("heads/"):
            _, head, rest = name.split("/", 2)
            heads.setdefault(head, {})[rest] = value
    trimmed = specs.maybe(spec, "embeddings.vocabulary") != specs.maybe(info.spec, "embeddings.vocabulary")
    generation = generation_config.without_ids(info.generation) if trimmed else info.generation
    languages = read_languages(source.directory(run) / "tokenizer")
    rows = runs.rows_of(run)
    with files.new_directory(out, overwrite) as folder:
        parts = checkpoints.ModelParts(
            made,
            info.name,
            heads,
            tokenizer,
            task=info.task,
            labels=info.labels,
            plugin=info.plugin,
            generation=generation,
            languages=languages,
        )
        checkpoints.write_model(folder, parts)
        if rows:
            files.write_json(folder / "run.json", rows)
