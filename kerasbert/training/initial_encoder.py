"""The encoder that fine-tuning begins from: of a directory or a model, with the parts that start as new."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np

from kerasbert import checkpoints, registry
from kerasbert import spec as specs
from kerasbert.checkpoints.directory import built, head_arrays
from kerasbert.errors import InputError
from kerasbert.layers import initial
from kerasbert.layers.encoder import Encoder, SpecModel
from kerasbert.layers.naming import names, values
from kerasbert.spec import Spec
from kerasbert.storage.json_view import JsonMap
from kerasbert.tasks.adapted_models import encoder_of
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.text.tree import with_knowledge
from kerasbert.training import model_files
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.early import DROPOUT, check_changes
from kerasbert.training.precision import precision

if TYPE_CHECKING:
    from kerasbert.tasks.ensemble import Ensemble


def encoder(
    model: "str | os.PathLike | keras.Model | Ensemble", changes: Mapping[str, object], config: FinetuneConfig
) -> tuple[SpecModel, str, str]:
    """The encoder to train, its name, and the hash of the weights that it starts from."""
    check_changes(changes)
    adapted = {path: value for path, value in changes.items() if path not in DROPOUT}
    changes = {path: value for path, value in changes.items() if path in DROPOUT}
    encoder, name, digest = _held(model, changes, config.precision)
    if not adapted:
        return encoder, name, digest
    specs.derive(encoder.spec, adapted)  # refuses a path of a family that has no such thing
    if encoder.spec != encoder.spec.base:
        raise InputError(
            f"{name} is adapted already ({_adaptation(encoder.spec)}): leave {', '.join(adapted)} out to train that further, "
            "or start from its base, or from kb.merged of it"
        )
    return changed(encoder, adapted, name, config), name, digest


def _adaptation(spec: Spec) -> str:
    return f"lora.rank {spec.lora.rank}, adapters.width {spec.adapters.width}"


def _held(
    model: "str | os.PathLike | keras.Model | Ensemble", changes: JsonMap, policy: str
) -> tuple[SpecModel, str, str]:
    """The encoder of a directory, or of a model itself."""
    if not isinstance(model, str | os.PathLike):
        encoder = encoder_of(model)
        if changes or policy != "float32":
            raise InputError(
                "changes and precision apply to a model directory: save the encoder, or build it with them"
            )
        return encoder, encoder.model_name or registry.family_of(encoder).name, model_files.digest_of(encoder)
    info = checkpoints.read_model_json(model)
    with precision(policy), initial.unset():
        encoder = registry.family(info.family).encoder(specs.derive(info.spec, changes))
        encoder.build()
        encoder.model_name = info.name
    checkpoints.load_weights(model, encoder)
    from kerasbert import text

    if (tokenizer := text.held_tokenizer(model)) is not None:
        encoder.tokenizer = tokenizer
    return encoder, info.name, model_files.digest(model)


def head(model: "str | os.PathLike | keras.Model | Ensemble", name: str) -> dict[str, np.ndarray]:
    """The arrays by name of a head of a directory or of a model; {} of one that it has not."""
    if isinstance(model, Path):
        return head_arrays(checkpoints.read_tensors(model), name)
    held = (getattr(model, "heads", None) or {}).get(name, {})
    return dict(held) if isinstance(held, Mapping) else values(held)


def lacks_pooler(encoder: Encoder, name: str) -> bool:
    """Whether the family has a pooler and this encoder, a masked LM's, has none."""
    had = registry.family(name.partition("/")[0]).spec
    return specs.maybe(had, "pooler", False) and not specs.maybe(encoder.spec, "pooler")


def changed(
    encoder: Encoder, changes: Mapping[str, object], name: str, config: FinetuneConfig, new: Collection[str] = ()
) -> SpecModel:
    """The same encoder with parts that start as new: an adaptation, a pooler, or weights of these names.

    Others' classifiers have a pooler, without it none is exported.
    """
    keras.utils.set_random_seed(config.seed)
    with precision(config.precision):
        made = built(registry.family(name.partition("/")[0]), specs.derive(encoder.spec, changes), name)
    had = names(encoder)
    for weight, variable in names(made).items():
        if weight in had and weight not in new:
            variable.assign(had[weight])
    made.tokenizer, made.labels = encoder.tokenizer, encoder.labels
    return made


def renewed(encoder: Encoder, layers: int, name: str, config: FinetuneConfig) -> SpecModel:
    """The encoder whose pooler and last layers start as new (Zhang et al., 2021, section 5: 1 to 6 of 24).

    Raises:
        InputError: it has no so many layers of their own.
    """
    found = {weight: re.match(r"block_(\d+)/", weight) for weight in names(encoder)}
    blocks = sorted({int(block[1]) for block in found.values() if block})
    if layers > len(blocks):
        held = f"{len(blocks)} layers" if blocks else "no layers"
        raise InputError(f"reinit is {layers}, and {name} has {held} with weights of their own: take fewer")
    new = {weight for weight, block in found.items() if block and int(block[1]) in blocks[-layers:]}
    return changed(encoder, {}, name, config, new | {weight for weight in found if weight.startswith("pooler/")})


def with_graph(encoder: "Encoder", graph: KnowledgeGraph, name: str, config: FinetuneConfig) -> tuple[SpecModel, str]:
    """The encoder that reads sentence trees of a graph, with the weights of this one, and its name.

    Raises:
        InputError: it has no tokenizer, or no family reads trees with its weights.
    """
    if encoder.tokenizer is None:
        raise InputError("the model has no tokenizer, and a graph is found in texts: import it with one")
    family = registry.with_tree(registry.family(name.partition("/")[0]))
    if registry.family_of(encoder) is not family:
        size, known = name.partition("/")[2], registry.families()
        same = size in family.sizes and known[name.partition("/")[0]].size(size) == family.size(size)
        name = f"{family.name}/{size}" if same else family.name
        encoder = changed(encoder, {}, name, config)
    encoder.tokenizer = with_knowledge(encoder.tokenizer, graph)
    return encoder, name


def named(model: str | os.PathLike) -> str:
    """What run.json calls a model that was given: the whole path of a folder, else its name."""
    name = os.fspath(model)
    return os.path.abspath(name) if os.path.exists(name) or os.path.exists(name.rpartition("@")[0]) else name
