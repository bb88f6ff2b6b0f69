"""Tensors that others store in another form than ours: several side by side in one, or with an axis of one more.

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
        dialect: its `joined` and `leading` name what has another form there.
    """

    def __init__(self, reader: Reader, dialect: Dialect):
        self.reader, self.leading = reader, dialect.leading
        self.parts: dict[str, tuple[str, int, int]] = {}  # name of a part -> joined tensor, number, count
        for name in reader.names():
            for pattern, count in dialect.joined.items():
                if matches(name, (pattern,)) and reader.shape(name)[-1] % count == 0:
                    self.parts |= {part(name, i): (name, i, count) for i in range(count)}
        self.hidden = {name for name, _, _ in self.parts.values()}

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted({*self.reader.names(), *self.parts} - self.hidden)

    def shape(self, name: str) -> Shape:
        """Shape of one tensor."""
        if name not in self.parts:
            shape = self.reader.shape(name)
            return shape[1:] if matches(name, self.leading) and shape[:1] == (1,) else shape
        whole, _, count = self.parts[name]
        *first, last = self.reader.shape(whole)
        return (*first, last // count)

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        if name not in self.parts:
            return self.reader.read(name).reshape(self.shape(name))
        whole, i, count = self.parts[name]
        return np.split(self.reader.read(whole), count, axis=-1)[i]


def part(name: str, number: int) -> str:
    """The name of a part of a joined tensor.

    >>> part("h.0.attn.c_attn.weight", 2)
    'h.0.attn.c_attn#2.weight'
    """
    stem, _, leaf = name.rpartition(".")
    return f"{stem}#{number}.{leaf}"


def whole(
    dialect: Dialect, shapes: Mapping[str, Shape], read: Callable[[str], np.ndarray]
) -> tuple[dict[str, Shape], Callable[[str], np.ndarray]]:
    """Shapes by name, and what reads them, of tensors in our forms -> those of the file."""
    written: dict[str, Shape] = {}
    parts: dict[str, list[str]] = {}
    for name in sorted(shapes):
        joined, shape = re.sub(r"#\d+", "", name), tuple(shapes[name])
        parts.setdefault(joined, []).append(name)
        if joined != name:
            written[joined] = (*shape[:-1], written.get(joined, (0,))[-1] + shape[-1])
        else:
            written[name] = (1, *shape) if matches(name, dialect.leading) else shape

    def read_whole(name: str) -> np.ndarray:
        values = [read(each) for each in parts[name]]
        return (np.concatenate(values, axis=-1) if len(values) > 1 else values[0]).reshape(written[name])

    return written, read_whole
