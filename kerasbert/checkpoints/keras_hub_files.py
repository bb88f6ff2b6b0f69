"""The files of a KerasHub preset, written: config.json, metadata.json, the weights, the tokenizer, and those of a task.

What a backbone of theirs computes in another way, with the same numbers, is brought into its form first: rows of the table of
positions in front of the first, and the one segment of RoBERTa, are in its table of positions.
"""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import progress, registry
from kerasbert import spec as specs
from kerasbert.checkpoints import keras_hub_task_files, keras_hub_tasks
from kerasbert.checkpoints.adapters import merged_directory
from kerasbert.checkpoints.directory import ModelInfo, head_names
from kerasbert.checkpoints.keras_hub_task_files import POLICY, described
from kerasbert.checkpoints.keras_hub_tasks import METADATA, PREFIX, TASK_WEIGHTS
from kerasbert.checkpoints.keras_hub_tokenizers import write_tokenizer
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.write import Named, With, Without, dialect_of, of_model, read_model
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Tensors

TARGET, WEIGHTS, SHARDS = "keras_hub", "model.weights.h5", "model.weights.json"
UNPROJECTED = "E = H"  # a class of files of its own: ELECTRA has no projection there, and its layers other numbers
T5_LAYER, T5_DECODER = "t5_transformer_layer", "t5_decoder"  # the stacks of T5 are one row of layers there
_NUMBERED = "transformer_encoder|transformer_decoder|disentangled_attention_encoder|xl_net_encoder|" + T5_LAYER


def in_rows(paths: Iterable[str]) -> dict[str, str]:
    """Paths in the file by their names in the rows of a dialect, where blocks of every stack are numbered from 0.

    >>> in_rows(["layers/transformer_encoder/vars/0", "layers/transformer_encoder_1/vars/0"])
    {'layers/transformer_encoder_0/vars/0': 'layers/transformer_encoder/vars/0', \
'layers/transformer_encoder_1/vars/0': 'layers/transformer_encoder_1/vars/0'}
    """
    names = {re.sub(rf"^layers/({_NUMBERED})/", r"layers/\1_0/", path): path for path in paths}
    numbers = {int(found[1]) for name in names if (found := re.match(rf"layers/{T5_LAYER}_(\d+)/", name))}
    return {_moved(name, T5_LAYER, T5_DECODER, -(len(numbers) // 2)): path for name, path in names.items()}


def in_file(name: str, layers: int) -> str:
    """The path in the file of a name in the rows, of a model of so many layers; the inverse of `in_rows`."""
    name = _moved(name, T5_DECODER, T5_LAYER, layers)
    return re.sub(rf"^layers/({_NUMBERED})_0/", r"layers/\1/", name)


def _moved(name: str, old: str, new: str, by: int) -> str:
    """The name with the number of a layer moved, where it is not below 0 then."""
    found = re.match(rf"layers/{old}_(\d+)(/.*)", name)
    number = int(found[1]) + by if found else -1
    return f"layers/{new}_{number}{found[2]}" if found and number >= 0 else name


def write(run: Path, path: str | os.PathLike, overwrite: bool) -> None:
    """Write a preset: of a classifier, a masked LM or a backbone, as the model's heads are; arguments as of `Format.write`.

    Raises:
        InputError: the model has something that their class does not compute.
    """
    run = merged_directory(run)
    info, tensors = read_model(run)
    dialect = dialect_of(TARGET, info)
    kind = keras_hub_task_files.class_of(run, info, dialect, head_names(tensors))
    heads = dialect.classes[kind].heads if kind in dialect.classes else ()
    tensors = _with_heads(run, info, tensors, heads)
    base = registry.family(info.family).spec.derive(dialect.spec)
    _check_activation(run, info.spec, dialect, base)
    info, tensors = _in_form(run, info, tensors, base.derive({"pooler": base.pooler and dialect.pooled(kind)}))
    kind = UNPROJECTED if UNPROJECTED in dialect.classes and info.spec.embeddings.width is None else kind
    found = of_model(TARGET, run, info, tensors, kind)
    if "mlm" in heads and (differs := keras_hub_tasks.differing(kind, info.spec)):
        progress.say(f"{run}: {differs}: its predictions differ slightly")
    with files.new_directory(path, overwrite) as folder:
        _write(folder, found, kind, bool(heads))


def _write(folder: Path, found: Named, kind: str, task: bool) -> None:
    """Write a model's files.

    Args:
        kind: their class. task: whether that has a head.
    """
    shapes, read = found.whole()
    head = {name.removeprefix(PREFIX): name for name in shapes if name.startswith(PREFIX)}
    own = {in_file(name, found.info.spec.blocks.layers): name for name in shapes if not name.startswith(PREFIX)}
    backbone, count = _config(found.config), sum(math.prod(shapes[name]) for name in own.values())
    about = keras_hub_task_files.metadata(found.info) if "classifier" in head_names(found.tensors) else {}
    files.write_json(folder / "config.json", backbone)
    files.write_json(folder / METADATA, {"parameter_count": count, **about})
    _write_weights(folder / WEIGHTS, own, read)
    pieces = None
    if found.tokenizer is not None:
        pieces = write_tokenizer(folder, found.tokenizer, found.config["class_name"], found.run)
    if task:
        _write_weights(folder / TASK_WEIGHTS, head, read)
        keras_hub_task_files.write(folder, kind, found, backbone, pieces)


def _check_activation(run: Path, spec: specs.Spec, dialect: Dialect, base: specs.Spec) -> None:
    """Refuse an activation that is another in their code, as BERT's GELU is."""
    ours, theirs = spec.feedforward.activation, base.feedforward.activation
    if ours != theirs and all(path != "feedforward.activation" for path, *_ in dialect.config):
        raise InputError(
            f"KerasHub's {dialect.fixed['class_name']} computes {theirs}, {run} {ours}, so that outputs would differ: a model "
            f"that is made with --set feedforward.activation={theirs} can be written"
        )


def _with_heads(run: Path, info: ModelInfo, tensors: "Tensors", kept: tuple[str, ...]) -> "Tensors":
    """The tensors with the heads that their class has; others are left out, which is told."""
    left = [head for head in head_names(tensors) if head not in kept]
    if left:
        progress.say(f"{run}: a preset has no place for the heads {', '.join(left)}: they are left out")
    if info.task and "classifier" not in kept:
        progress.say(f"{run}: a preset has no place for its task ({info.task['kind']}): it is left out")
    return Without(tensors, tuple(f"heads/{head}/" for head in left))


def _in_form(run: Path, info: ModelInfo, tensors: "Tensors", base: specs.Spec) -> tuple[ModelInfo, "Tensors"]:
    """The model as their backbone has it, which computes the same; `base` is what the family's Spec is there."""
    ours, theirs, changes = info.spec.embeddings, base.embeddings, {}
    more: dict[str, np.ndarray] = {}
    without: list[str] = []
    tables = [name for name in tensors.names() if name.endswith("positions/table")]
    if tables and ours.offset and not theirs.offset:
        more |= {name: tensors.read(name)[ours.offset :] for name in tables}
        changes |= {"embeddings.offset": 0, "embeddings.positions": ours.positions - ours.offset}
    if tables and ours.segments == 1 and not theirs.segments:
        segment = tensors.read("embeddings/segments/table")
        more |= {name: more.get(name, tensors.read(name)) + segment for name in tables}
        changes |= {"embeddings.segments": 0}
        without += ["embeddings/segments/"]
    if theirs.segments and not ours.segments:
        more |= {"embeddings/segments/table": np.zeros((1, ours.width or info.spec.hidden), "float32")}
        changes |= {"embeddings.segments": 1}
        progress.say(f"{run}: it has no segments and their backbone has: it gets one of zeros, which adds nothing")
    if base.pooler and not info.spec.pooler and "classifier" not in head_names(tensors):
        size = info.spec.hidden
        more |= {"pooler/kernel": np.zeros((size, size), "float32"), "pooler/bias": np.zeros(size, "float32")}
        progress.say(f"{run}: it has no pooler and their backbone has: that one is 0, and pooled_output of no use")
    elif info.spec.pooler and not base.pooler:
        without += ["pooler/"]
        progress.say(f"{run}: their backbone has no pooler: it is left out")
    pooler = base.pooler and (info.spec.pooler or "pooler/bias" in more)
    info = dataclasses.replace(info, spec=info.spec.derive({**changes, "pooler": pooler}))
    return info, With(Without(tensors, tuple(without)), more) if more else Without(tensors, tuple(without))


def _config(config: JsonMap) -> Json:
    """The content of config.json, of a flat one as `keras_hub.read_config` gives it."""
    own = {key: value for key, value in config.items() if key not in ("class_name", "add_pooling_layer")}
    return described(config["class_name"], {"trainable": True, "dtype": POLICY, **own})


def _write_weights(path: Path, names: Mapping[str, str], read: Callable[[str], np.ndarray]) -> None:
    """Write the weights, by their paths in the file."""
    import h5py

    with h5py.File(path, "w") as file:
        for place in sorted(names):
            file.create_dataset(place, data=read(names[place]))
