"""ELMo in AllenNLP's and bilm-tf's files: options.json and an hdf5, in and out.

An LSTM's W_0 [P + P, 4U] has the input's rows before the state's, and its gates in TensorFlow 1's order i, j (our g), f, o, whose
cell adds 1.0 to f's bias: it is added when reading and taken off when writing. char_embed has no row of padding. A
highway's W_carry belongs to the gate that lets the transformed part through.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints.directory import ModelInfo, Weights, built, named_weights, save_model
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import Coverage, Pair, matches
from kerasbert.errors import InputError
from kerasbert.inputs import WORD
from kerasbert.storage import files
from kerasbert.text.characters import ORDER, ROWS, CharacterWords
from kerasbert.text.files import tokenizer_file

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
FORGET_BIAS = 1.0
WAYS = ("forward", "backward")
Shape = tuple[int, ...]

# dotted path in options.json -> path of the Spec, and its type
FIELDS: Mapping[str, tuple[str, type]] = {
    "char_cnn.embedding.dim": ("embeddings.width", int),
    "char_cnn.n_highway": ("embeddings.highways", int),
    "char_cnn.activation": ("embeddings.activation", str),
    "lstm.dim": ("recurrence.units", int),
    "lstm.n_layers": ("recurrence.layers", int),
    "lstm.cell_clip": ("clips.cell", float),
    "lstm.proj_clip": ("clips.projection", float),
}
FIXED: Mapping[str, Any] = {
    "char_cnn.max_characters_per_token": WORD,
    "lstm.use_skip_connections": True,
}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A dataset of theirs and what it is here.

    Args:
        name, shape: of the dataset.
        ours: names of weights.
        read: its array -> theirs in the order of `ours`. write: the inverse.
    """

    name: str
    shape: Shape
    ours: tuple[str, ...]
    read: Callable[[np.ndarray], Sequence[np.ndarray]] = lambda array: [array]
    write: Callable[..., np.ndarray] = lambda array: array


def tensors(spec: Any) -> Iterator[Tensor]:
    """Every dataset of a model of these settings."""
    about, width = spec.embeddings, spec.width
    total, units = sum(about.filters), spec.recurrence.units or spec.hidden
    yield Tensor("char_embed", (ROWS, about.width), ("characters/table",))
    for k, count in enumerate(about.filters, 1):
        shape, ours = (1, k, about.width, count), f"characters/convolution_{k}"
        flat = (k * about.width, count)
        yield Tensor(
            f"CNN/W_cnn_{k - 1}",
            shape,
            (f"{ours}/kernel",),
            lambda array, flat=flat: [array.reshape(flat)],
            lambda array, shape=shape: array.reshape(shape),
        )
        yield Tensor(f"CNN/b_cnn_{k - 1}", (count,), (f"{ours}/bias",))
    for i in range(about.highways):
        for part in ("carry", "transform"):
            ours = f"characters/highway_{i}/{part}"
            yield Tensor(f"CNN_high_{i}/W_{part}", (total, total), (f"{ours}/kernel",))
            yield Tensor(f"CNN_high_{i}/b_{part}", (total,), (f"{ours}/bias",))
    yield Tensor("CNN_proj/W_proj", (total, width), ("characters/projection/kernel",))
    yield Tensor("CNN_proj/b_proj", (width,), ("characters/projection/bias",))
    for i in range(spec.recurrence.layers):
        for number, way in enumerate(WAYS):
            cell, ours = f"RNN_{number}/RNN/MultiRNNCell/Cell{i}/LSTMCell", f"block_{i}/{way}"
            yield Tensor(
                f"{cell}/W_0",
                (2 * width, 4 * units),
                (f"{ours}/kernel", f"{ours}/recurrent_kernel"),
                lambda array: np.split(_gates(array), 2),
                lambda *arrays: _gates(np.concatenate(arrays)),
            )
            yield Tensor(f"{cell}/B", (4 * units,), (f"{ours}/bias",), lambda array: [_bias(array)], _bias_out)
            yield Tensor(f"{cell}/W_P_0", (units, width), (f"{ours}/projection_kernel",))


def _gates(array: np.ndarray) -> np.ndarray:
    """Theirs i, g, f, o in the order i, f, g, o, and the other way round."""
    i, g, f, o = np.split(array, 4, axis=-1)
    return np.concatenate([i, f, g, o], axis=-1)


def _bias(array: np.ndarray) -> np.ndarray:
    i, f, g, o = np.split(_gates(array), 4)
    return np.concatenate([i, (f + array.dtype.type(FORGET_BIAS)).astype("float32"), g, o]).astype("float32")


def _bias_out(array: np.ndarray) -> np.ndarray:
    """The inverse of `_bias`, to the bit: in float64 where float32 cannot hold a forget bias less 1.0."""
    i, f, g, o = np.split(array, 4)
    for kind in ("float32", "float64"):
        found = np.concatenate([i, g, f.astype(kind) - np.dtype(kind).type(FORGET_BIAS), o])
        if (_bias(found) == array).all():
            break
    return found


def read_options(path: Path) -> dict[str, Any]:
    """options.json -> changes of a Spec.

    Raises:
        InputError: a setting is missing, of another kind, or one that ELMo here has not.
    """
    content, changes = read_json(path), {}

    def said(name: str) -> Any:
        node: Any = content
        for part in name.split("."):
            if not isinstance(node, Mapping) or part not in node:
                raise InputError(f"{path} has no {name}, expected the options of an ELMo")
            node = node[part]
        return node

    for name, (ours, kind) in FIELDS.items():
        value = said(name)
        value = float(value) if kind is float and type(value) is int else value
        if type(value) is not kind:
            raise InputError(f"{path}: {name} must be of type {kind.__name__}. Received: {str(value)[:60]!r}")
        most = 64 if "_" in name else 1 << 20  # layers and highways
        if kind is int and not 0 <= value < most:
            raise InputError(f"{path}: {name} must be a size. Received: {value}")
        changes[ours] = value
    for name, wanted in FIXED.items():
        if said(name) != wanted:
            raise InputError(f"{path}: {name} must be {wanted}. Received: {str(said(name))[:60]!r}")
    width, filters = said("lstm.projection_dim"), said("char_cnn.filters")
    if type(width) is not int or not 0 < width < 1 << 20:
        raise InputError(f"{path}: lstm.projection_dim must be a size. Received: {str(width)[:60]!r}")
    if not isinstance(filters, list) or [each[:1] for each in filters if isinstance(each, list)] != [
        [k] for k in range(1, len(filters) + 1)
    ]:
        raise InputError(
            f"{path}: char_cnn.filters must be [width, number], widths 1, 2, ... Received: {str(filters)[:60]}"
        )
    counts = tuple(each[1] if len(each) == 2 else None for each in filters)
    if any(type(each) is not int or not 0 < each < 1 << 20 for each in counts):
        raise InputError(f"{path}: char_cnn.filters must have numbers of filters. Received: {str(filters)[:60]}")
    return changes | {"hidden": 2 * width, "embeddings.filters": counts}


def options_of(spec: Any) -> dict[str, Any]:
    """The options.json of a model of these settings."""
    content: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        *parents, last = name.split(".")
        node = content
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value

    for name, (ours, _) in FIELDS.items():
        put(name, specs.get(spec, ours))
    for name, value in FIXED.items():
        put(name, value)
    put("lstm.projection_dim", spec.width)
    put("char_cnn.filters", [list(pair) for pair in enumerate(spec.embeddings.filters, 1)])
    put("char_cnn.n_characters", ROWS + 1)
    content["bidirectional"] = True
    return content


def place_of(path: str | os.PathLike) -> tuple[Path, Path]:
    """The options and the weights that a path names: a folder with one of each, or a .hdf5 beside its options."""
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    if not folder.is_dir():
        raise InputError(f"no folder {folder}, expected one with *options.json and *.hdf5")
    weights = [place] if place.is_file() else sorted(folder.glob("*.hdf5"))
    options = sorted(folder.glob("*options.json"))
    if place.is_file() and len(options) > 1:
        options = [each for each in options if each.name == place.name.replace("weights.hdf5", "options.json")]
    for found, pattern in ((options, "*options.json"), (weights, "*.hdf5")):
        if len(found) != 1:
            raise InputError(f"{path} has {len(found)} files {pattern}, expected one")
    return options[0], weights[0]


class Datasets:
    """The datasets of an hdf5; what lies in other files is not followed."""

    def __init__(self, path: Path):
        import h5py

        try:
            self.file = h5py.File(path, "r")
            self.sets: dict[str, Any] = {}
            self.file.visititems(self._note)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise InputError(f"{path} is damaged, or no hdf5 file: download it again") from error
        self.path = path

    def _note(self, name: str, item: Any) -> None:
        import h5py

        own = isinstance(item, h5py.Dataset) and item.dtype.kind == "f" and not item.is_virtual
        if own and item.external is None:
            self.sets[name] = item

    def read(self, name: str) -> np.ndarray:
        """A dataset, whose shape was checked.

        Raises:
            InputError: it cannot be read, or holds a number that is not finite.
        """
        try:
            array = self.sets[name][()]
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(f"{name} in {self.path} is damaged: download the file again") from error
        if not np.isfinite(array).all():
            raise InputError(f"{name} in {self.path} holds numbers that are not finite: take another file")
        return array if array.dtype == np.float64 else array.astype("float32")


def covered(spec: Any, sets: Mapping[str, Shape], ignore: Sequence[str]) -> Coverage:
    """What goes where."""
    known = {each.name: each for each in tensors(spec)}
    pairs = tuple(Pair(ours, each.name, False, each.shape) for each in known.values() for ours in each.ours)
    ignored = tuple(name for name in sets if matches(name, ignore))
    missing = tuple(name for name in known if name not in sets or name in ignored)
    extra = tuple(name for name in sets if name not in known and name not in ignored)
    wrong = tuple(
        f"{name} is {list(sets[name])}, expected {list(each.shape)}"
        for name, each in known.items()
        if name not in missing and tuple(sets[name]) != each.shape
    )
    return Coverage(pairs, (), ignored, missing, extra, wrong)


def read(
    path: str | os.PathLike,
    model: str | None = None,
    out: str | os.PathLike | None = None,
    *,
    tokenizer: str | os.PathLike | None = None,
    ignore: Sequence[str] = (),
    dry_run: bool = False,
    overwrite: bool = False,
    build: bool = True,
) -> Any:
    """`load.import_checkpoint` of ELMo's files; arguments, result and errors are its.

    The files hold no words: without a tokenizer beside them or a given one the model has one of no words, which reads all texts.
    """
    options, weights = place_of(path)
    named = None
    if model and "/" in model:
        family, named = registry.find(model)
    else:
        family = registry.family(model or "elmo")
    base = family.spec
    if not hasattr(base, "clips"):
        raise InputError(f"{path} holds an ELMo, and {family.name} is none: leave model out (--model)")
    changes = read_options(options)
    pieces = _tokenizer(tokenizer, weights.parent)
    vocabulary = {"embeddings.vocabulary": len(ORDER) if pieces is None else pieces.size}
    spec = specs.derive(base, changes | vocabulary)
    if named and (differ := specs.differences(specs.derive(named, vocabulary), spec)):
        sizes = ", ".join(f"{field} {theirs} instead of {ours}" for field, (ours, theirs) in differ.items())
        raise InputError(f"{options} is not {model}: {sizes}. Leave model out: sizes come from there")
    data = Datasets(weights)
    coverage = covered(spec, {name: tuple(each.shape) for name, each in data.sets.items()}, ignore)
    if dry_run:
        return coverage
    if not coverage.fits:
        raise coverage.problems(weights)
    arrays: dict[str, np.ndarray] = {}
    for each in tensors(spec):
        found = each.read(data.read(each.name))
        arrays |= {ours: np.ascontiguousarray(array, "float32") for ours, array in zip(each.ours, found, strict=True)}
    sizes = [size for size in family.sizes if specs.derive(family.size(size), vocabulary) == spec]
    name = f"{family.name}/{sizes[0]}" if sizes else family.name
    if out is not None:
        save_model(out, replace=overwrite, encoder=Weights(spec, arrays), name=name, tokenizer=pieces)
    if not build:
        return None
    encoder = built(family, spec, name)
    for weight, variable in named_weights(encoder).items():
        variable.assign(arrays.pop(weight))
    encoder.heads, encoder.labels, encoder.task, encoder.tokenizer, encoder.source = {}, None, None, pieces, None
    return encoder


def _tokenizer(asked: str | os.PathLike | None, folder: Path) -> Any:
    if asked is not None and os.fspath(asked) == "none":
        return None
    if asked is None and not tokenizer_file(folder):
        return CharacterWords(ORDER)
    found = text.load_tokenizer(Path(asked or folder))
    if found.kind != CharacterWords.kind:
        raise InputError(f"the tokenizer in {asked or folder} is of kind {found.kind}, expected {CharacterWords.kind}")
    return found


def write(path: str | os.PathLike, info: ModelInfo, weights: Any, tokenizer: Any, overwrite: bool = False) -> None:
    """Write options.json, weights.hdf5 and the tokenizer's files.

    Args:
        path: a folder; it appears whole or not at all.
        info: of the model. weights: with `read(name)` (`directory.read_tensors`); heads have no place there and stay.

    Raises:
        InputError: the model is no ELMo.
    """
    import h5py

    if not hasattr(info.spec, "clips"):
        raise InputError(f"{info.name} is no ELMo, which AllenNLP's files hold: export it as hf or tf1")
    with files.new_directory(path, overwrite) as folder:
        files.write_json(folder / OPTIONS, options_of(info.spec))
        with h5py.File(folder / WEIGHTS, "w") as file:
            for each in tensors(info.spec):
                file.create_dataset(each.name, data=each.write(*map(weights.read, each.ours)))
        if tokenizer is not None:
            tokenizer.save(folder)
