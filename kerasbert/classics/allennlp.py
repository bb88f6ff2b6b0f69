"""ELMo in AllenNLP's and bilm-tf's files: options.json and an hdf5, in and out.

An LSTM's W_0 [P + P, 4U] has the input's rows before the state's, and its gates in TensorFlow 1's order i, j (our g), f, o, whose
cell adds 1.0 to f's bias: it is added when reading and taken off when writing. char_embed has no row of padding. A
highway's W_carry belongs to the gate that lets the transformed part through.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerasbert import registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import source
from kerasbert.checkpoints.coverage import Coverage, Pair, check_patterns
from kerasbert.checkpoints.directory import ModelInfo, read_model_json, read_tensors
from kerasbert.checkpoints.formats import Format, ImportOptions
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import matches
from kerasbert.checkpoints.plans import Plan
from kerasbert.errors import InputError
from kerasbert.inputs import WORD
from kerasbert.storage import files, unused
from kerasbert.storage.json_view import Json, JsonMap, JsonView
from kerasbert.text.base import Tokenizer
from kerasbert.text.characters import ORDER, ROWS, CharacterWords
from kerasbert.text.files import tokenizer_file

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Tensors
    from kerasbert.classics.elmo import ELMoSpec


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
# what the released options say of the training, and what changes no number
UNREAD: Mapping[str, str] = {
    "all_clip_norm_val": "of the training",
    "batch_size": "of the training",
    "dropout": "of the training",
    "learning_rate": "of the training",
    "n_batches": "of the training",
    "n_epochs": "of the training",
    "n_negative_samples_batch": "of the training's softmax over words",
    "n_tokens_vocab": "of the training's softmax over words",
    "n_train_tokens": "of the training",
    "sample_softmax": "of the training's softmax over words",
    "unroll_steps": "of the training",
}
FIXED: JsonMap = {
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


def tensors(spec: "ELMoSpec") -> Iterator[Tensor]:
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


def read_options(path: Path) -> Json:
    """options.json -> changes of a Spec.

    Raises:
        InputError: a setting is missing, of another kind, or one that ELMo here has not.
    """
    content, changes = JsonView(read_json(path)), {}
    for name, (ours, kind) in FIELDS.items():
        value = _said(content, name, path)
        value = float(value) if kind is float and type(value) is int else value
        if type(value) is not kind:
            raise InputError(f"{path}: {name} must be of type {kind.__name__}. Received: {str(value)[:60]!r}")
        most = 64 if "_" in name else 1 << 20  # layers and highways
        if kind is int and not 0 <= value < most:
            raise InputError(f"{path}: {name} must be a size. Received: {value}")
        changes[ours] = value
    for name, wanted in FIXED.items():
        if (said := _said(content, name, path)) != wanted:
            raise InputError(f"{path}: {name} must be {wanted}. Received: {str(said)[:60]!r}")
    if content.get("bidirectional", True) is not True:
        raise InputError(f"{path}: bidirectional must be True. Received: {str(content['bidirectional'])[:60]!r}")
    characters = _said(content, "char_cnn", path).get("n_characters", ROWS)
    if characters not in (ROWS, ROWS + 1):
        raise InputError(
            f"{path}: char_cnn.n_characters must be {ROWS} or {ROWS + 1}. Received: {str(characters)[:60]!r}"
        )
    width = _said(content, "lstm.projection_dim", path)
    if type(width) is not int or not 0 < width < 1 << 20:
        raise InputError(f"{path}: lstm.projection_dim must be a size. Received: {str(width)[:60]!r}")
    filters = _filters(_said(content, "char_cnn.filters", path), path)
    unused.leave(path, content.unread(UNREAD))
    return changes | {"hidden": 2 * width, "embeddings.filters": filters}


def _said(content: JsonView, name: str, path: Path) -> Any:
    """A setting by its dotted name."""
    node: object = content
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise InputError(f"{path} has no {name}, expected the options of an ELMo")
        node = node[part]
    return node


def _filters(said: object, path: Path) -> tuple[int, ...]:
    """Numbers of filters of the widths 1, 2, ..."""
    widths = [each[:1] for each in said if isinstance(each, list)] if isinstance(said, list) else None
    if not isinstance(said, list) or widths != [[k] for k in range(1, len(said) + 1)]:
        raise InputError(
            f"{path}: char_cnn.filters must be [width, number], widths 1, 2, ... Received: {str(said)[:60]}"
        )
    counts = tuple(each[1] if len(each) == 2 else -1 for each in said)
    if any(type(each) is not int or not 0 < each < 1 << 20 for each in counts):
        raise InputError(f"{path}: char_cnn.filters must have numbers of filters. Received: {str(said)[:60]}")
    return counts


def options_of(spec: "ELMoSpec") -> Json:
    """The options.json of a model of these settings."""
    content: Json = {}

    def put(name: str, value: object) -> None:
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

    def __init__(self, path: Path) -> None:
        import h5py

        try:
            self.file = h5py.File(path, "r")
            self.sets: dict[str, h5py.Dataset] = {}
            self.file.visititems(self._note)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise InputError(f"{path} is damaged, or no hdf5 file: download it again") from error
        self.path = path

    def _note(self, name: str, item: object) -> None:
        import h5py

        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" and not item.is_virtual and item.external is None:
            self.sets[name] = item

    def read(self, name: str) -> np.ndarray:
        """A dataset, whose shape was checked.

        Raises:
            InputError: it cannot be read.
        """
        try:
            array = self.sets[name][()]
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(f"{name} in {self.path} is damaged: download the file again") from error
        return array if array.dtype == np.float64 else array.astype("float32")


def covered(spec: "ELMoSpec", sets: Mapping[str, Shape], ignore: Sequence[str]) -> Coverage:
    """What goes where."""
    known = {each.name: each for each in tensors(spec)}
    pairs = tuple(Pair(ours, each.name, False, each.shape) for each in known.values() for ours in each.ours)
    check_patterns(ignore, sets)
    ignored = tuple(name for name in sets if matches(name, ignore))
    missing = tuple(name for name in known if name not in sets or name in ignored)
    extra = tuple(name for name in sets if name not in known and name not in ignored)
    wrong = tuple(
        f"{name} is {list(sets[name])}, expected {list(each.shape)}"
        for name, each in known.items()
        if name not in missing and tuple(sets[name]) != each.shape
    )
    return Coverage(pairs, (), ignored, missing, extra, wrong)


def _tokenizer(asked: ImportOptions, folder: Path) -> Tokenizer | None:
    if asked.without_tokenizer:
        return None
    if asked.tokenizer is None and not tokenizer_file(folder):
        return CharacterWords(ORDER)
    place = Path(asked.tokenizer or folder)
    found = text.load_tokenizer(place)
    if found.kind != CharacterWords.kind:
        raise InputError(f"the tokenizer in {place} is of kind {found.kind}, expected {CharacterWords.kind}")
    return found


def write(
    path: str | os.PathLike, info: ModelInfo, weights: "Tensors", tokenizer: Tokenizer | None, overwrite: bool = False
) -> None:
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
    spec = cast("ELMoSpec", info.spec)
    with files.new_directory(path, overwrite) as folder:
        files.write_json(folder / OPTIONS, options_of(spec))
        with h5py.File(folder / WEIGHTS, "w") as file:
            for each in tensors(spec):
                file.create_dataset(each.name, data=each.write(*map(weights.read, each.ours)))
        if tokenizer is not None:
            tokenizer.save(folder)


def _sizes(options: Path, family: registry.Family, vocabulary: Mapping[str, int], model: str | None) -> "ELMoSpec":
    """The Spec that options.json describes; of a size that was asked for."""
    if not hasattr(family.spec, "clips"):
        raise InputError(f"{options.parent} holds an ELMo, and {family.name} is none: leave model out (--model)")
    spec = specs.derive(cast("ELMoSpec", family.spec), {**read_options(options), **vocabulary})
    named = registry.find(model)[1] if model and "/" in model else None
    if named and (differ := specs.differences(specs.derive(named, vocabulary), spec)):
        sizes = ", ".join(f"{field} {theirs} instead of {ours}" for field, (ours, theirs) in differ.items())
        raise InputError(f"{options} is not {model}: {sizes}. Leave model out: sizes come from there")
    return spec


class AllenNLP(Format):
    """A folder with an ELMo's options.json and .hdf5, or the .hdf5 beside its options.

    The files hold no words: without a tokenizer beside them or a given one the model has one of no words, which reads all texts.
    """

    reads = ("tokenizer", "ignore")
    title = "an ELMo of AllenNLP"

    def looks_like(self, path: Path) -> bool:
        """Whether there are an .hdf5 and options."""
        folder = path if path.is_dir() else path.parent
        return (path.suffix == ".hdf5" or any(path.glob("*.hdf5"))) and any(folder.glob("*options.json"))

    def plan(self, path: Path, asked: ImportOptions) -> Plan:
        """What goes where: a dataset holds one weight of ours or two."""
        options, weights = place_of(path)
        family = (
            registry.find(asked.model)[0]
            if asked.model and "/" in asked.model
            else registry.family(asked.model or "elmo")
        )
        pieces = _tokenizer(asked, weights.parent)
        vocabulary = {"embeddings.vocabulary": len(ORDER) if pieces is None else pieces.size}
        spec = _sizes(options, family, vocabulary, asked.model)
        data = Datasets(weights)
        coverage = covered(spec, {name: tuple(each.shape) for name, each in data.sets.items()}, asked.ignore)
        if not coverage.fits:
            return Plan(coverage, coverage.problems(weights))
        known = {each.name: each for each in tensors(spec)}

        def tensor(pair: Pair, values: np.ndarray) -> np.ndarray:
            each = known[pair.theirs]
            return each.read(values)[each.ours.index(pair.ours)]

        sizes = [size for size in family.sizes if specs.derive(family.size(size), vocabulary) == spec]
        name = f"{family.name}/{sizes[0]}" if sizes else family.name
        about = {"tensors": data, "family": family, "name": name, "spec": spec, "described": {"tokenizer": pieces}}
        return Plan(coverage, tensor=tensor, **about)

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write options.json, weights.hdf5 and the tokenizer's files."""
        run = source.directory(run)
        write(path, read_model_json(run), read_tensors(run), text.held_tokenizer(run), overwrite)


registry.register_format("allennlp", AllenNLP())
