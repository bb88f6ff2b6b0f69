"""KerasHub presets on disk: config.json, the weights and assets/tokenizer, as `save_to_preset` writes them; in and out.

The weights are model.weights.h5, or the files that model.weights.json names; those of a task are in `keras_hub_tasks`.

Keras files a layer's weights under the snake case of its class and a running number, and a weight under its place in the
layer. The rows of a family's `keras_hub` dialect say which is which; blocks are `layers/transformer_encoder_{i}/...`.
"""

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import registry
from kerasbert.checkpoints import keras_hub_files, keras_hub_tasks
from kerasbert.checkpoints.fit import NamedFormat
from kerasbert.checkpoints.formats import Answers, ImportOptions, Opened
from kerasbert.checkpoints.forms import ByHead, Form, Shape
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.keras_hub_files import SHARDS, UNPROJECTED, WEIGHTS, in_rows
from kerasbert.checkpoints.keras_hub_tasks import PREFIX, TASK_WEIGHTS, Task, activation_of
from kerasbert.checkpoints.keras_hub_tokenizers import read_tokenizer
from kerasbert.checkpoints.names import Dialect, matches
from kerasbert.checkpoints.pieces import fitting
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from kerasbert.storage import unused
from kerasbert.storage.json_view import Json, JsonView

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


_ABOUT = ("class_name", "module", "registered_name", "build_config", "compile_config", "weights", "assets", "version")
UNREAD = {
    "name": "of the layer",
    "trainable": "what training may change",
    "dtype*": "how it is computed there",
}
# its activations -> ours; the tanh approximation of GELU is a function of its own, which a configuration names in a dict
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_approximate": "gelu_tanh", "silu": "swish", "tanh": "tanh"}
_IN_OTHER_FILES = (*UNREAD, "backbone*", "preprocessor*", "tokenizer*", "config_file")  # of a task and a preprocessor
# values of theirs that say nothing: what is done here too, and in training alone the defaults of their classes
_SAME = {"truncate": ("round_robin",), "activation": ("linear",), "dropout": (0.0, 0.1, 0.2)}
_FLOATS = {"DTypePolicy", "FloatDTypePolicy", "DTypePolicyMap"}
_ATTENTION = ("query", "key", "value", "output")
_LEAVES = {"kernel": ("/vars/0",), "bias": ("/vars/1",), "gamma": ("/vars/0",), "beta": ("/vars/1",)}
_CONFIG = (
    ("embeddings.vocabulary", "vocabulary_size"),
    ("embeddings.positions", "max_sequence_length"),
    ("hidden", "hidden_dim"),
    ("blocks.layers", "num_layers"),
    ("attention.heads", "num_heads"),
    ("feedforward.width", "intermediate_dim"),
    ("dropout", "dropout"),
)


class _Output(ByHead):
    """[N, D, H] of theirs, ours [N*D, H]; a plain matrix of that name is as ours."""

    def shape(self, theirs: Shape, heads: int | None) -> Shape | None:
        """The shape of ours."""
        return super().shape(theirs, heads) if len(theirs) == 3 else None


FORMS: dict[str, Form] = {
    "*/output_dense/vars/0": _Output(0),
    **{f"*{part}_dense/vars/0": ByHead(1) for part in ("query", "key", "value")},
    **{f"*{part}_dense/vars/1": ByHead(0) for part in ("query", "key", "value")},
}


def block(theirs: str = "transformer_encoder", ours: str = "block_{i}", leaf: str = "{}_dense") -> tuple:
    """Rows of the blocks of one stack.

    Args:
        theirs: the class of their layer. ours: of our block. leaf: what the maps of their attention are called.
    """
    inside, rows = f"layers/{theirs}_{{i}}", []
    for part, place in (("attention", "self_attention"), ("cross_attention", "cross_attention")):
        names = ((each, f"{inside}/_{place}_layer/{leaf.format(each)}") for each in _ATTENTION)
        rows += [(f"{ours}/{part}/{each}", name) for each, name in names]
        rows += [(f"{ours}/{part}_norm", f"{inside}/_{place}_layer_norm")]
    return (
        *rows,
        (f"{ours}/feedforward/inner", f"{inside}/_feedforward_intermediate_dense"),
        (f"{ours}/feedforward/outer", f"{inside}/_feedforward_output_dense"),
        (f"{ours}/feedforward_norm", f"{inside}/_feedforward_layer_norm"),
    )


def written_activation(name: str) -> str | Json:
    """An activation as a configuration says it."""
    function = {"module": "builtins", "class_name": "function", "registered_name": "function"}
    return function | {"config": f"keras_hub>{name}"} if name == "gelu_approximate" else name


class Backbone(Dialect):
    """The names of a backbone; some have their activation as a setting."""

    def read_config(self, config: Json) -> Json:
        """With its name."""
        return config | ({"activation": activation_of(config["activation"])} if "activation" in config else {})

    def write_config(self, config: Json, spec: "Spec") -> Json:
        """As their class has it."""
        return config | ({"activation": written_activation(config["activation"])} if "activation" in config else {})


def dialect(
    backbone: str,
    *rows: tuple[str, ...],
    config: tuple[tuple, ...] = (),
    without: tuple[str, ...] = (),
    joined: bool = False,
    **spec: Any,
) -> Backbone:
    """The names of one backbone class.

    Args:
        backbone: its class, BertBackbone.
        rows: the rows of its own, which go before the others.
        config: its own keys, in place of those with the same path. without: paths that it says nothing of.
        joined: whether it has one layer for the tables of tokens and positions.
        spec: what the family's Spec is in these files, `feedforward__activation="gelu_tanh"`.
    """
    tables = "layers/token_and_position_embedding" if joined else "layers"
    tokens = "token_embedding" if joined else "reversible_embedding"
    own = {*without, *(path for path, *_ in config)}
    return Backbone(
        rows=(
            *rows,
            *block(),
            ("embeddings/norm", "layers/layer_normalization"),
            ("embeddings/segments/table", "layers/embedding/vars/0"),
            ("embeddings/tokens/table", f"{tables}/{tokens}/vars/0"),
            ("embeddings/positions/table", f"{tables}/position_embedding/vars/0"),
        ),
        leaves=_LEAVES,
        forms=FORMS,
        heads={},
        config=(*config, *(row for row in _CONFIG if row[0] not in own)),
        fixed={"class_name": backbone},
        spec={path.replace("__", "."): value for path, value in spec.items()},
        unread=UNREAD,
    )


class Preset:
    """The weights of a preset, read lazily; blocks are numbered from 0.

    Args:
        folder: of the preset. task: whether those of its task are read too.
    """

    def __init__(self, folder: Path, task: bool = False) -> None:
        backbone = {path: (file, path) for place in _files(folder) for path, file in _tensors(place)}
        self._paths = {name: backbone[path] for name, path in in_rows(backbone).items()}
        own = _tensors(folder / TASK_WEIGHTS) if task else ()
        self._paths |= {PREFIX + path: (file, path) for path, file in own}

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._paths)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self._of(name).shape)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        return self.stored(name).astype(np.float32, copy=False)

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        found = self._of(name)
        value = np.asarray(found[()])
        if found.attrs.get("dtype") == "bfloat16":  # HDF5 has no such type: two bytes each
            return (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return value

    def _of(self, name: str) -> Any:
        file, path = self._paths[name]
        return file[path]


def _tensors(place: Path) -> list[tuple[str, Any]]:
    """(path, the open file) of each tensor of a file.

    Raises:
        InputError: it is damaged.
    """
    import h5py

    found: list[str] = []
    try:
        file = h5py.File(place, "r")
        file.visititems(lambda path, item: found.append(path) if hasattr(item, "shape") else None)
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(f"cannot read {place} as Keras weights: {str(error).splitlines()[0]}") from error
    return [(path, file) for path in found]


def _files(folder: Path) -> list[Path]:
    """The files of the weights.

    Raises:
        InputError: there are none, or not all that the list of them names.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / SHARDS).is_file():
        raise InputError(f"{folder} holds no {WEIGHTS} and no {SHARDS}, expected the folder of a KerasHub preset")
    map = read_json(folder / SHARDS).get("weight_map")
    if not isinstance(map, dict) or not map:
        raise InputError(f"{folder / SHARDS} names no files of weights (weight_map)")
    names = sorted({str(name) for said in map.values() for name in (said if isinstance(said, list) else [said])})
    if missing := [name for name in names if Path(name).name != name or not (folder / name).is_file()]:
        raise InputError(
            f"{folder} lacks {', '.join(missing[:3])}, which {SHARDS} names: download every file of the preset"
        )
    return [folder / name for name in names]


def read_config(folder: Path) -> JsonView | None:
    """The backbone's settings and its class, flat; None where there is no configuration."""
    if not (folder / "config.json").is_file():
        return None
    content = read_json(folder / "config.json")
    if not isinstance(content.get("config"), dict) or not isinstance(content.get("class_name"), str):
        raise InputError(f"{folder / 'config.json'} is no configuration of a KerasHub preset: no class_name and config")
    if kinds := _policies(content["config"].get("dtype")) - _FLOATS:
        raise InputError(
            f"{folder / 'config.json'} has a quantized dtype ({', '.join(sorted(kinds))}), expected weights that are floating "
            "point numbers: import the preset before its quantization, and quantize the model here"
        )
    config = content["config"] | {"class_name": content["class_name"], "architectures": [content["class_name"]]}
    about = {f"{key} of the preset": value for key, value in content.items() if key not in ("config", *_ABOUT)}
    return JsonView(config | about)


def _policies(dtype: object) -> set[str]:
    """Classes of the policies that a dtype is made of."""
    if isinstance(dtype, str):
        return {dtype} if re.match(r"u?int|float8|gptq|awq", dtype) else set()
    if not isinstance(dtype, dict):
        return set()
    own = {str(dtype["class_name"])} if "class_name" in dtype else set()
    return own.union(*map(_policies, (each for each in dtype.values() if isinstance(each, dict))))


def _left(config: JsonView) -> list[str]:
    """Settings of theirs that are not read here, but for those at what is done here too."""
    left = config.unread(_IN_OTHER_FILES)
    return [key for key, value in left.items() if value not in _SAME.get(key, ())]


@dataclasses.dataclass
class OpenedPreset(Opened):
    """A preset.

    Args:
        task: of which the head is read; None of a backbone alone.
    """

    task: Task | None = None

    def tokenizer(self, spec: Spec, asked: ImportOptions) -> "Tokenizer | None":
        """The tokenizer that was asked for, else the preset's."""
        if asked.tokenizer:
            return super().tokenizer(spec, asked)
        return fitting(read_tokenizer(self.folder, asked.special_tokens_in_texts), self.folder, spec)

    def answers(self, task: Json | None, classes: int, spec: Spec, asked: ImportOptions) -> Answers:
        """What the head answers, of texts as long as its preprocessor makes them."""
        if self.task is None:
            return Answers(task)
        return Answers(task and task | self.task.length(spec), told=self.task.told(spec))

    def leave(self) -> None:
        """Note what is left of a task, the head of another one, and how its preprocessor makes texts of one length."""
        file, measured = self.folder / keras_hub_tasks.FILE, set()
        if self.task is not None:
            unused.leave(file, _left(self.task.content))
            measured = {"sequence_length"} if self.task.classifies else set()
        elif (task := keras_hub_tasks.read(self.folder)) is not None:
            head = [f"the head of {task.name}"] if (self.folder / TASK_WEIGHTS).is_file() else []
            unused.leave(file, [*head, *_left(task.content)])
        for file in sorted(self.folder.glob(f"*{keras_hub_tasks.PREPROCESSOR}")):
            config = JsonView(read_json(file)).get("config")
            left = _left(config) if isinstance(config, JsonView) else []
            unused.leave(file, [key for key in left if key not in measured])


def _with_task(opened: OpenedPreset, config: Json, task: Task, asked: ImportOptions) -> OpenedPreset:
    """A preset with the head of a task, or without where it is ignored.

    Args:
        config: of the backbone.
    """
    keras_hub_tasks.check_weights(task)
    tensors = Preset(opened.path, task=True)
    head = [name for name in tensors.names() if name.startswith(PREFIX)]
    if head and all(matches(name, asked.ignore) for name in head):
        return dataclasses.replace(opened, tensors=tensors)
    keras_hub_tasks.check_numbers(task, tensors)
    own = JsonView(config | task.keys())
    return dataclasses.replace(opened, tensors=task.fitted(tensors, config.get("hidden_dim")), config=own, task=task)


class KerasHub(NamedFormat):
    """The folder of a preset."""

    names = "keras_hub"
    title = "a preset of KerasHub"

    def looks_like(self, path: Path) -> bool:
        """Whether there are the weights of one."""
        return (path / WEIGHTS).is_file() or (path / SHARDS).is_file()

    def open(self, path: Path, asked: ImportOptions) -> Opened:
        """Open it."""
        opened = OpenedPreset(path, path, Preset(path), read_config(path))
        if opened.config is None or (family := self.family_of(opened)) is None:
            return opened
        config, classes = opened.config.plain(), self.dialect(registry.family(family)).classes
        if UNPROJECTED in classes and config.get("embedding_dim") == config.get("hidden_dim"):
            return dataclasses.replace(opened, config=JsonView(config | {"architectures": [UNPROJECTED]}))
        task = keras_hub_tasks.read(path)
        return opened if task is None or task.name not in classes else _with_task(opened, config, task, asked)

    def family_of(self, opened: Opened) -> str | None:
        """The family of its class."""
        if opened.config is None:
            return None
        known: dict[str, str] = {}
        for family in registry.families().values():
            if self.names in family.names:
                known.setdefault(str(family.names[self.names].fixed["class_name"]), family.name)
        name = opened.config["class_name"]
        if name not in known:
            raise InputError(f"{opened.folder} holds a {name}, expected one of {', '.join(sorted(known))}")
        return known[name]

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write config.json, model.weights.h5, the tokenizer and the files of a task."""
        keras_hub_files.write(run, path, overwrite)


registry.register_format("keras_hub", KerasHub())
