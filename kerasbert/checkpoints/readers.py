"""Checkpoints of others, read lazily: `names()`, `shape(name)`, `read(name)` -> float32 numpy."""

import os
from pathlib import Path
from typing import Protocol

import numpy as np

from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError, unknown

SOURCES = ("hf", "tf1", "keras_hub")


class Reader(Protocol):
    """What every kind of checkpoint offers."""

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        ...

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        ...


def open_checkpoint(path: str | os.PathLike, source: str, allow_pickle: bool = False) -> tuple[Reader, Path]:
    """A reader and the folder in which the configuration and the vocabulary lie.

    Args:
        path: a folder; for "hf" also a file; for "tf1" also the prefix or the .index file.
        source: "hf", "tf1" or "keras_hub".
        allow_pickle: bool, whether a torch pickle may be read.

    Raises:
        InputError: nothing there, several checkpoints, a damaged file, or a pickle without consent.
    """
    path = Path(path)
    if source not in SOURCES:
        raise unknown("checkpoint source", source, SOURCES, ", ".join(SOURCES))
    if source == "keras_hub":
        from kerasbert.checkpoints.keras_hub import Preset

        return Preset(path), path
    if source == "tf1":
        prefix = _tf1_prefix(path)
        return TF1(prefix), prefix.parent
    if path.is_dir():
        for name in (
            "model.safetensors",
            "model.safetensors.index.json",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
        ):
            if (path / name).is_file():
                return _open_file(path / name, allow_pickle), path
        raise InputError(f"{path} holds no model.safetensors, model.safetensors.index.json or pytorch_model.bin")
    if not path.is_file():
        raise InputError(f"no checkpoint at {path}")
    return _open_file(path, allow_pickle), path.parent


def _open_file(path: Path, allow_pickle: bool) -> Reader:
    if path.name.endswith(".index.json"):
        return Shards(path, allow_pickle)
    if path.suffix == ".safetensors":
        return Safetensors(path)
    if path.suffix in (".bin", ".pt", ".pth"):
        if not allow_pickle:
            raise InputError(
                f"{path} is a pickle, which can run code. Convert it to safetensors, or pass allow_pickle=True "
                "(--allow-pickle) if you trust where it comes from"
            )
        return Torch(path)
    raise InputError(f"{path} is no checkpoint that can be read. Expected .safetensors, .index.json or .bin")


class Shards:
    """Several files and the index that names them."""

    def __init__(self, index: Path, allow_pickle: bool = False):
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
            raise InputError(f"{index} has no weight_map of tensor names to files")
        self._home: dict[str, Reader] = {}
        for file in sorted(set(names.values())):
            if Path(file).name != file or file in (".", ".."):
                raise InputError(f"{index} names {file!r}, expected a file in the same folder")
            if not (index.parent / file).is_file():
                raise InputError(f"{index} names {file}, which is not there: copy the missing shard")
            reader = _open_file(index.parent / file, allow_pickle)
            for name in reader.names():
                if name in self._home:
                    raise InputError(f"{name} lies in two shards of {index}")
                self._home[name] = reader
        absent = sorted(set(names) - set(self._home))
        if absent:
            raise InputError(f"the shards of {index} lack {len(absent)} tensors: {', '.join(absent)}")

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._home)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._home[name].shape(name)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        return self._home[name].read(name)


class Torch:
    """A torch pickle, restricted to tensors (`weights_only`) and mapped, not loaded."""

    def __init__(self, path: Path):
        try:
            import torch  # pyright: ignore[reportMissingImports]  # for pickles alone, and no extra
        except ImportError as error:
            raise InputError(f"reading {path} needs torch: pip install torch, or convert it to safetensors") from error
        self._torch, self.path = torch, path
        try:
            # files older than torch 1.6 are no zip archives and cannot be mapped
            self._tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
        except Exception as error:
            raise InputError(f"cannot read {path} as torch weights: {str(error).splitlines()[0]}") from error
        if not isinstance(self._tensors, dict) or not all(isinstance(v, torch.Tensor) for v in self._tensors.values()):
            raise InputError(f"{path} holds something else than a flat dict of tensors")

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self._tensors[name].shape)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        tensor = self._tensors[name]
        if not tensor.is_floating_point():
            raise InputError(f"{name} in {self.path} is {tensor.dtype}, expected floats")
        return tensor.to(self._torch.float32).numpy()


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


# what TensorFlow's reader raises for damage: its C++ status codes come as all of these
_TF_ERRORS = (ValueError, RuntimeError, IndexError, KeyError, OSError, NotImplementedError)


class TF1:
    """A TensorFlow checkpoint whose tensors have names (`bert/encoder/layer_0/...`)."""

    def __init__(self, prefix: Path):
        import tensorflow as tf

        self._tf, self.prefix = tf, prefix
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
            self._shapes = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, *_TF_ERRORS) as error:
            raise InputError(f"cannot read the TensorFlow checkpoint {prefix}: {_first_line(error)}") from error
        if "_CHECKPOINTABLE_OBJECT_GRAPH" in self._shapes:
            raise InputError(f"{prefix} is a TF2 object checkpoint, expected TF1 with named tensors (bert/encoder/...)")

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self._shapes[name])

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        try:
            values = self._reader.get_tensor(name)
        except (self._tf.errors.OpError, *_TF_ERRORS) as error:
            raise InputError(f"cannot read {name} of {self.prefix}: {_first_line(error)}") from error
        if not np.issubdtype(values.dtype, np.floating) and values.dtype.name != "bfloat16":
            raise InputError(f"{name} of {self.prefix} is {values.dtype.name}, expected floats")
        return values.astype(np.float32, copy=False)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _tf1_prefix(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("*.index"))
        if len(found) > 1 and path / "bert_model.ckpt.index" in found:
            found = [path / "bert_model.ckpt.index"]
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise InputError(
                f"{path} has these TensorFlow checkpoints: {names}. Expected one: give the path of one .index file"
            )
        path = found[0]
    prefix = path.with_name(path.name.removesuffix(".index"))
    if not prefix.with_name(prefix.name + ".index").is_file():
        raise InputError(f"no TensorFlow checkpoint at {prefix} (no file {prefix.name}.index)")
    return prefix
