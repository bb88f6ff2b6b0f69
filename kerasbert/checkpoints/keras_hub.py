"""KerasHub presets on disk: config.json, model.weights.h5 and assets/tokenizer, written by `save_to_preset`.

Keras files a layer's weights under the snake case of its class and a running number, and a weight under its place in the
layer. The rows of a family's `keras_hub` dialect say which is which; blocks are `layers/transformer_encoder_{i}/...`.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import registry
from kerasbert.checkpoints.fit import NamedFormat
from kerasbert.checkpoints.formats import ImportOptions, Opened
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.pieces import fitting
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from kerasbert.storage import unused
from kerasbert.storage.json_view import JsonView
from kerasbert.text import BytePairEncoding, WordPiece, hf, load_tokenizer
from kerasbert.text.base import Tokenizer

WEIGHTS = "model.weights.h5"
UNPROJECTED = "E = H"  # a class of files of its own: ELECTRA has no projection there, and its layers other numbers
_ABOUT = ("class_name", "module", "registered_name", "build_config", "compile_config", "weights", "assets", "version")
_UNREAD = {
    "name": "of the layer",
    "trainable": "what training may change",
    "dtype*": "how it is computed there",
}
# settings of its tokenizers: what is computed here, and what changes no id
_TOKENIZER = {"split": True, "split_on_cjk": True, "suffix_indicator": "##", "sequence_length": None}
_TOKENIZER_UNREAD = {
    **_UNREAD,
    "config_file": "its own name",
    "vocabulary": "a file beside it",
    "merges": "a file beside it",
    "proto": "a file beside it",
    "oov_token": "a piece of the vocabulary",
    "unk_token": "a piece of the vocabulary",
    "special_tokens*": "pieces of the vocabulary",
    "unsplittable_tokens": "pieces of the vocabulary",
}
_BLOCK = "layers/transformer_encoder_{i}"
_ROWS = (
    ("block_{i}/attention/query", f"{_BLOCK}/_self_attention_layer/query_dense"),
    ("block_{i}/attention/key", f"{_BLOCK}/_self_attention_layer/key_dense"),
    ("block_{i}/attention/value", f"{_BLOCK}/_self_attention_layer/value_dense"),
    ("block_{i}/attention/output", f"{_BLOCK}/_self_attention_layer/output_dense"),
    ("block_{i}/attention_norm", f"{_BLOCK}/_self_attention_layer_norm"),
    ("block_{i}/feedforward/inner", f"{_BLOCK}/_feedforward_intermediate_dense"),
    ("block_{i}/feedforward/outer", f"{_BLOCK}/_feedforward_output_dense"),
    ("block_{i}/feedforward_norm", f"{_BLOCK}/_feedforward_layer_norm"),
    ("embeddings/norm", "layers/layer_normalization"),
    ("embeddings/segments/table", "layers/embedding/vars/0"),
)
_CONFIG = (
    ("embeddings.vocabulary", "vocabulary_size"),
    ("embeddings.positions", "max_sequence_length"),
    ("hidden", "hidden_dim"),
    ("blocks.layers", "num_layers"),
    ("attention.heads", "num_heads"),
    ("feedforward.width", "intermediate_dim"),
    ("dropout", "dropout"),
)


def dialect(
    backbone: str, *rows: tuple[str, ...], config: tuple[tuple, ...] = (), joined: bool = False, **spec: Any
) -> Dialect:
    """The names of one backbone class.

    Args:
        backbone: its class, BertBackbone.
        rows: the rows of its own.
        config: its own keys, in place of those with the same path.
        joined: whether it has one layer for the tables of tokens and positions.
        spec: what the family's Spec is in these files, `feedforward__activation="gelu_tanh"`.
    """
    tables = "layers/token_and_position_embedding" if joined else "layers"
    tokens = "token_embedding" if joined else "reversible_embedding"
    own = {path for path, *_ in config}
    return Dialect(
        rows=(
            *rows,
            *_ROWS,
            ("embeddings/tokens/table", f"{tables}/{tokens}/vars/0"),
            ("embeddings/positions/table", f"{tables}/position_embedding/vars/0"),
        ),
        leaves={"kernel": ("/vars/0",), "bias": ("/vars/1",), "gamma": ("/vars/0",), "beta": ("/vars/1",)},
        heads={},
        config=(*config, *(row for row in _CONFIG if row[0] not in own)),
        fixed={"class_name": backbone},
        spec={path.replace("__", "."): value for path, value in spec.items()},
        unread=_UNREAD,
    )


class Preset:
    """The weights of a preset, read lazily; the heads of attention matrices are flattened, blocks numbered from 0."""

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
        self._paths: dict[str, str] = {}
        self._file.visititems(self._note)

    def _note(self, path: str, item: Any) -> None:
        if hasattr(item, "shape"):
            self._paths[re.sub(r"^layers/transformer_encoder/", "layers/transformer_encoder_0/", path)] = path

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._paths)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return _flat(name, tuple(self._file[self._paths[name]].shape))

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        return self.stored(name).astype(np.float32, copy=False)

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        return np.asarray(self._file[self._paths[name]][()]).reshape(self.shape(name))


def _flat(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shapes of einsum layers as matrices: [H, N, D] and [N, D] of query, key and value, [N, D, H] of the output."""
    if re.search(r"/(query|key|value)_dense/vars/\d+$", name) and len(shape) > 1:
        return (*shape[:-2], shape[-2] * shape[-1])
    if name.endswith("/output_dense/vars/0") and len(shape) == 3:
        return (shape[0] * shape[1], shape[2])
    return shape


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


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The preset's tokenizer; None where it has none.

    Differs: KerasHub's splitting of text (tensorflow-text's regular expressions) differs from Hugging Face's in rare
    characters; the tokenizer read here follows Hugging Face's.
    """
    assets = folder / "assets" / "tokenizer"
    if not assets.is_dir() or not (folder / "tokenizer.json").is_file():
        return None
    settings = JsonView(read_json(folder / "tokenizer.json").get("config", {}))
    for key, only in _TOKENIZER.items():
        if settings.get(key, only) not in (only, None):
            raise InputError(
                f"{folder / 'tokenizer.json'} has {key} {settings[key]!r}, expected {only!r}: no such tokenizer here"
            )
    settings.read("lowercase", "strip_accents", "add_prefix_space")
    unused.leave(folder / "tokenizer.json", settings.unread(_TOKENIZER_UNREAD))
    if (assets / "vocabulary.txt").is_file():
        pieces = (assets / "vocabulary.txt").read_text("utf-8").split("\n")
        flags: dict[str, Any] = {name: bool(settings.get(name, False)) for name in ("lowercase", "strip_accents")}
        return WordPiece([piece for piece in pieces if piece], **flags)
    if (assets / "vocabulary.json").is_file():
        lines = (assets / "merges.txt").read_text("utf-8").split("\n")
        merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        pieces = hf.by_id(read_json(assets / "vocabulary.json"))
        tokenizer: BytePairEncoding = hf.byte_level(
            pieces, merges, add_prefix_space=bool(settings.get("add_prefix_space", False))
        )
        return tokenizer
    models = sorted(assets.glob("*.spm"))
    return load_tokenizer(models[0]) if models else None


class OpenedPreset(Opened):
    """A preset."""

    def tokenizer(self, spec: Spec, asked: ImportOptions) -> Any:
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
                known.setdefault(family.names[self.names].fixed["class_name"], family.name)
        name = opened.config["class_name"]
        if name not in known:
            raise InputError(f"{opened.folder} holds a {name}, expected one of {', '.join(sorted(known))}")
        return known[name]


registry.register_format("keras_hub", KerasHub())
