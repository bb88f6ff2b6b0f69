"""Tensors that others store in another form than ours: several side by side in one, with an axis of one more, or by heads.

What stands beyond a file's edge sees neither: reading shows the parts of a joined tensor by names of their own,
`c_attn#0.weight` for the first of `c_attn.weight`, and writing puts them together again.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from kerasbert.checkpoints.names import Dialect, Shape, matches
from kerasbert.checkpoints.readers import Reader


class View:
    """A checkpoint in our forms; a Reader itself.

    Args:
        reader: of the file.
        dialect: its `joined`, `stacked`, `leading` and `by_head` name what has another form there.
    """

    def __init__(self, reader: Reader, dialect: Dialect):
        self.reader, self.leading, self.by_head = reader, dialect.leading, dialect.by_head
        self.parts: dict[str, tuple[str, int, int, int]] = {}  # name of a part -> joined tensor, number, count, axis
        for name in reader.names():
            for pattern, count, axis in _joined(dialect):
                if matches(name, (pattern,)) and reader.shape(name)[axis] % count == 0:
                    self.parts |= {part(name, i): (name, i, count, axis) for i in range(count)}
        self.hidden = {name for name, *_ in self.parts.values()}

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted({*self.reader.names(), *self.parts} - self.hidden)

    def shape(self, name: str) -> Shape:
        """Shape of one tensor."""
        if name not in self.parts:
            shape = self.reader.shape(name)
            if matches(name, self.by_head) and len(shape) == 3:
                return shape[0], shape[1] * shape[2]
            return shape[1:] if matches(name, self.leading) and shape[:1] == (1,) else shape
        whole, _, count, axis = self.parts[name]
        shape = list(self.reader.shape(whole))
        shape[axis] //= count
        return tuple(shape)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        if name not in self.parts:
            return self.reader.read(name).reshape(self.shape(name))
        whole, i, count, axis = self.parts[name]
        return np.split(self.reader.read(whole), count, axis=axis)[i]


def _joined(dialect: Dialect) -> list[tuple[str, int, int]]:
    """Patterns of joined tensors: how many of ours each holds, on which axis."""
    return [
        (pattern, count, axis)
        for found, axis in ((dialect.joined, -1), (dialect.stacked, 0))
        for pattern, count in found.items()
    ]


def part(name: str, number: int) -> str:
    """The name of a part of a joined tensor.

    >>> part("h.0.attn.c_attn.weight", 2)
    'h.0.attn.c_attn#2.weight'
    """
    stem, _, leaf = name.rpartition(".")
    return f"{stem}#{number}.{leaf}"


def whole(
    dialect: Dialect, shapes: Mapping[str, Shape], read: Callable[[str], np.ndarray], head_size: int
) -> tuple[dict[str, Shape], Callable[[str], np.ndarray]]:
    """Shapes by name, and what reads them, of tensors in our forms -> those of the file; `head_size` is D."""
    written: dict[str, Shape] = {}
    parts: dict[str, list[str]] = {}
    for name in sorted(shapes):
        joined, shape = re.sub(r"#\d+", "", name), list(shapes[name])
        parts.setdefault(joined, []).append(name)
        if joined != name:
            axis = _axis(dialect, joined)
            shape[axis] += written[joined][axis] if joined in written else 0
            written[joined] = tuple(shape)
        elif matches(name, dialect.by_head):
            written[name] = shape[0], shape[1] // head_size, head_size
        else:
            written[name] = (1, *shape) if matches(name, dialect.leading) else tuple(shape)

    def read_whole(name: str) -> np.ndarray:
        values = [read(each) for each in parts[name]]
        return (np.concatenate(values, axis=_axis(dialect, name)) if len(values) > 1 else values[0]).reshape(
            written[name]
        )

    return written, read_whole


def _axis(dialect: Dialect, name: str) -> int:
    """On which axis a joined tensor holds ours."""
    return next((axis for pattern, _, axis in _joined(dialect) if matches(name, (pattern,))), -1)
