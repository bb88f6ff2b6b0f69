"""Texts with their vectors in one file, in which a device searches: int8 numbers, and where each text lies.

Little endian, at these places; the portable core (native/index.c) reads the same file and gives the same hits:

    0   8 bytes MAGIC, uint64 N texts, uint64 B bytes of them, uint32 H numbers of a vector, uint32 CRC-32 of all from 64
    32  sha256 of the bundle.json of the .tflite whose vectors they are
    64  float32 [N], 1 / the length of each vector; int8 [N, H], each vector over its own largest number, in steps of 1/127
    8k  uint64 [2 N + 1], where each id and each text begins; the ids and texts, UTF-8, [B]
"""

import mmap
import os
import shutil
import struct
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.answers.vector import DOCUMENT, Hit, VectorKind, blocks, quantized, query_vector
from kerasbert.errors import InputError, no_file
from kerasbert.options import checked
from kerasbert.storage import files
from kerasbert.storage.overwritten import Mapped

if TYPE_CHECKING:
    from . import Runner

MAGIC = b"KBINDEX\x01"
HEAD = struct.Struct("<8sQQII32s")
CHECKSUM = 28  # where it stands
BLOCK = 16384  # vectors at once
EXACT = 1040  # numbers of a vector of which float32 sums 127 * 127 exactly


def inverse(numbers: np.ndarray) -> np.ndarray:
    """1 / the length of int8 vectors [..., H] -> float64 [...]; 0 of zeros."""
    squares = np.square(numbers.astype(np.int32)).sum(-1)
    return np.where(squares > 0, 1 / np.sqrt(np.maximum(squares, 1)), 0.0)


def write(runner: "Runner", passages: Iterable[tuple[str, str]], out: str | os.PathLike) -> int:
    """Encode texts, after the prompt for passages where the file has one, and write their file; -> how many.

    Args:
        passages: (id, text) of each.

    Raises:
        InputError: the file gives no vectors of one text, no text, a vector that is not finite, a place that is not ours.
    """
    if not isinstance(runner.kind, VectorKind) or runner.bundle.pair:
        raise InputError(
            f"{runner.path} answers with a {runner.kind.name} of its inputs, expected a vector of one text"
        )
    with files.new_file(out) as new, ExitStack() as stack:
        # nothing is in memory but a block and the places; a file without a name goes with the process
        lengths, numbers, texts = (
            stack.enter_context(tempfile.TemporaryFile(dir=new.parent, buffering=2**20)) for _ in range(3)
        )
        places, width = array("Q", [0]), 0
        for block in blocks(passages, 1024):
            found = _vectors(runner, [text for _, text in block])
            lengths.write(inverse(found).astype("<f4").tobytes())
            numbers.write(found.tobytes())
            width = found.shape[1]
            for part in (part for passage in block for part in passage):
                places.append(places[-1] + texts.write(part.encode("utf-8", "replace")))
        count = len(places) // 2
        if not count:
            raise InputError("there is no text to put into the index, expected at least one")
        with open(new, "wb") as file:
            file.write(HEAD.pack(MAGIC, count, places[-1], width, 0, bytes.fromhex(runner.bundle.settings_digest)))
            for part in (lengths, numbers):
                part.seek(0)
                shutil.copyfileobj(part, file)
            file.write(b"\0" * (-file.tell() % 8))
            file.write(np.array(places, "<u8").tobytes())
            texts.seek(0)
            shutil.copyfileobj(texts, file)
        with open(new, "r+b") as file:
            file.seek(HEAD.size)
            checksum = 0
            while part := file.read(2**20):
                checksum = zlib.crc32(part, checksum)
            file.seek(CHECKSUM)
            file.write(struct.pack("<I", checksum))
    return count


def _vectors(runner: "Runner", texts: list[str]) -> np.ndarray:
    """Vectors of passages, int8 [n, H]."""
    assert isinstance(runner.kind, VectorKind)
    found = np.asarray(runner.outputs(texts, prompt_name=runner.kind.prompt_among(DOCUMENT)))
    if not np.isfinite(found).all():
        raise InputError(f"{runner.path} gives a vector that is not finite: compress it again")
    return quantized(found)


def _is(path: Path, head: bytes) -> bool:
    """Whether a file has this head and the content that it tells of."""
    with open(path, "rb") as file:
        same, checksum = file.read(HEAD.size) == head, 0
        while part := file.read(2**20):
            checksum = zlib.crc32(part, checksum)
    return same and checksum == HEAD.unpack(head)[4]


class StoredIndex:
    """The texts of such a file, which is read where it lies.

    Args:
        runner: Runner of the .tflite that it was made by. path: of the file.

    Raises:
        InputError: no such file, a damaged one, one of another .tflite.
    """

    @checked
    def __init__(self, runner: "Runner", path: str | os.PathLike) -> None:
        if getattr(runner, "bundle", None) is None:
            raise InputError(f"runner is a {type(runner).__name__}, expected what load(FILE) gives")
        self.runner, self.path = runner, Path(path)
        if not self.path.is_file():
            raise no_file(path, "index")
        with open(self.path, "rb") as file:
            head = file.read(HEAD.size)
            if len(head) < HEAD.size or not head.startswith(MAGIC):
                raise InputError(f"{path} is no index, expected a file that kerasbert-mobile index wrote")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _, count, size, width, checksum, digest = HEAD.unpack(head)
        begin = HEAD.size + 4 * count + count * width
        places = begin + -begin % 8
        if not count or not width or len(self._data) != places + 8 * (2 * count + 1) + size:
            raise InputError(f"{path} is damaged: it has {len(self._data):,} bytes. Copy it again or write it again")
        self._inverse = np.frombuffer(self._data, "<f4", count, HEAD.size)
        self._vectors = np.frombuffer(self._data, np.int8, count * width, HEAD.size + 4 * count).reshape(count, width)
        self._places = np.frombuffer(self._data, "<u8", 2 * count + 1, places)
        self._texts = places + 8 * (2 * count + 1)
        if int(self._places[0]) or int(self._places[-1]) != size or (self._places[1:] < self._places[:-1]).any():
            raise InputError(f"{path} is damaged: its texts are not in their places. Copy it again or write it again")
        sound = ((self._inverse >= 0) & (self._inverse <= 1)).all()  # a number that is none is neither
        if not sound or zlib.crc32(memoryview(self._data)[HEAD.size :]) != checksum:
            raise InputError(f"{path} is damaged: its content is not what was written. Copy it again or write it again")
        if digest.hex() != runner.bundle.settings_digest:
            raise InputError(f"{path} was made by another file than {runner.path}: make it again by this one")

        self._mapped = Mapped(self.path, lambda: _is(self.path, head))

    def __len__(self) -> int:
        return len(self._inverse)

    @checked
    def nearest(self, text: object, k: int = 5, prompt_name: str | None = None) -> list[Hit]:
        """The k texts whose vectors have the largest cosine with that of a text, largest first; equals in their order.

        Both vectors are int8, so that a cosine differs from that of the float ones in the third digit.

        Args, Raises: as of `answers.vector.Index.nearest`.
        """
        self._mapped.check()
        query = quantized(query_vector(self.runner, text, k, prompt_name))
        exactly = np.float32 if len(query) <= EXACT else np.float64
        products = [block.astype(exactly) @ query.astype(exactly) for block in self._in_blocks()]
        scores = np.concatenate(products).astype(np.float64) * self._inverse.astype(np.float64) * inverse(query)
        best = np.argsort(-scores, kind="stable")[:k]
        return [Hit(int(i), self._part(2 * i + 1), float(scores[i]), self._part(2 * i)) for i in best]

    def _in_blocks(self) -> Iterator[np.ndarray]:
        return (self._vectors[i : i + BLOCK] for i in range(0, len(self), BLOCK))

    def _part(self, number: int) -> str:
        start, end = (int(place) for place in self._places[number : number + 2])
        return self._data[self._texts + start : self._texts + end].decode("utf-8", "replace")
