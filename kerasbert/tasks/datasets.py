"""Rows of datasets.Dataset, tf.data.Dataset, pyarrow and tensors of texts as a dict of columns or a list; none is imported."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kerasbert.errors import InputError


def plain(data: Any) -> Any:
    """The columns of a datasets.Dataset or of pyarrow's, the elements of a tf.data.Dataset; anything else as it is.

    Numbers of a ClassLabel become its names. A batched tf.data.Dataset gives the rows of its batches, a tensor of texts or an
    array of bytes its texts.

    Raises:
        InputError: a tf.data.Dataset without end.
    """
    if hasattr(data, "as_numpy_iterator"):
        if int(data.cardinality()) == -1:  # tf.data.INFINITE_CARDINALITY
            raise InputError("the tf.data.Dataset has no end, expected one pass over the rows: leave out repeat()")
        return [row for element in data.as_numpy_iterator() for row in _rows(element)]
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return {name: _named(list(data[name]), (data.features or {}).get(name)) for name in data.column_names}
    if callable(getattr(data, "to_pydict", None)):  # a table or a batch of pyarrow
        return data.to_pydict()
    if callable(getattr(data, "to_pylist", None)):  # an array of it
        return data.to_pylist()
    tensor = callable(getattr(data, "numpy", None)) and hasattr(data, "shape")
    array = data.numpy() if tensor else data
    if isinstance(array, bytes) or (isinstance(array, np.ndarray) and array.dtype.kind in "SO"):
        return plain_value(array)
    return data


def _named(column: list[object], feature: object) -> list[object]:
    """A column with the names of its labels: of a ClassLabel, or of lists of one (words' tags)."""
    inner = getattr(feature, "feature", feature)
    names = getattr(inner, "names", None)
    if names is None:
        return column

    def name(value: object) -> object:
        if isinstance(value, list | tuple | np.ndarray):
            return [name(each) for each in value]
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < len(names):
            return names[int(value)]
        return value

    return [name(value) for value in column]


def _rows(element: object) -> Iterator[object]:
    """The rows of an element: itself, or those of a batch."""
    parts = (
        element
        if isinstance(element, Mapping)
        else dict(enumerate(element if isinstance(element, tuple) else (element,)))
    )
    flat = dict(_flat(parts))
    batched = all(isinstance(part, np.ndarray) and part.ndim for part in flat.values())
    count = min(len(part) for part in flat.values()) if batched else 1
    for i in range(count):
        row = {name: plain_value(part[i] if batched else part) for name, part in flat.items()}
        if isinstance(element, Mapping):
            yield row
        else:
            yield tuple(row.values()) if isinstance(element, tuple) else row[0]


def _flat(parts: Mapping[object, object]) -> Iterator[tuple[object, Any]]:
    """The parts, those of an inner dict by their own names, of ({"text": ...}, label)."""
    for name, part in parts.items():
        if isinstance(part, Mapping | tuple):
            yield from _flat(part if isinstance(part, Mapping) else {(name, i): each for i, each in enumerate(part)})
        else:
            yield name, part


def plain_value(value: object) -> object:
    """A text of bytes, a number, or a list of either."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"a text is not UTF-8: {value[:60]!r}. Decode it first") from error
    if isinstance(value, np.ndarray):
        return plain_value(value.item()) if value.ndim == 0 else [plain_value(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
