"""The safetensors format (github.com/huggingface/safetensors): 8 bytes of header length, a json header, raw tensors.

Read and written here tensor by tensor, so that a file needs no more memory than its largest tensor. The package of that
name reads bfloat16 only through torch and writes only from a dict that holds everything.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.errors import InputError

_LONGEST_HEADER = 100_000_000  # as the reference reader
_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2}
_BYTES |= {"I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}


class Safetensors:
    """A safetensors file, read lazily.

    Raises:
        InputError: the file is truncated or its header does not describe it.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(_LONGEST_HEADER, size - 8):
                    raise InputError(f"{self.path} is truncated or no safetensors file ({size} bytes): copy it again")
                header = json.loads(file.read(length))
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the header of {self.path} is damaged: copy the file again") from error
        self._start = 8 + length
        try:
            header.pop("__metadata__", None)
            self._entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {
                name: (entry["dtype"], tuple(map(int, entry["shape"])), *_offsets(entry["data_offsets"]))
                for name, entry in header.items()
            }
            broken = [n for n, entry in self._entries.items() if not _consistent(*entry, size - self._start)]
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(f"the header of {self.path} is damaged: copy the file again") from error
        if broken:
            raise InputError(
                f"{self.path} is truncated or damaged: {len(broken)} tensors lie outside its {size} bytes "
                f"(first: {broken[0]}). Copy the file again"
            )

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._entries[name][1]

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        dtype, shape, begin, end = self._entries[name]
        stored = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}.get(dtype)
        if stored is None:
            raise InputError(
                f"{name} in {self.path} is {dtype}, expected F32, F16, BF16 or F64: convert the checkpoint"
            )
        with self.path.open("rb") as file:
            file.seek(self._start + begin)
            values = np.frombuffer(file.read(end - begin), stored).reshape(shape)
        if dtype == "BF16":  # the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False)


def _offsets(entry: Any) -> tuple[int, int]:
    begin, end = map(int, entry)
    return begin, end


def _consistent(dtype: str, shape: tuple[int, ...], begin: int, end: int, room: int) -> bool:
    if any(size < 0 for size in shape) or not 0 <= begin <= end <= room:
        return False
    return dtype not in _BYTES or end - begin == math.prod(shape) * _BYTES[dtype]


def write_safetensors(
    path: str | os.PathLike,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write float32 tensors sorted by name; the same values give the same bytes.

    Args:
        path: the file; written in place, so put it into a folder that appears as a whole.
        shapes: name -> shape of every tensor.
        read: gives one tensor by its name; called once for each, in order.
        metadata: text to text, for the header.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in sorted(shapes):
        end = offset + 4 * math.prod(shapes[name])
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start aligned
    with Path(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(shapes):
            values = np.ascontiguousarray(read(name), "<f4")
            if values.shape != tuple(shapes[name]):
                raise ValueError(f"{name} has shape {values.shape}, expected {tuple(shapes[name])}")
            file.write(values.data)
