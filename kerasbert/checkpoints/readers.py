"""Checkpoints of others, read lazily: `names()`, `shape(name)`, `read(name)` -> float32 numpy."""

from pathlib import Path
from typing import Protocol

import numpy as np

from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.storage import unused
from kerasbert.storage.json_view import JsonView


class Tensors(Protocol):
    """Tensors by name, read one by one: of a file, or of several under one roof."""

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        ...

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        ...


class Reader(Tensors, Protocol):
    """What every kind of checkpoint offers."""

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type: what is no weight."""
        ...


def equal(reader: Reader, one: str, other: str) -> bool:
    """Whether two tensors of a checkpoint are the same, number by number."""
    return reader.shape(one) == reader.shape(other) and np.array_equal(reader.read(one), reader.read(other))


HF_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Where transformers keeps weights: the first that is there is read."""


def open_hf(path: Path, allow_pickle: bool = False) -> tuple[Reader, Path]:
    """The tensors of a folder or a file of transformers, and the folder in which configuration and tokenizer lie.

    Args:
        allow_pickle: bool, whether a torch pickle may be read.

    Raises:
        InputError: nothing there, a damaged file, or a pickle without consent.
    """
    if path.is_dir():
        found = next((path / name for name in HF_FILES if (path / name).is_file()), None)
        if found is None:
            if (path / "saved_model.pb").is_file():
                raise InputError(f"{path} is a SavedModel, for TF Serving: give the checkpoint that it was made of")
            raise InputError(f"{path} holds no {', '.join(HF_FILES[:2])} or {HF_FILES[2]}{_instead(path)}")
        return _open_file(found, allow_pickle), path
    if not path.is_file():
        raise InputError(f"no checkpoint at {path}")
    return _open_file(path, allow_pickle), path.parent


def _instead(folder: Path) -> str:
    """What to do with the weights of other names that a folder holds."""
    held = sorted(file.name for file in folder.iterdir() if file.suffix in (".safetensors", ".bin", ".h5", ".msgpack"))
    if shards := [name for name in held if "-of-0" in name]:
        index = "model.safetensors" if shards[0].endswith(".safetensors") else "pytorch_model.bin"
        return f": {shards[0]} is a shard, copy {index}.index.json, which lists them, too"
    names = [name for name in held if name.endswith(".safetensors") and not name.startswith("adapter")]
    if names:
        return f": it holds {', '.join(names[:5])}; rename the one that is meant to {HF_FILES[0]}"
    return f": {held[0]} is not read" if held else ""


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

    def __init__(self, index: Path, allow_pickle: bool = False) -> None:
        content = JsonView(read_json(index))
        names = content.get("weight_map")
        names = names.plain() if isinstance(names, JsonView) else names
        content.read("weight_map", "metadata")  # sizes, which each shard's header says
        unused.leave(index, content.unread())
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
                if names.get(name, file) != file:
                    raise InputError(f"{name} lies in {file}, and {index} names {names[name]}: copy the shards again")
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

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        return self._home[name].stored(name)


class Torch:
    """A torch pickle, restricted to tensors (`weights_only`) and mapped, not loaded."""

    def __init__(self, path: Path) -> None:
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

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        tensor = self._tensors[name]
        return (tensor.float() if tensor.dtype == self._torch.bfloat16 else tensor).numpy()


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"
