"""The safetensors format (github.com/huggingface/safetensors): 8 bytes of header length, a json header, raw tensors.

Read and written here tensor by tensor, so that a file needs no more memory than its largest tensor. The package of that
name reads bfloat16 only through torch and writes only from a dict that holds everything.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

_LONGEST_HEADER = 100_000_000  # as the reference reader
_LARGEST = 1 << 64  # sizes are below, as the reference's usize
_DIMENSIONS = 64  # numpy's limit
_BITS: dict[str, int] = dict.fromkeys(
    ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8
)
_BITS |= dict.fromkeys(("I16", "U16", "F16", "BF16"), 16) | dict.fromkeys(("I32", "U32", "F32"), 32)
_BITS |= dict.fromkeys(("F64", "I64", "U64", "C64"), 64) | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_STORED = {"BOOL": "u1", "BF16": "<u2"}  # numpy's names
_STORED |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}
_STORED |= {f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)}
_FIELDS = ("dtype", "shape", "data_offsets")


class Safetensors:
    """A safetensors file, read lazily; what the reference reader refuses is refused.

    Raises:
        InputError: the file is truncated or its header does not describe all of it, byte by byte.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(_LONGEST_HEADER, size - 8):
                    raise InputError(f"{self.path} is truncated or no safetensors file ({size} bytes): copy it again")
                text = file.read(length)
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error
        self._start = 8 + length
        try:
            self._entries = _entries(_parsed(text), size - self._start)
        except (ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0][:200]
            raise InputError(
                f"{self.path} is damaged or truncated: its header {reason}. Copy the file again"
            ) from error

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._entries[name][1]

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        dtype = self._entries[name][0]
        if dtype not in ("F32", "F16", "F64", "BF16"):
            raise InputError(
                f"{name} in {self.path} is {dtype}, expected F32, F16, BF16 or F64: convert the checkpoint"
            )
        return self.stored(name).astype(np.float32, copy=False)

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type that numpy has."""
        dtype, shape, begin, end = self._entries[name]
        if dtype not in _STORED:
            raise InputError(f"{name} in {self.path} is {dtype}, which numpy has not: convert the checkpoint")
        with self.path.open("rb") as file:
            file.seek(self._start + begin)
            values = np.frombuffer(file.read(end - begin), _STORED[dtype]).reshape(shape)
        if dtype == "BF16":  # the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values


class _Object(dict):
    """A json object that knows which keys it had twice."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.twice = {name for name in names if names.count(name) > 1} if len(self) < len(names) else set()


def _parsed(text: bytes) -> _Object:
    """The header; json as the reference reads it, stricter than Python's."""

    def constant(name: str) -> NoReturn:
        raise ValueError(f"holds {name}, which is no json")

    def whole(digits: str) -> int | float:  # a number that is no size is a float there, -0 too
        return int(digits) if digits.isdecimal() and len(digits) <= 20 else float(digits)

    try:
        content = text.decode("utf-8")
        header = json.loads(content, object_pairs_hook=_Object, parse_constant=constant, parse_int=whole)
        json.dumps(list(header), ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (UnicodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"is no json in UTF-8 ({type(error).__name__})") from error
    if not isinstance(header, _Object):
        raise ValueError("is no json object")
    if header.twice:
        raise ValueError(f"names {sorted(header.twice)[0][:80]!r} twice")
    return header


def _entries(header: _Object, room: int) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Tensor -> dtype, shape, begin and end; together they fill the room without gap or overlap."""
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise ValueError("has a __metadata__ that is no object of texts")
    entries = {name: _entry(name[:80], entry) for name, entry in header.items()}
    last = 0
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != last:
            kind = "overlaps another tensor" if begin < last else "leaves a hole before it"
            raise ValueError(f"places {name[:80]!r} at byte {begin}, which {kind}")
        last = end
    if last != room:
        raise ValueError(f"describes {last} bytes of tensors, the file holds {room}")
    return entries


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _entry(name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    if isinstance(entry, _Object):
        if entry.twice & set(_FIELDS):
            raise ValueError(f"has a field of {name!r} twice")
        entry = [entry.get(field) for field in _FIELDS]
    if not isinstance(entry, list) or len(entry) != len(_FIELDS):  # the reference takes a list of the three too
        raise ValueError(f"does not describe {name!r} by {', '.join(_FIELDS)}")
    dtype, shape, offsets = entry
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"gives {name!r} the dtype {str(dtype)[:40]!r}, expected one of {', '.join(_BITS)}")
    if not isinstance(shape, list) or len(shape) > _DIMENSIONS or not all(map(_is_size, shape)):
        raise ValueError(f"gives {name!r} the shape {str(shape)[:80]}, expected at most {_DIMENSIONS} sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise ValueError(f"gives {name!r} the data_offsets {str(offsets)[:80]}, expected [begin, end]")
    count = 1
    for each in shape:
        count *= each
        if count >= _LARGEST:
            raise ValueError(f"gives {name!r} the shape {str(shape)[:80]}, whose product is above 2^64")
    begin, end = offsets
    if end < begin or 8 * (end - begin) != count * _BITS[dtype]:
        raise ValueError(
            f"gives {name!r} {end - begin} bytes, expected {count * _BITS[dtype] / 8:g} of {dtype} {shape}"
        )
    return dtype, tuple(shape), begin, end


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
    header: Json = {"__metadata__": dict(metadata)} if metadata else {}
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
            values = np.asarray(read(name), "<f4", order="C")  # ascontiguousarray gives one number an axis
            if values.shape != tuple(shapes[name]):
                raise ValueError(f"{name} has shape {values.shape}, expected {tuple(shapes[name])}")
            file.write(values.reshape(-1).data)
