"""How vectors are stored: float32, float16, int8 or one bit a number.

An int8 vector is the vector over its own largest number, in steps of 1/127; a binary one is the signs, eight in a byte. A cosine
needs no scale, so that none is stored.
"""

from collections.abc import Mapping

import numpy as np

from kerasbert.answers.vector import quantized
from kerasbert.errors import InputError

DTYPES: Mapping[str, str] = {"float32": "float32", "float16": "float16", "int8": "int8", "binary": "uint8"}
"""Name of a form -> numpy's type of its numbers."""
LEAST = 1e-12  # length of a vector of nothing


def check(dtype: str) -> None:
    """Refuse a form that is none."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}. Received: {dtype!r}")


def columns(width: int, dtype: str) -> int:
    """Numbers of a stored vector of `width` numbers."""
    return -(-width // 8) if dtype == "binary" else width


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1; one of length 0 stays: float32 [n, H] -> [n, H]."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, LEAST), "float32")


def stored(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """Vectors as they are stored: float32 [n, H] -> [n, columns].

    Raises:
        InputError: a number is too large for float16.
    """
    if dtype == "binary":
        return np.packbits(vectors > 0, axis=-1)
    if dtype == "int8":
        return quantized(vectors)
    with np.errstate(over="ignore"):
        found = vectors.astype(DTYPES[dtype])
    if not np.isfinite(found).all():
        raise InputError("a vector has a number above 65,504, the largest of float16: keep them as float32")
    return found


def read(rows: np.ndarray, dtype: str, width: int) -> np.ndarray:
    """Stored vectors as float32 [n, width] of length 1, such that their products with a unit vector are cosines.

    A float32 vector is given as it is stored.
    """
    if dtype == "float32":
        return rows
    if dtype == "binary":
        signs = np.unpackbits(rows, axis=-1, count=width).astype("float32")
        return (2 * signs - 1) / np.float32(np.sqrt(width))
    return unit(rows.astype("float32"))
