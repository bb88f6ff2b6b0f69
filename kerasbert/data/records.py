"""Records: packed examples on disk, in blocks that tf.data reads without touching single examples.

A directory holds `manifest.json`, the tokenizer and shards. A shard is a sequence of blocks of 256 rows, all of one size;
a row is a fixed number of little-endian uint16 (int32 where the vocabulary is above 65,536): the columns of each feature
side by side. The last block of a shard is filled up with zero rows, which are never read.

A document's shard is hash(document) mod N, its order inside the shard is by hash and the random next sentence comes
from the same shard: whoever writes, on one machine or many, in whatever order the files come, writes the same bytes.
"""

import dataclasses
import hashlib
import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.errors import InputError

FORMAT = 1
BLOCK = 256
MANIFEST = "manifest.json"


def row_dtype(vocabulary_size: int) -> str:
    """The numbers of a row: "uint16", or "int32" where ids do not fit."""
    return "uint16" if vocabulary_size <= 65536 else "int32"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records: its name, number of examples, of tokens (padding not counted) and of bytes, and its hash."""

    file: str
    examples: int
    tokens: int
    bytes: int
    sha256: str

    @property
    def blocks(self) -> int:
        """Number of blocks, the last one perhaps not full."""
        return -(-self.examples // BLOCK)


class Records:
    """Records made by `write_records`, opened for reading.

    Args:
        directory: local path or gs:// address.
        verify: bool, read every shard once and compare its hash; otherwise only the sizes are compared.

    Attributes:
        manifest: dict, the manifest.
        shards: list of Shard.
        examples, tokens, length: ints; tokens without padding.
        features: name -> shape of one example, in the order of a row's columns.
        reused: bool, True when `write_records` found them made already.

    Raises:
        InputError: no records there, another format, or a missing, truncated or (with `verify`) changed shard.
    """

    def __init__(self, directory: str | os.PathLike, verify: bool = False):
        self.directory = os.fspath(directory)
        self.manifest = read_manifest(self.directory)
        self.shards = [Shard(**shard) for shard in self.manifest["shards"]]
        self.features = {name: tuple(feature["shape"]) for name, feature in self.manifest["features"].items()}
        self.length: int = self.manifest["settings"]["length"]
        self.examples = sum(shard.examples for shard in self.shards)
        self.tokens = sum(shard.tokens for shard in self.shards)
        self.reused = False
        for shard in self.shards:
            self._check_shard(shard, verify)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of a row."""
        return np.dtype(self.manifest["dtype"]).newbyteorder("<")

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return sum(int(np.prod(shape)) for shape in self.features.values())

    @property
    def digest(self) -> str:
        """sha256 of everything the records hold and were made from: a run's data hash."""
        return hashlib.sha256(json.dumps(self.manifest, sort_keys=True).encode()).hexdigest()

    def path(self, shard: Shard) -> str:
        """Path or address of a shard."""
        return posixpath.join(self.directory, shard.file)

    def _check_shard(self, shard: Shard, verify: bool) -> None:
        again = "Copy it again, or make the records again with --overwrite"
        size = _size(self.path(shard))
        if size is None:
            raise InputError(f"record shard {self.path(shard)} is missing. {again}")
        if size != shard.bytes:
            kind = "truncated" if size < shard.bytes else "too long"
            raise InputError(
                f"record shard {self.path(shard)} is {kind}: {size} bytes, expected {shard.bytes}. {again}"
            )
        if verify and hashlib.sha256(_read(self.path(shard))).hexdigest() != shard.sha256:
            raise InputError(f"record shard {self.path(shard)} is damaged: its sha256 is not the manifest's. {again}")

    def check(self, tokenizer: Any, vocabulary_size: int) -> None:
        """Refuse records that do not go with a tokenizer and a model.

        Args:
            tokenizer: a tokenizer of `kerasbert.text`.
            vocabulary_size: rows of the model's table of token embeddings.
        """
        made, given = self.manifest["tokenizer"]["digest"], tokenizer.digest()
        if made != given:
            raise InputError(
                f"records {self.directory} were made with another tokenizer ({made[:12]}, this one is {given[:12]}). "
                "Make them again with this tokenizer, or train with theirs"
            )
        if tokenizer.size > vocabulary_size:
            raise InputError(
                f"records {self.directory} hold ids below {tokenizer.size}, the model has {vocabulary_size} token "
                "embeddings. Set embeddings.vocabulary to the tokenizer's size or more"
            )

    def dataset(self, batch: int, *, seed: int, start_step: int = 0, shuffle: bool = True) -> Any:
        """An infinite, step-indexed tf.data.Dataset of global batches; see `kerasbert.data.stream`."""
        import tensorflow as tf

        from kerasbert.data.stream import dataset

        with tf.device("/CPU:0"):  # the tables of the pipeline belong to the host, whatever trains
            return dataset(self, batch, seed=seed, start_step=start_step, shuffle=shuffle)

    def rows(self, shard: Shard) -> np.ndarray:
        """All rows of one shard, for statistics and tests: [examples, columns]."""
        data = np.frombuffer(_read(self.path(shard)), self.dtype)
        return data.reshape(-1, self.columns)[: shard.examples]


def read_manifest(directory: str | os.PathLike) -> dict[str, Any]:
    """The manifest of records of this version's format."""
    path = posixpath.join(os.fspath(directory), MANIFEST)
    if _size(path) is None:
        raise InputError(f"no records in {directory}: it holds no {MANIFEST}. Make them with: kerasbert data FILES...")
    try:
        manifest = json.loads(_read(path))
        version = manifest["format"]
        manifest["shards"], manifest["features"], manifest["settings"]["length"], manifest["tokenizer"]["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a manifest of records ({error}). Make the records again") from error
    if version != FORMAT:
        raise InputError(f"{path} has format {version}, this version reads {FORMAT}. Make the records again")
    return manifest


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path is an address such as gs://bucket/records."""
    return "://" in os.fspath(path)


def _size(path: str) -> int | None:
    """Size of a file in bytes, None where there is none."""
    if is_remote(path):
        import tensorflow as tf

        return tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None
    return os.path.getsize(path) if os.path.isfile(path) else None


def _read(path: str) -> bytes:
    if is_remote(path):
        import tensorflow as tf

        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    return Path(path).read_bytes()


def differences(manifest: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """What `plan` (the inputs of a new run) changes against the records' manifest, in words."""
    found = []
    old = {(s["format"], s["sha256"]): s["name"] for s in manifest["sources"]}
    new = {(s["format"], s["sha256"]): s["name"] for s in plan["sources"]}
    if sorted(_counted(manifest["sources"])) != sorted(_counted(plan["sources"])):
        gone = sorted(old[k] for k in old.keys() - new.keys())
        added = sorted(new[k] for k in new.keys() - old.keys())
        changed = sorted(set(gone) & set(added))
        parts = [f"{name} changed" for name in changed]
        parts += [f"{name} added" for name in added if name not in changed]
        parts += [f"{name} removed" for name in gone if name not in changed]
        found.append("sources (" + (", ".join(parts) or "a file given more or less often") + ")")
    if manifest["tokenizer"]["digest"] != plan["tokenizer"]["digest"]:
        found.append(f"tokenizer ({_tokenizer_change(manifest['tokenizer'], plan['tokenizer'])})")
    for name in sorted(manifest["settings"].keys() | plan["settings"].keys()):
        before, after = manifest["settings"].get(name), plan["settings"].get(name)
        if before != after:
            found.append(f"{name} ({before} before, now {after})")
    return found


def _counted(sources: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(source["format"], source["sha256"]) for source in sources]


def _tokenizer_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    settings = [
        f"{name} {old['settings'].get(name)} before, now {new['settings'].get(name)}"
        for name in sorted(old["settings"].keys() | new["settings"].keys())
        if old["settings"].get(name) != new["settings"].get(name)
    ]
    if old["size"] != new["size"]:
        settings.append(f"{old['size']} entries before, now {new['size']}")
    return ", ".join(settings) or "other vocabulary"
