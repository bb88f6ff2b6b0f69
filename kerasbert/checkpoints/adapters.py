"""What adapts a model: LoRA merged into its matrices, and directories of an adapter alone.

A directory of an adapter holds adapter.json and adapter.safetensors: what differs from the base, the heads included, and the
sha256 of all other weights of the encoder, by which another base is refused.
"""

import dataclasses
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints import directory, source, temporary_models
from kerasbert.checkpoints.directory import ModelInfo, ModelParts, Weights, read_model_json, read_tensors, save_model
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from kerasbert.storage import files

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel


FORMAT = 1
WEIGHTS = "adapter.safetensors"
FREE = {
    "dropout",
    "attention.dropout",
    "pooler",
}  # fields of the Spec in which an adapted model may differ from its base


@dataclasses.dataclass(frozen=True)
class Adapter:
    """An adapter for a base.

    Args:
        info: of the adapted model.
        arrays: weight name -> float32, heads/ included.
        digest: of the base's other weights; None where the files say nothing of them.
        path: where it lies.
    """

    info: ModelInfo
    arrays: Mapping[str, np.ndarray]
    digest: str | None
    path: Path

    def check_names(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse tensors that the adapted encoder does not take, and one that has no value.

        Args:
            shapes: weight name -> shape of the encoder, of its heads too where they are known.
        """
        heads = any(name.startswith("heads/") for name in shapes)
        held = {name: value.shape for name, value in self.arrays.items() if heads or not name.startswith("heads/")}
        extra = [f"{name} {list(shape)}" for name, shape in held.items() if tuple(shape) != shapes.get(name)]
        missing = [name for name in shapes if name not in held and adapts(self.info.spec, name)]
        if extra or missing:
            raise InputError(
                f"{self.path} does not fit {self.info.name}. {len(extra)} tensors that nothing takes: "
                f"{', '.join(extra) or 'none'}; {len(missing)} missing: {', '.join(missing) or 'none'}"
            )

    def check(self, weights: Mapping[str, np.ndarray], base: str) -> None:
        """Refuse another base than that of the training.

        Args:
            weights: of the base's encoder. base: its name.
        """
        if self.digest is not None and digest(weights, self.arrays) != self.digest:
            raise InputError(
                f"{self.path} adapts another model than {base} (its weights have another digest), expected the "
                f"{self.info.name} that it was trained on"
            )


def adapting(spec: Spec, pooler: bool = False) -> str:
    """The regular expression (of `re.match`) of the weights that adapt a model; those of heads are among them.

    Norms are trained beside adapters (Houlsby et al., 2019, section 2.1), and a pooler that is new.
    """
    norms = "|/(?:gamma|beta)$" if spec.adapters.width else ""
    return rf"heads/|{'pooler/|' if pooler else ''}.*(?:/lora_[ab]$|_adapter/{norms})"


def adapts(spec: Spec, name: str, pooler: bool = False) -> bool:
    """Whether the weight of that name is no longer the base's."""
    return re.match(adapting(spec, pooler), name) is not None


def digest(weights: Mapping[str, np.ndarray], without: Iterable[str] = ()) -> str:
    """sha256 of an encoder's weights by name, but for those in `without`."""
    found = hashlib.sha256()
    for name in sorted(set(weights) - set(without)):
        found.update(name.encode() + np.ascontiguousarray(weights[name], "<f4").tobytes())
    return found.hexdigest()


def write_adapter(folder: Path, parts: ModelParts, pooler: bool = True) -> None:
    """Write the files of an adapter into an existing folder.

    Args:
        parts: of the adapted model; its tokenizer is the base's and not written.
        pooler: whether the pooler is no longer the base's.

    Raises:
        InputError: nothing adapts the model.
    """
    spec, name = parts.encoder.spec, parts.name
    if spec == spec.base:
        raise InputError(f"{name} has no LoRA and no adapters, expected one that has: kerasbert finetune --lora 8")
    arrays = {weight: directory.as_array(value) for weight, value in parts.weights().items()}
    own = {weight: value for weight, value in arrays.items() if adapts(spec, weight, pooler)}
    about = {"base": {"name": name, "digest": digest(arrays, own)}}
    write_safetensors(folder / WEIGHTS, {weight: value.shape for weight, value in own.items()}, own.__getitem__)
    about |= {"files": {WEIGHTS: {"sha256": files.sha256(folder / WEIGHTS)}}}
    files.write_json(folder / source.ADAPTER, parts.to_json() | {"format": FORMAT} | about)


def read_adapter(path: str | os.PathLike, base: ModelInfo) -> Adapter:
    """An adapter of ours for a base; `peft.read` reads those of others.

    Raises:
        InputError: no adapter there, damaged, or for a model of other sizes.
    """
    path = Path(path)
    source.check_adapter(path)
    content = read_json(path / source.ADAPTER)
    try:
        known, wanted = content["files"][WEIGHTS]["sha256"], content["base"]["digest"]
        family, name, spec = content["family"], content["name"], content["spec"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path / source.ADAPTER} is damaged: copy it again") from error
    if content.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {content.get('format')!r}, expected {FORMAT}: use the version that wrote it"
        )
    if not (path / WEIGHTS).is_file() or files.sha256(path / WEIGHTS) != known:
        raise InputError(f"{path / WEIGHTS} is not the file that was written: copy the directory again")
    if family != base.family:
        raise InputError(f"{path} adapts a {family}, received the base {base.name}: expected {name}")
    own = specs.from_dict(spec, type(base.spec))
    differ = {field: pair for field, pair in specs.differences(own.base, base.spec).items() if field not in FREE}
    if differ:
        field, (theirs, ours) = next(iter(differ.items()))
        raise InputError(f"{path} adapts a model with {field} {theirs}, received a base with {ours}: expected {name}")
    tensors = Safetensors(path / WEIGHTS)
    return Adapter(
        info=dataclasses.replace(
            base, spec=own, task=content["task"], labels=content["labels"] and (*content["labels"],)
        ),
        arrays={weight: tensors.read(weight) for weight in tensors.names()},
        digest=wanted,
        path=path,
    )


def merge(names: Collection[str], read: Callable[[str], np.ndarray], spec: Spec) -> dict[str, Callable[[], np.ndarray]]:
    """What reads each weight of the model that LoRA is merged into: kernel + scale * A B, worked out in float64.

    Args:
        names: of the adapted encoder's weights, or of its directory's.
        read: gives one of them.
        spec: of the adapted model.
    """

    def merged(kernel: str) -> np.ndarray:
        folder = kernel.rpartition("/")[0]
        a, b = (read(f"{folder}/lora_{letter}").astype("float64") for letter in "ab")
        return (read(kernel) + spec.lora.scale * (a @ b)).astype("float32")

    plain = [name for name in names if not name.endswith(("/lora_a", "/lora_b"))]
    adapted = {name for name in plain if name.endswith("/kernel") and f"{name.removesuffix('kernel')}lora_a" in names}
    return {name: (lambda name=name: merged(name) if name in adapted else read(name)) for name in plain}


def merged_directory(model: str | os.PathLike) -> Path:
    """The model directory of what a user named, LoRA merged into its matrices: a temporary one where there is any."""
    path = source.directory(model)
    if not specs.maybe(read_model_json(path).spec, "lora.rank"):
        return path
    at = (path / directory.WEIGHTS).stat()
    return _merged(path.absolute(), at.st_size, at.st_mtime_ns)


@functools.cache
def _merged(path: Path, *state: int) -> Path:
    """A model directory without the LoRA that another has, made once in a process."""
    from kerasbert import text

    info, out = read_model_json(path), temporary_models.place(path)

    tensors = read_tensors(path)
    weights = {name: read() for name, read in merge(tensors.names(), tensors.read, info.spec).items()}
    heads: dict[str, dict[str, np.ndarray]] = {}
    for name in [name for name in weights if name.startswith("heads/")]:
        heads.setdefault(name.split("/")[1], {})[name.split("/", 2)[2]] = weights.pop(name)
    encoder = Weights(dataclasses.replace(info.spec, lora=specs.Lora()), weights)
    about = {"task": info.task, "labels": info.labels, "plugin": info.plugin, "source": info.source}
    save_model(out, encoder=encoder, name=info.name, heads=heads, tokenizer=text.held_tokenizer(path), **about)
    if (path / "run.json").is_file():  # which rows were held out
        shutil.copyfile(path / "run.json", out / "run.json")
    return out


def base_info(encoder: "SpecModel") -> ModelInfo:
    """What model.json would say of a bare encoder."""
    family = registry.family_of(encoder).name
    return ModelInfo(family, encoder.model_name or family, encoder.spec, plugin=registry.plugin_of(encoder))
