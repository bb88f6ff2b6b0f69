"""KerasHub presets on disk: config.json, model.weights.h5 and assets/tokenizer, as `save_to_preset` writes them; in and out.

Keras files a layer's weights under the snake case of its class and a running number, and a weight under its place in the
layer. The rows of a family's `keras_hub` dialect say which is which; blocks are `layers/transformer_encoder_{i}/...`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import registry
from kerasbert.checkpoints import keras_hub_files
from kerasbert.checkpoints.fit import NamedFormat
from kerasbert.checkpoints.formats import ImportOptions, Opened
from kerasbert.checkpoints.forms import ByHead, Form, Shape
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.keras_hub_files import UNPROJECTED, WEIGHTS, in_rows
from kerasbert.checkpoints.keras_hub_tokenizers import read_tokenizer
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.pieces import fitting
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from kerasbert.storage import unused
from kerasbert.storage.json_view import JsonView

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


_ABOUT = ("class_name", "module", "registered_name", "build_config", "compile_config", "weights", "assets", "version")
UNREAD = {
    "name": "of the layer",
    "trainable": "what training may change",
    "dtype*": "how it is computed there",
}
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


def dialect(
    backbone: str,
    *rows: tuple[str, ...],
    config: tuple[tuple, ...] = (),
    without: tuple[str, ...] = (),
    joined: bool = False,
    **spec: Any,
) -> Dialect:
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
    return Dialect(
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
    """The weights of a preset, read lazily; blocks are numbered from 0."""

    def __init__(self, folder: Path) -> None:
        import h5py

        path = folder / WEIGHTS
        if not path.is_file():
            raise InputError(
                f"{folder} holds no {WEIGHTS}, expected the folder of a KerasHub preset with unsharded weights"
            )
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise InputError(f"cannot read {path} as Keras weights: {str(error).splitlines()[0]}") from error
        found: list[str] = []
        self._file.visititems(lambda path, item: found.append(path) if hasattr(item, "shape") else None)
        self._paths = in_rows(found)

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._paths)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self._file[self._paths[name]].shape)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        return self.stored(name).astype(np.float32, copy=False)

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        return np.asarray(self._file[self._paths[name]][()])


def read_config(folder: Path) -> JsonView | None:
    """The backbone's settings and its class, flat; None where there is no configuration."""
    if not (folder / "config.json").is_file():
        return None
    content = read_json(folder / "config.json")
    if not isinstance(content.get("config"), dict) or not isinstance(content.get("class_name"), str):
        raise InputError(f"{folder / 'config.json'} is no configuration of a KerasHub preset: no class_name and config")
    config = content["config"] | {"class_name": content["class_name"]}
    if "embedding_dim" in config and config["embedding_dim"] == config.get("hidden_dim"):
        config["architectures"] = [UNPROJECTED]
    about = {f"{key} of the preset": value for key, value in content.items() if key not in ("config", *_ABOUT)}
    if (folder / "task.json").is_file():
        unused.leave(folder / "task.json", ["the head of its class"])
    return JsonView(config | about)


class OpenedPreset(Opened):
    """A preset."""

    def tokenizer(self, spec: Spec, asked: ImportOptions) -> "Tokenizer | None":
        """The tokenizer that was asked for, else the preset's."""
        if asked.tokenizer:
            return super().tokenizer(spec, asked)
        return fitting(read_tokenizer(self.folder), self.folder, spec)


class KerasHub(NamedFormat):
    """The folder of a preset."""

    names = "keras_hub"
    title = "a preset of KerasHub"

    def looks_like(self, path: Path) -> bool:
        """Whether there are the weights of one."""
        return (path / WEIGHTS).is_file()

    def open(self, path: Path, asked: ImportOptions) -> Opened:
        """Open it."""
        return OpenedPreset(path, path, Preset(path), read_config(path))

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
        """Write config.json, model.weights.h5 and the tokenizer."""
        keras_hub_files.write(run, path, overwrite)


registry.register_format("keras_hub", KerasHub())
