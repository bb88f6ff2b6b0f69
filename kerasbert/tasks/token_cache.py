"""What a tokenizer made of the texts of a run, in a file: a run that goes on, or another one, reads it instead.

The file holds the answers of `encode` and `tokenize` in the order in which they were asked for, each with a hash of its text.
A kind's `rows` is then run as ever, over a tokenizer that answers from the file. So it serves every kind, and what a kind
makes of the tokens, such as the windows of a context, is never read from a file.
"""

import array
import copy
import hashlib
import json
import os
import struct
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

import kerasbert
from kerasbert import progress, registry
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.text.base import Tokenizer, Tokens

FORMAT = 1  # larger when `encode` or `tokenize` of any tokenizer changes between releases, or the file does
MAGIC = b"kerasbert tokens"
HEADER = struct.Struct("<16s32s3q")  # MAGIC, sha256 of what follows the header, calls, tokens, tokens with characters
LEAST = 5.0  # seconds of tokenizing that are worth a file; a text is read back 4 to 8 times as fast as it is tokenized
MOST = 1 << 31  # bytes of a file

Rows = TypeVar("Rows")  # what is made of texts


class Stale(Exception):
    """A recording does not answer what is asked."""


class TokenCache:
    """Files of tokens in a folder.

    Args:
        folder: where they lie; made when one is written.
        always: bool, keep even what took less than LEAST seconds.
        quiet: bool, print no lines.
    """

    def __init__(self, folder: str | os.PathLike, always: bool = False, quiet: bool = False) -> None:
        self.folder, self.least, self.quiet = Path(folder), 0.0 if always else LEAST, quiet
        self._waiting: list[tuple[Path, Recording]] = []

    def rows(self, make: Callable[[Tokenizer], Rows], tokenizer: Tokenizer, depends: Sequence[object]) -> Rows:
        """`make(tokenizer)`, with the tokens of a file where one is there; else they wait for `write`.

        Args:
            make: makes the rows of the texts; it is called again where the file turns out to be of something else.
            depends: what `make` asks for depends on, the texts among it: their `repr` counts.
        """
        if tokenizer.spelled:
            return make(tokenizer)
        path = self.folder / f"tokens-{_key(tokenizer, depends)}.bin"
        recording = self._read(path, tokenizer)
        if recording is not None:
            try:
                return _over(tokenizer, _Replay(recording, tokenizer), make)
            except Stale:
                progress.say(f"{path} is of other texts: they are tokenized again", quiet=self.quiet)
        recorder, begun = _Recorder(tokenizer), time.monotonic()
        result = _over(tokenizer, recorder, make)
        if time.monotonic() - begun >= self.least:
            self._waiting.append((path, recorder.recording()))
        return result

    def write(self) -> None:
        """Write what was tokenized; a folder that cannot be written costs a line, not the run."""
        waiting, self._waiting = self._waiting, []
        for path, recording in waiting:
            if len(content := recording.to_bytes()) > MOST:
                progress.say(
                    f"the tokens are not kept: {len(content)} bytes, expected at most {MOST}", quiet=self.quiet
                )
                continue
            try:
                files.write_atomic(path, content)
            except InputError as error:
                progress.say(
                    f"the tokens are not kept, another start tokenizes the texts again: {error}", quiet=self.quiet
                )

    def _read(self, path: Path, tokenizer: Tokenizer) -> "Recording | None":
        try:
            with path.open("rb") as file:
                return Recording.from_bytes(file.read(MOST + 1), tokenizer.size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            progress.say(f"{path} is not used, the texts are tokenized again: {error}", quiet=self.quiet)
            return None


class Recording(NamedTuple):
    """Answers of a tokenizer, in their order.

    Args:
        texts: uint64 [calls], a hash of each text.
        counts: int32 [calls], tokens of each; -1 - tokens of those with characters (`tokenize`).
        ids: int32 [tokens]. starts, ends: int32 [tokens with characters].
    """

    texts: np.ndarray
    counts: np.ndarray
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def to_bytes(self) -> bytes:
        """The file."""
        content = b"".join([self.texts.astype("<u8").tobytes(), *(each.astype("<i4").tobytes() for each in self[1:])])
        sizes = len(self.texts), len(self.ids), len(self.starts)
        return HEADER.pack(MAGIC, hashlib.sha256(content).digest(), *sizes) + content

    @classmethod
    def from_bytes(cls, content: bytes, vocabulary: int) -> "Recording":
        """The inverse of `to_bytes`.

        Raises:
            ValueError: it is none, is damaged, or its numbers are none of a tokenizer with so many pieces.
        """
        if len(content) < HEADER.size or not content.startswith(MAGIC):
            raise ValueError("it is no file of tokens")
        _, digest, calls, tokens, placed = HEADER.unpack_from(content)
        sizes = calls, calls, tokens, placed, placed
        if min(sizes) < 0 or HEADER.size + 12 * calls + 4 * tokens + 8 * placed != len(content):
            raise ValueError("it is truncated")
        if hashlib.sha256(memoryview(content)[HEADER.size :]).digest() != digest:
            raise ValueError("it is damaged")
        arrays, at = [], HEADER.size
        for size, kind in zip(sizes, ("<u8", "<i4", "<i4", "<i4", "<i4")):
            arrays.append(np.frombuffer(content, kind, size, at))
            at += arrays[-1].nbytes
        recording = cls(*arrays)
        counts = recording.counts.astype("int64")
        lengths, ids = np.where(counts < 0, -1 - counts, counts), recording.ids
        if lengths.sum() != tokens or lengths[counts < 0].sum() != placed:
            raise ValueError("its counts are not those of its tokens")
        if tokens and not 0 <= ids.min() <= ids.max() < vocabulary:
            raise ValueError(f"it holds token {max(ids.max(), -ids.min())}, the vocabulary has {vocabulary}")
        if placed and not (recording.starts.min() >= 0 and (recording.starts <= recording.ends).all()):
            raise ValueError("its tokens end before they begin")
        return recording


class _Recorder:
    """Answers as the tokenizer does, and remembers."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.of, self.texts, self.counts = tokenizer, bytearray(), array.array("i")
        self.ids, self.starts, self.ends = array.array("i"), array.array("i"), array.array("i")

    def encode(self, text: str | bytes) -> list[int]:
        ids = self.of.encode(text)
        self.texts += _hash(text)
        self.counts.append(len(ids))
        self.ids.extend(ids)
        return ids

    def tokenize(self, text: str | bytes) -> Tokens:
        tokens = self.of.tokenize(text)
        self.texts += _hash(text)
        self.counts.append(-1 - len(tokens.ids))
        self.ids.extend(tokens.ids)
        self.starts.extend(tokens.starts)
        self.ends.extend(tokens.ends)
        return tokens

    def recording(self) -> Recording:
        arrays = (np.frombuffer(each, "i") for each in (self.counts, self.ids, self.starts, self.ends))
        return Recording(np.frombuffer(self.texts, "<u8"), *arrays)


class _Replay:
    """Answers from a recording; Stale where it holds another text."""

    def __init__(self, recording: Recording, tokenizer: Tokenizer) -> None:
        self.texts, self.ids = recording.texts.tobytes(), recording.ids
        self.counts, self.starts, self.ends = recording.counts.tolist(), recording.starts, recording.ends
        self.vocabulary, self.call, self.token, self.place = tokenizer.vocabulary, 0, 0, 0

    def encode(self, text: str | bytes) -> list[int]:
        count = self._next(text)
        if count < 0:
            raise Stale
        return self._ids(count)

    def tokenize(self, text: str | bytes) -> Tokens:
        count = -1 - self._next(text)
        if count < 0:
            raise Stale
        ids, begin = self._ids(count), self.place
        self.place = begin + count
        starts, ends = self.starts[begin : self.place].tolist(), self.ends[begin : self.place].tolist()
        if max(ends, default=0) > len(text):
            raise Stale
        return Tokens(ids, [self.vocabulary[i] for i in ids], starts, ends)

    def _next(self, text: str | bytes) -> int:
        """The number of the next call; its text is checked."""
        at = self.call
        if self.texts[8 * at : 8 * at + 8] != _hash(text):
            raise Stale
        self.call = at + 1
        return self.counts[at]

    def _ids(self, count: int) -> list[int]:
        begin = self.token
        self.token = begin + count
        return self.ids[begin : self.token].tolist()


def _over(tokenizer: Tokenizer, answers: _Recorder | _Replay, make: Callable[[Tokenizer], Rows]) -> Rows:
    """`make` of a copy of the tokenizer whose `encode` and `tokenize` are another's; afterwards they are its own again."""
    other: Any = copy.copy(tokenizer)
    other.encode, other.tokenize = answers.encode, answers.tokenize
    try:
        return make(other)
    finally:
        del other.encode, other.tokenize


def _key(tokenizer: Tokenizer, depends: Sequence[object]) -> str:
    """The name of the file of such tokens."""
    code = (
        FORMAT,
        kerasbert.__version__,
        unicodedata.unidata_version,
        (registry.plugin_of(tokenizer) or {}).get("sha256"),
    )
    key = hashlib.sha256(json.dumps([*code, tokenizer.digest()]).encode())
    for each in depends:
        key.update(repr(each).encode("utf-8", "backslashreplace") + b"\n")
    return key.hexdigest()[:32]


def _hash(text: str | bytes) -> bytes:
    """8 bytes that stand for a text."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8, person=b"b" if isinstance(text, bytes) else b"").digest()
